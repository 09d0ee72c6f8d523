"""`make release`: the same files, byte for byte, from the same sources, wherever and by whomever they are made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

LAB = {"init": "none"}

SOURCE = Path("/src")
JUNK = (".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "build", "__pycache__")


def checkout(folder: Path) -> Path:
    """The sources once more."""
    shutil.copytree(SOURCE, folder, symlinks=True, ignore=shutil.ignore_patterns(*JUNK))
    return folder


def make(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "-C", str(folder), "release"]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=400)


def released(folder: Path, **environment: str) -> Path:
    """The folder with what was made."""
    done = make(folder, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released(checkout(tmp_path_factory.mktemp("one") / "zvault"))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_what_is_made_and_its_sums(made: Path) -> None:
    assert {re.sub(r"[0-9][0-9.]*\.[0-9]+(-[0-9]+)?", "V", name) for name in files(made)} == {
        "zvault_V_all.deb",
        "zvault-blockstore_V_all.deb",
        "zvault-V-py3-none-any.whl",
        "zvault-V.tar.gz",
        "SHA256SUMS",
    }
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=made, capture_output=True, text=True)
    assert checked.returncode == 0
    assert checked.stdout.count(": OK") == 4


def test_another_host_makes_the_same(made: Path, tmp_path: Path) -> None:
    other = checkout(tmp_path / "another" / "place")
    for number, path in enumerate(sorted(other.rglob("*"), reverse=True)):
        if not path.is_symlink():
            # As a umask of 002 leaves it, and written in another order.
            path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o200) >> 3)
            os.utime(path, (1.9e9 - number, 1.9e9 - number))
    before = os.umask(0o077)
    try:
        again = released(other, TZ="Pacific/Auckland", LC_ALL="C.UTF-8", HOME="/nowhere", USER="somebody")
    finally:
        os.umask(before)
    one, two = files(made), files(again)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_the_wheel_is_what_the_sdist_makes(made: Path, tmp_path: Path) -> None:
    (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
        assert all(member.isfile() or member.isdir() for member in archive), "a link could lead out of it"
        assert {member.mtime for member in archive} == {next(iter(archive)).mtime}
    (source,) = tmp_path.iterdir()
    build = "import setuptools.build_meta as it; it.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (anew,) = tmp_path.glob("*.whl")

    def content(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert content(anew) == content(wheel)
    assert "zvault/data/profiles/s3.toml" in content(wheel)


def test_two_versions_that_differ_are_refused(tmp_path: Path) -> None:
    source = checkout(tmp_path / "zvault")
    module = source / "zvault/__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.8.7"', module.read_text()))
    done = make(source)
    assert done.returncode != 0
    assert "9.8.7" in done.stderr
    assert not (source / "build").exists()
