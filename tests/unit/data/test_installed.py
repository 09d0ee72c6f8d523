"""What an installation has: by make, and in a wheel."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["make", "-s", "-C", str(ROOT), "install", f"DESTDIR={folder}"], check=True)
    return folder / "usr"


def test_no_link_of_the_documentation_leads_nowhere(installed: Path):
    doc = installed / "share/doc/zvault"
    pages = list(doc.rglob("*.md"))
    assert len(pages) > 50
    dead = [
        f"{page.relative_to(doc)}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert not dead


def test_each_alert_has_its_runbook(installed: Path):
    rules = (installed / "share/zvault/prometheus/zvault.rules.yml").read_text()
    books = re.findall(r"runbook_url: file:///usr(/\S+)", rules)
    assert books
    assert not [book for book in books if not Path(f"{installed}{book}").exists()]


def test_units_name_documents_and_pages_that_are_there(installed: Path):
    for unit in (installed / "lib/systemd/system").iterdir():
        for name in re.findall(r"file:/usr(/\S+)", unit.read_text()):
            assert Path(f"{installed}{name}").exists(), f"{unit.name}: {name}"
        for name, section in re.findall(r"man:(zvault[^(]*)\((\d)\)", unit.read_text()):
            assert (installed / f"share/man/man{section}/{name}.{section}").exists(), f"{unit.name}: {name}"


def test_each_file_can_be_read_by_all(installed: Path):
    for path in installed.rglob("*"):
        mode = path.stat().st_mode
        assert mode & 0o444 == 0o444, path
        assert not mode & 0o022, path


def test_a_wheel_has_all_that_is_no_code(tmp_path: Path):
    copy = tmp_path / "source"
    subprocess.run(
        ["cp", "-a", ROOT / "zvault", ROOT / "config", ROOT / "systemd", "-t", tmp_path], check=True
    )
    copy.mkdir()
    for name in ("zvault", "config", "systemd"):
        (tmp_path / name).rename(copy / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = {
        f"zvault/data/{folder.name}/{path.name}"
        for folder in (*(ROOT / "config").iterdir(), ROOT / "systemd")
        if folder.is_dir()
        for path in folder.iterdir()
    }
    assert len(shipped) > 15
    assert not (shipped | {"zvault/data/zvault.toml", "zvault/py.typed"}) - names
