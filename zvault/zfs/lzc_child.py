"""The child process in which libzfs_core runs: one JSON request a line in, one JSON answer a line out.

A call into the kernel on a hung pool cannot be interrupted, so it must not run in the daemon (invariant 7).
One long-lived child serves many calls: no fork a dataset. Names travel as text and become bytes here.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import libzfs_core as lzc
from libzfs_core import exceptions

from zvault.zfs.libzfs import Libzfs
from zvault.zfs.list_names_child import list_names


def _encode(names: dict[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in names.items()}


def snapshot(names: list[str], properties: dict[str, str]) -> None:
    """Make all snapshots at one moment, or none. They must lie in one pool."""
    lzc.lzc_snapshot([name.encode() for name in names], _encode(properties))


def destroy(names: list[str]) -> None:
    """Destroy all snapshots named, or none; one that is gone already is no error."""
    lzc.lzc_destroy_snaps([name.encode() for name in names], defer=False)


def hold(names: list[str], tag: str) -> None:
    """Hold snapshots; one that this tag holds already is no error.

    libzfs_core holds none when one is held already; beside that it may tell of some that are gone. Of those alone it
    tells in what it returns, and by an error where nothing is left to hold.
    """
    wanted = {name.encode(): tag.encode() for name in names}
    gone: list[bytes] = []
    while wanted and not gone:
        try:
            gone = lzc.lzc_hold(wanted)
        except exceptions.HoldFailure as failure:
            left = _without(wanted, failure, exceptions.HoldExists)
            if len(left) == len(wanted):
                gone = list(wanted)
            wanted = left
        else:
            wanted = {}
    if gone:
        raise exceptions.HoldFailure([exceptions.SnapshotNotFound(name) for name in gone], 0)


def release(names: list[str], tag: str) -> None:
    """Release this tag's holds; a snapshot or hold that is gone is no error."""
    lzc.lzc_release({name.encode(): [tag.encode()] for name in names})


def tagged(names: list[str], tag: str) -> list[str]:
    """Which of these snapshots this tag holds; one that is gone is held by none."""
    return [name for name in names if tag.encode() in _tags(name)]


def _tags(name: str) -> dict[bytes, int]:
    try:
        held: dict[bytes, int] = lzc.lzc_get_holds(name.encode())
    except exceptions.ZFSError as error:
        if not _is_gone(error):
            raise
        return {}
    return held


def bookmark(marks: dict[str, str]) -> None:
    """Make bookmarks, mark → snapshot; one that exists already is no error.

    libzfs_core makes none when one exists or the snapshot of one is gone, and names the bookmarks of both kinds.
    """
    wanted = _encode(marks)
    gone: list[bytes] = []
    while wanted:
        try:
            lzc.lzc_bookmark(wanted)
        except exceptions.BookmarkFailure as failure:
            left = _without(wanted, failure, exceptions.BookmarkExists)
            lost = {error.name for error in failure.errors if _is_gone(error)} & set(left)
            if len(left) == len(wanted) and not lost:
                raise
            gone += [left[name] for name in lost]
            wanted = {name: snapshot for name, snapshot in left.items() if name not in lost}
        else:
            wanted = {}
    if gone:
        raise exceptions.BookmarkFailure([exceptions.SnapshotNotFound(name) for name in gone], 0)


def destroy_bookmarks(names: list[str]) -> None:
    """Destroy bookmarks; one that is gone already is no error."""
    lzc.lzc_destroy_bookmarks([name.encode() for name in names])


def send_space(snapshot_name: str, base: str | None, flags: list[str]) -> int:
    """Estimate a stream, in bytes. ``base`` is a snapshot or bookmark of the same dataset."""
    return int(lzc.lzc_send_space(snapshot_name.encode(), base.encode() if base else None, flags))


def range_space(ranges: list[list[str]]) -> list[int]:
    """Return the bytes that destroying each range of snapshots (first, last) would free."""
    return [int(lzc.lzc_snaprange_space(first.encode(), last.encode())) for first, last in ranges]


SET_EACH = """
args = ...
refused = {}
for name, value in pairs(args["argv"]["values"]) do
    code = zfs.sync.set_prop(name, args["argv"]["property"], value)
    if code ~= 0 then
        refused[name] = code
    end
end
return refused
"""
"""A channel program (zfs-program(8)): it runs while a transaction group is written, and all it sets is in that one."""


def set_user_property(pool: str, name: str, values: dict[str, str]) -> list[str]:
    """Set a user property on datasets of a pool, on each its own value; those on which it could not be set."""
    given = {b"property": name.encode(), b"values": _encode(values)}
    told = lzc.lzc_channel_program(pool.encode(), SET_EACH.encode(), params=given)
    return [one.decode() for one in told or ()]


def settings(names: list[str]) -> dict[str, Any] | None:
    """Read what is set on each of these, without those of which that cannot be told (libzfs.py); None without
    libzfs.
    """
    if (library := _libzfs()) is None:
        return None
    found = {name: library.settings(name) for name in names}
    return {name: told for name, told in found.items() if told is not None}


@cache
def _libzfs() -> Libzfs | None:
    try:
        return Libzfs()
    except (OSError, AttributeError):
        return None


def inherit_key(name: str) -> None:
    """Mark a dataset's wrapping key as inherited from its parent's encryption root; nothing is wrapped anew."""
    lzc.lzc_change_key(name.encode(), "force_inherit")


CALLS: dict[str, Callable[..., Any]] = {
    call.__name__: call
    for call in (
        snapshot,
        destroy,
        hold,
        release,
        tagged,
        bookmark,
        destroy_bookmarks,
        send_space,
        range_space,
        settings,
        set_user_property,
        inherit_key,
        list_names,
    )
}


def _without(
    wanted: dict[bytes, bytes], failure: exceptions.ZFSError, harmless: type[exceptions.ZFSError]
) -> dict[bytes, bytes]:
    """What is left to do beside what is there already. Raises the failure where anything but that, or what is gone,

    stood in the way.
    """
    if not all(isinstance(error, harmless) or _is_gone(error) for error in failure.errors):
        raise failure
    there = {error.name for error in failure.errors if isinstance(error, harmless)}
    return {name: value for name, value in wanted.items() if name not in there}


def _is_gone(error: exceptions.ZFSError) -> bool:
    return bool(error.errno == errno.ENOENT)


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


def _failure(error: exceptions.ZFSError) -> dict[str, Any]:
    """An error as data: its own kind and words, and those of the single names it is made of."""
    return {"errors": [_described(part) for part in getattr(error, "errors", None) or [error]]}


def _described(error: exceptions.ZFSError | OSError) -> dict[str, Any]:
    name, message = (
        getattr(error, "name", "") or getattr(error, "filename", ""),
        getattr(error, "message", ""),
    )
    number = getattr(error, "errno", 0) or 0
    if isinstance(name, str) and not isinstance(message, str):
        # Of an errno that pyzfs does not know it swaps the two (_generic_exception in _error_translation.py, 2.3.9);
        # names are bytes, its own words text, and these do not say why.
        name, message = message, f"{name}: {os.strerror(number)}" if number else name
    return {
        "name": _text(name),
        "kind": type(error).__name__,
        "errno": number,
        "message": _text(message) or os.strerror(number),
    }


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201 - the answer channel
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": CALLS[request["call"]](**request["arguments"])}
        except exceptions.ZFSError as error:
            answer = _failure(error)
        except OSError as error:
            answer = {"errors": [_described(error)]}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
