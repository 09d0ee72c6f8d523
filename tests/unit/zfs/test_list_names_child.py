"""The names behind a dataset that cannot be opened, from a kernel that is played; and as a program of another host."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zvault.zfs import list_names_child
from zvault.zfs.list_names_child import COMMAND, LIST_NEXT, LONGEST_CALL_NAME, list_names

COOKIE = 6000
"""Where this kernel keeps how far it has come."""

TREE = {"tank": ["a", "bad", "c"], "tank/a": ["x"], "tank/c": ["worse", "y"]}
DAMAGED = {"tank/bad": errno.EIO, "tank/c/worse": errno.ECKSUM if hasattr(errno, "ECKSUM") else 52}


class Kernel:
    """Goes through ``tree``, child by child, and says of those that are ``damaged`` what is wrong."""

    def __init__(self, tree: dict[str, list[str]], damaged: dict[str, int]) -> None:
        self.tree, self.damaged = tree, damaged

    def ioctl(self, _: int, call: int, command: bytearray) -> None:
        assert (call, len(command)) == (LIST_NEXT, COMMAND)
        parent = bytes(command[:LONGEST_CALL_NAME]).partition(b"\0")[0].decode()
        if parent in self.damaged:
            raise OSError(self.damaged[parent], "damaged")
        children, at = self.tree.get(parent, []), command[COOKIE]
        if at == len(children):
            raise OSError(errno.ESRCH, "no more")
        command[COOKIE] += 1
        name = f"{parent}/{children[at]}"
        command[:LONGEST_CALL_NAME] = name.encode().ljust(LONGEST_CALL_NAME, b"\0")
        if name in self.damaged:
            raise OSError(self.damaged[name], "damaged")


def play(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    monkeypatch.setattr(list_names_child.fcntl, "ioctl", kernel.ioctl)
    device: Any = Path("/dev/null")
    monkeypatch.setattr(list_names_child, "Path", lambda _: device)


def test_all_that_can_be_opened_is_named_and_what_cannot_with_its_errno(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(monkeypatch, Kernel(TREE, DAMAGED))
    found = list_names("tank")
    assert sorted(found["names"]) == ["tank", "tank/a", "tank/a/x", "tank/c", "tank/c/y"]
    assert found["unlisted"] == DAMAGED


def test_a_root_that_cannot_be_opened_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, Kernel(TREE, {"tank": errno.EIO}))
    with pytest.raises(OSError, match="tank"):
        list_names("tank")


def test_a_kernel_whose_call_is_another_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Kernel):
        def ioctl(self, device: int, call: int, command: bytearray) -> None:
            command[:LONGEST_CALL_NAME] = b"dozer/x".ljust(LONGEST_CALL_NAME, b"\0")

    play(monkeypatch, Other(TREE, {}))
    with pytest.raises(OSError, match="dozer/x"):
        list_names("tank")


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    play(monkeypatch, Kernel(TREE, DAMAGED))
    monkeypatch.setattr(sys, "argv", ["-c", "tank"])
    assert list_names_child.main() == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"{name}\t{code}" for name, code in sorted(DAMAGED.items())
    ]


@pytest.mark.skipif(Path("/dev/zfs").exists(), reason="the kernel here has ZFS")
def test_its_text_is_a_program_that_needs_nothing_else() -> None:
    text = Path(list_names_child.__file__).read_text()
    ended = subprocess.run(
        [sys.executable, "-I", "-c", text, "tank"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.strip() == "FileNotFoundError: [Errno 2] No such file or directory: '/dev/zfs'"
