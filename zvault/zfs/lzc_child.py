"""The child process in which libzfs_core runs: one JSON request a line in, one JSON answer a line out.

A call into the kernel on a hung pool cannot be interrupted, so it must not run in the daemon (DESIGN invariant 7).
One long-lived child serves many calls: no fork a dataset. Names travel as text and become bytes here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import libzfs_core as lzc
from libzfs_core import exceptions


def _encode(names: dict[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in names.items()}


def snapshot(names: list[str], properties: dict[str, str]) -> None:
    """Make all snapshots at one moment, or none. They must lie in one pool."""
    lzc.lzc_snapshot([name.encode() for name in names], _encode(properties))


def destroy(names: list[str]) -> None:
    """Destroy all snapshots named, or none; one that is gone already is no error."""
    lzc.lzc_destroy_snaps([name.encode() for name in names], defer=False)


def hold(names: list[str], tag: str) -> None:
    """Hold snapshots; one that this tag holds already is no error."""
    try:
        lzc.lzc_hold({name.encode(): tag.encode() for name in names})
    except exceptions.HoldFailure as failure:
        if not all(isinstance(error, exceptions.HoldExists) for error in failure.errors):
            raise


def release(names: list[str], tag: str) -> None:
    """Release this tag's holds; a snapshot or hold that is gone is no error."""
    lzc.lzc_release({name.encode(): [tag.encode()] for name in names})


def bookmark(marks: dict[str, str]) -> None:
    """Make bookmarks, mark → snapshot; one that exists already is no error."""
    try:
        lzc.lzc_bookmark(_encode(marks))
    except exceptions.BookmarkFailure as failure:
        if not all(isinstance(error, exceptions.BookmarkExists) for error in failure.errors):
            raise


def destroy_bookmarks(names: list[str]) -> None:
    """Destroy bookmarks; one that is gone already is no error."""
    lzc.lzc_destroy_bookmarks([name.encode() for name in names])


def send_space(snapshot_name: str, base: str | None, flags: list[str]) -> int:
    """Estimate a stream, in bytes. ``base`` is a snapshot or bookmark of the same dataset."""
    return int(lzc.lzc_send_space(snapshot_name.encode(), base.encode() if base else None, flags))


CALLS: dict[str, Callable[..., Any]] = {
    call.__name__: call
    for call in (snapshot, destroy, hold, release, bookmark, destroy_bookmarks, send_space)
}


def _text(name: object) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


def _failure(error: exceptions.ZFSError) -> dict[str, Any]:
    """An error as data: its own kind and words, and those of the single names it is made of."""
    parts = getattr(error, "errors", None) or [error]
    return {
        "errors": [
            {
                "name": _text(getattr(part, "name", "") or getattr(part, "filename", "")),
                "kind": type(part).__name__,
                "errno": getattr(part, "errno", 0) or 0,
                "message": getattr(part, "message", "") or os.strerror(getattr(part, "errno", 0) or 0),
            }
            for part in parts
        ]
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
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
