"""The names behind a dataset that cannot be opened, from a kernel that is played; and as a program of another host."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from zvault.zfs import list_names_child
from zvault.zfs.list_names_child import (
    COMMAND,
    LIST_NEXT,
    LONGEST_CALL_NAME,
    NAME_OBJECT,
    OBJECT_AT,
    VALUE_AT,
    list_names,
)

COOKIE = 6000
"""Where this kernel keeps how far it has come."""

TREE = {"tank": ["a", "bad", "c"], "tank/a": ["x"], "tank/c": ["worse", "y"]}
DAMAGED = {"tank/bad": errno.EIO, "tank/c/worse": errno.ECKSUM if hasattr(errno, "ECKSUM") else 52}


OBJECTS = {
    1: "",
    54: "tank",
    59: "tank/$ORIGIN",
    60: "tank/$ORIGIN@$ORIGIN",
    300: "tank/a",
    301: "tank/a@s",
    302: "tank/a/x/%recv",
    4000: "tank/a/x",
    4001: "tank/bad",
    4002: "tank/bad/below",
    8800: "tank/c",
    8801: "tank/c/worse",
    8802: "tank/c/y",
    8803: "tank/ab",
}
"""The pool's objects by number, with their names as datasets; one is none."""


FREE = 5000
"""Numbers of no object in a row, of which this kernel has fewer between its objects."""


class Kernel:
    """Goes through ``tree``, child by child, and says of those that are ``damaged`` what is wrong.

    Of ``objects`` it tells the names, and of the one that is ``unreadable`` that it is.
    """

    def __init__(
        self,
        tree: dict[str, list[str]],
        damaged: dict[str, int],
        objects: dict[int, str] = OBJECTS,
        unreadable: int = 0,
    ) -> None:
        self.tree, self.damaged = tree, damaged
        self.objects, self.unreadable = objects, unreadable

    def name_object(self, command: bytearray) -> None:
        assert bytes(command[:LONGEST_CALL_NAME]).partition(b"\0")[0] == b"tank"
        (number,) = struct.unpack_from("=Q", command, OBJECT_AT)
        if number == self.unreadable:
            raise OSError(errno.EIO, "damaged")
        if number not in self.objects:
            raise OSError(errno.ENOENT, "no such object")
        if not self.objects[number]:
            raise OSError(errno.EINVAL, "no dataset")
        name = self.objects[number].encode() + b"\0"
        command[VALUE_AT : VALUE_AT + len(name)] = name

    def ioctl(self, _: int, call: int, command: bytearray) -> None:
        if call == NAME_OBJECT:
            self.name_object(command)
            return
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
    monkeypatch.setattr(list_names_child, "MOST_FREE_OBJECTS", FREE)


def test_all_that_can_be_opened_is_named_and_what_cannot_with_its_errno(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(monkeypatch, Kernel(TREE, DAMAGED))
    found = list_names("tank")
    assert sorted(found["names"]) == ["tank", "tank/a", "tank/a/x", "tank/c", "tank/c/y"]
    assert found["unlisted"] == DAMAGED


@pytest.mark.parametrize("trouble", [errno.EIO, errno.EBADE])
@pytest.mark.parametrize("unreadable", [0, 2000])
def test_of_a_root_that_cannot_be_opened_all_below_it_is_found_among_the_objects_of_its_pool(
    monkeypatch: pytest.MonkeyPatch, trouble: int, unreadable: int
) -> None:
    play(monkeypatch, Kernel(TREE, DAMAGED | {"tank": trouble}, unreadable=unreadable))
    assert list_names("tank") == {
        "names": ["tank/a", "tank/a/x", "tank/ab", "tank/bad/below", "tank/c", "tank/c/y"],
        "unlisted": {"tank": trouble, **DAMAGED},
    }
    play(monkeypatch, Kernel(TREE, {"tank/a": trouble}))
    assert list_names("tank/a") == {"names": ["tank/a/x"], "unlisted": {"tank/a": trouble}}


@pytest.mark.parametrize(
    ("objects", "code"),
    [({1: "", 2: "dozer"}, errno.EPROTO), ({1: "tank/other"}, errno.EPROTO), ({}, errno.EPROTO)],
)
def test_where_the_objects_do_not_tell_of_the_root_nothing_is_believed(
    monkeypatch: pytest.MonkeyPatch, objects: dict[int, str], code: int
) -> None:
    play(monkeypatch, Kernel(TREE, {"tank": errno.EIO}, objects))
    with pytest.raises(OSError, match="tank") as failure:
        list_names("tank")
    assert failure.value.errno == code


def test_a_call_that_is_refused_is_no_object_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Kernel):
        def name_object(self, command: bytearray) -> None:
            raise OSError(errno.EPERM, "not for you")

    play(monkeypatch, Refusing(TREE, {"tank": errno.EIO}))
    with pytest.raises(PermissionError):
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
