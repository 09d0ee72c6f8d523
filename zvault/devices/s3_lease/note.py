"""The note beside a lease, read and written: one object, put only in the place of what was read.

``python -m zvault.devices.s3_lease.note note|lease|put [--etag ETAG] -- nbdkit …``, with the argv of the device's
server, from which it takes where the store is. It prints one JSON document; ``put`` has the note on stdin. ``asked``
counts the requests by kind, also of what failed.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from zvault.core.errors import ZvaultError
from zvault.devices.s3_lease.lease_object import (
    BucketPlace,
    LeaseObjects,
    LeaseObjectStore,
    is_own_lease,
    open_lease_bucket,
)
from zvault.object_store.interface import NO_OBJECT_YET, ObjectMissing, PreconditionFailed, describe_loss

T = TypeVar("T")

LARGEST_NOTE = 1 << 20
"""Bytes that are read of one; a store that has more there has no note."""


class NoteStore:
    """The note of one device's store. Every call waits for the store, a few seconds at most, and is tried once."""

    def __init__(self, leases: LeaseObjectStore, objects: LeaseObjects, key: str) -> None:
        """``key`` is that of the note."""
        self.asked: Counter[str] = Counter()
        self.key = key
        self._objects = objects
        self._leases = leases

    @classmethod
    def of(cls, place: BucketPlace) -> NoteStore:
        """Raises ToolMissing without boto3, NotFound for a credential that is not there."""
        return cls(LeaseObjectStore(place), open_lease_bucket(place), f"{place.key}.note")

    def note(self) -> dict[str, object]:
        """The note as it is: ``data`` in base64, None where there is none; ``age`` by the store's own clock."""
        try:
            data, etag, age = self._counted("get", lambda: self._objects.read_aged(self.key))
        except ObjectMissing:
            return {"data": None, "etag": "", "age": None}
        if describe_loss(data) and not etag:
            # The store lost it, and no condition fits what is left: it has to go before another can be put.
            self._counted("delete", lambda: self._objects.delete([self.key]))
            return {"data": None, "etag": "", "age": None}
        return {"data": base64.b64encode(data[: LARGEST_NOTE + 1]).decode(), "etag": etag, "age": age}

    def lease(self) -> dict[str, object]:
        """Return who has the lease: ``lease`` is None where there is none."""
        seen = self._counted("get", self._leases.read)
        if seen is None:
            return {"lease": None, "etag": "", "age": None}
        said = seen.lease
        lease = {"host": said.host, "boot": said.boot, "bound": said.bound, "held": said.held}
        lease |= {"ours": is_own_lease(said)}
        return {"lease": lease, "etag": seen.etag, "age": seen.age}

    def put(self, data: bytes, etag: str) -> dict[str, object]:
        """Put the note in the place of the one with this ETag, "" for none; without ``etag`` it was another by now."""
        try:
            return {
                "etag": self._counted("put", lambda: self._objects.put(self.key, data, etag or NO_OBJECT_YET))
            }
        except PreconditionFailed:
            return {"etag": None}

    def _counted(self, kind: str, ask: Callable[[], T]) -> T:
        self.asked[kind] += 1
        return ask()


def main() -> int:
    parser = argparse.ArgumentParser(prog="zvault.devices.s3_lease.note")
    parser.add_argument("verb", choices=["note", "lease", "put"])
    parser.add_argument("--etag", default="")
    parser.add_argument("server", nargs="+")
    given = parser.parse_args()
    return answer_note(lambda: NoteStore.of(BucketPlace.of(given.server)), given.verb, given.etag)


def answer_note(opened: Callable[[], NoteStore], verb: str, etag: str) -> int:
    """Ask the store that is ``opened``, and print the answer."""
    asked: Counter[str] = Counter()
    try:
        store = opened()
        asked = store.asked
        answer = {"note": store.note, "lease": store.lease}.get(
            verb, lambda: store.put(sys.stdin.buffer.read(LARGEST_NOTE + 1), etag)
        )()
    except ZvaultError as error:
        told = {"kind": type(error).__name__, "what": error.what, "why": error.why, "next": error.next}
        answer = {"error": told}
    print(json.dumps({**answer, "asked": asked}))  # noqa: T201 - the answer of this program
    return 0


if __name__ == "__main__":
    sys.exit(main())
