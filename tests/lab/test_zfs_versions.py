"""Each version of OpenZFS has a kernel and a guest tree of its own; what is not in the lab is refused."""

import subprocess
from pathlib import Path

import cache
import pytest

LAB = {"where": "host"}
RUN = str(cache.LAB / "run")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for prebuilt kernels beside an empty project."""
    folder = tmp_path / "shared" / "lab"
    folder.mkdir(parents=True)
    (tmp_path / "project").mkdir()
    monkeypatch.setattr(cache, "PROJECT", tmp_path / "project")
    monkeypatch.delenv("ZVAULT_LAB_KERNEL", raising=False)
    return folder


def asked(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("ZVAULT_LAB_ZFS", version)


def test_versions_share_neither_kernel_nor_guest(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    found = []
    for version in cache.SUITES:
        asked(monkeypatch, version)
        found += [cache.kernel(), cache.guest()]
    assert len(set(found)) == 2 * len(cache.SUITES)


def test_a_prebuilt_kernel_is_taken_for_its_version_only(
    monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    newer = shared / "more" / "kernel-7.2.13-zfs-2.4.4.tar.zst"
    newer.parent.mkdir()
    newer.touch()
    asked(monkeypatch, "2.3")
    assert cache.archive() is None
    older = shared / "kernel-7.2.13-zfs-2.3.9.tar.zst"
    older.touch()
    assert cache.archive() == older
    asked(monkeypatch, "2.4")
    assert cache.archive() == newer


def test_a_kernel_is_at_hand_if_it_is_prebuilt_or_built(
    monkeypatch: pytest.MonkeyPatch, shared: Path, tmp_path: Path
) -> None:
    """By that `make test` decides whether it can try the other version without building a kernel."""
    monkeypatch.setenv("ZVAULT_CACHE", str(tmp_path / "cache"))
    asked(monkeypatch, "2.4")
    assert cache.kernel_at_hand() is None
    built = cache.kernel()
    built.mkdir(parents=True)
    assert cache.kernel_at_hand() == built
    (shared / "kernel-7.2.13-zfs-2.4.4.tar.zst").touch()
    prebuilt = cache.kernel_at_hand()
    assert prebuilt is not None
    assert prebuilt != built


def test_without_a_word_it_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZVAULT_LAB_ZFS", raising=False)
    usual = cache.guest()
    asked(monkeypatch, "")  # as make passes it on
    assert cache.guest() == usual
    asked(monkeypatch, cache.DEFAULT_ZFS)
    assert cache.guest() == usual


def test_a_version_that_the_lab_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([RUN, "--zfs=1.9", "--", "true"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "2.4" in done.stderr
    asked(monkeypatch, "1.9")
    done = subprocess.run([RUN, "--", "true"], capture_output=True, text=True)
    assert done.returncode == 125
    assert "the lab has no OpenZFS 1.9" in done.stderr
