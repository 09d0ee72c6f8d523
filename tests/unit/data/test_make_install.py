"""What 'make install' leaves is root's alone, whoever owns the checkout and whatever was there before."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
NOBODY = 65534


def give_away(place: Path) -> None:
    """Let everybody write all of it, as a shared checkout may; as root: have another user own it."""
    for one in (place, *place.rglob("*")):
        if os.geteuid() == 0:
            os.chown(one, NOBODY, NOBODY, follow_symlinks=False)
        if not one.is_symlink():
            one.chmod(one.stat().st_mode | 0o666)


def may_be_written(place: Path) -> bool:
    """Whether somebody else may write it."""
    seen = place.lstat()
    return seen.st_uid != os.geteuid() or (not stat.S_ISLNK(seen.st_mode) and bool(seen.st_mode & 0o022))


def test_nothing_of_it_is_anybody_elses(tmp_path: Path) -> None:
    checkout, there = tmp_path / "checkout", tmp_path / "root"
    checkout.mkdir()
    for name in ("zvault", "systemd", "config", "docs"):
        shutil.copytree(
            ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("Makefile", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, checkout)
    earlier = there / "usr/lib/python3/dist-packages/zvault"
    (earlier / "daemon").mkdir(parents=True)
    (earlier / "daemon" / "main.py").touch()
    (earlier / "gone.py").touch()
    give_away(checkout)
    give_away(earlier)
    command = ["sh", "-c", "umask 0 && exec make -C checkout install DESTDIR=$PWD/root"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    foreign = [str(one) for one in there.rglob("*") if may_be_written(one)]
    assert foreign == []
    assert not (earlier / "gone.py").exists(), "code of an earlier version is still there"
    assert os.access(there / "usr/bin/zvaultd", os.X_OK)
