"""Versions of OpenZFS: as they are written, and which of them zvault was tested with."""

from __future__ import annotations

import re

Version = tuple[int, ...]

NEWEST_VERSION: Version = (99,)

TESTED_VERSIONS: tuple[Version, ...] = ((2, 3), (2, 4))
"""The releases that the lab has; docs/reference/zfs-versions.md says what differs between them."""


def parse_version(text: str) -> Version:
    """``(2, 3, 9)`` of ``2.3.9-0+deb13u1``; empty where it begins with no number."""
    match = re.match(r"(?:zfs-)?([0-9]{1,9}(?:\.[0-9]{1,9})*)", text)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def format_version(version: Version) -> str:
    """Return a version for people, as "2.3.9"."""
    return ".".join(map(str, version)) or "of unknown version"


def warn_if_untested(version: Version) -> str | None:
    """Return a warning about a version that zvault was not tested with; None if it was."""
    if version[:2] in TESTED_VERSIONS:
        return None
    known = " and ".join(map(format_version, TESTED_VERSIONS))
    return (
        f"OpenZFS on this host is {format_version(version)}; zvault was tested with {known} only, and continues;"
        " its page 'OpenZFS versions' has what differs between them, 'zvaultctl verify' shows whether backups"
        " are what their sources are"
    )
