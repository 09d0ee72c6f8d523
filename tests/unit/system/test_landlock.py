"""Landlock as this kernel has it: what is in force is seen in a process that restricts itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zvault.system import landlock

ROOT = Path(landlock.__file__).parents[2]

SCRIPT = """
import json, os, signal, socket, sys, threading
from pathlib import Path
from zvault.system import landlock
folder = Path(sys.argv[1])
rights = landlock.grant_read([folder / "read", folder / "not-there"])
rights |= landlock.grant_write([folder / "write", Path("/dev/null")])
done = landlock.restrict_paths(rights)

def tried(call):
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno)
    return "done"

def all_of_it():
    listening = socket.socket()
    return {
        "read": tried((folder / "read/file").read_text),
        "change": tried(lambda: (folder / "read/file").write_text("x")),
        "make": tried(lambda: (folder / "write/new").write_text("x")),
        "rename": tried(lambda: (folder / "write/new").rename(folder / "write/newer")),
        "truncate": tried(lambda: os.truncate(folder / "write/newer", 0)),
        "outside": tried((folder / "file").read_text),
        "list": tried(lambda: os.listdir(folder)),
        "make outside": tried(lambda: (folder / "new").write_text("x")),
        "null": tried(lambda: Path("/dev/null").write_text("x")),
        "device": tried(lambda: os.mknod(folder / "write/null", 0o20600, os.makedev(1, 3))),
        "signal": tried(lambda: os.kill(int(sys.argv[2]), 0)),
        "listen": tried(lambda: listening.bind(("127.0.0.1", 0))),
        "trace": tried(Path(f"/proc/{sys.argv[2]}/environ").read_bytes),
    }

found = []
thread = threading.Thread(target=lambda: found.append(all_of_it()))
thread.start()
thread.join()
print(json.dumps({"done": done, "version": landlock.read_landlock_version(), "tried": found[0]}))
"""


def restricted(folder: Path) -> dict[str, Any]:
    for name in ("read", "write"):
        (folder / name).mkdir()
    for name in ("read/file", "file"):
        (folder / name).write_text("x")
    argv = [sys.executable, "-c", SCRIPT, str(folder), str(os.getpid())]
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(
    landlock.read_landlock_version() < 6, reason="this kernel has no Landlock, or an older one"
)
def test_nothing_is_left_but_what_was_named(tmp_path: Path) -> None:
    found = restricted(tmp_path)
    assert found["done"] is True
    denied, not_permitted = "Permission denied", "Operation not permitted"
    assert found["tried"] == {
        "read": "done",
        "change": denied,
        "make": "done",
        "rename": "done",
        "truncate": "done",
        "outside": denied,
        "list": denied,
        "make outside": denied,
        "null": "done",
        "device": denied if os.geteuid() == 0 else not_permitted,
        "signal": not_permitted,
        "listen": denied,
        "trace": denied,
    }
    assert (tmp_path / "write" / "newer").read_text() == ""
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(landlock.read_landlock_version() > 0, reason="this kernel has it")
def test_a_kernel_that_has_none_takes_nothing_away(tmp_path: Path) -> None:
    found = restricted(tmp_path)
    assert (found["done"], found["version"]) == (False, 0)
    assert found["tried"]["outside"] == "done"


def test_no_right_is_asked_for_that_a_version_does_not_know() -> None:
    # The bits of include/uapi/linux/landlock.h: 13 rights in version 1, REFER, TRUNCATE, IOCTL_DEV later.
    assert [landlock.list_known_rights(one).bit_length() for one in range(1, 8)] == [
        13,
        14,
        15,
        15,
        16,
        16,
        16,
    ]
    make_devices = 1 << 6 | 1 << 11
    for one in range(1, 8):
        assert landlock.READ_RIGHTS & ~landlock.list_known_rights(one) == 0
        assert landlock.WRITE & landlock.list_known_rights(one) & make_devices == 0


async def test_where_the_kernel_refuses_nothing_is_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def none(number: int, *_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "_call", none)
    assert landlock.read_landlock_version() == 0
    assert landlock.restrict_paths({tmp_path: landlock.READ_RIGHTS}) is False
