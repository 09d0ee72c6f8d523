"""Faults that S3 servers other than Ceph were met with, by name. A new one: an attribute of HostileS3, and a row here.

``LOSSLESS`` are faults in form: whatever was put can be had, so a block store must open as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.unit.object_store.hostile_s3 import HostileS3

Fault = Callable[[HostileS3], None]


def _no_ranges(server: HostileS3) -> None:
    server.ranges = False


def _short_suffix(server: HostileS3) -> None:
    server.long_suffix = False


def _parts_as_wholes(server: HostileS3) -> None:
    server.part_status = 200


def _doctype(server: HostileS3) -> None:
    server.has_doctype = True


def _bare_etags(server: HostileS3) -> None:
    server.bare = True


def _no_conditions(server: HostileS3) -> None:
    server.conditions = False


def _races(server: HostileS3) -> None:
    server.races = True


def _no_etags_match(server: HostileS3) -> None:
    server.matches = False


UNLOCKED: Mapping[str, Fault] = {
    "s3rver: conditions are ignored": _no_conditions,
    "S3Proxy: conditions are kept one after the other, and not at once": _races,
    "some: a right If-Match is refused": _no_etags_match,
}
"""Faults with which two writers may both win, or none: no lease and no block store can be there."""

LOSSLESS: Mapping[str, Fault] = {
    "none": lambda server: None,
    "rclone: 416 to a suffix range longer than the object": _short_suffix,
    "any: no ranges at all": _no_ranges,
    "rclone: a part of an object comes with status 200": _parts_as_wholes,
    "any: listings begin with a document type": _doctype,
    "Ceph: only an unquoted ETag matches": _bare_etags,
}
