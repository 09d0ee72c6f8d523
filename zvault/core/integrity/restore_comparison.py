"""What a restore gave back, held against the snapshot: which traits differ, and how that is told. Pure."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zvault.core.errors import ZvaultError
from zvault.core.integrity.verification import escape_path

NAMED_MISMATCHES = 3
"""Differences and commands that are in an error's words; the events have all of them."""

KEPT_MISMATCHES = 10_000
"""Differences kept of one restore; the others are counted."""

_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


@dataclass(frozen=True, slots=True)
class FileTraits:
    """The traits that must be the same of a file, besides its content.

    ``mode`` is st_mode, with the type; ``mtime`` is in ns.
    """

    mode: int
    uid: int
    gid: int
    size: int
    mtime: int
    device: int = 0
    link: bytes = b""
    xattrs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The type of the file, in words."""
        return _TYPES.get(stat.S_IFMT(self.mode), "unknown type")


@dataclass(frozen=True, slots=True)
class RestoreMismatch:
    """One thing that is not as in the snapshot: ``what`` of ``path`` in a dataset or folder.

    ``path`` is empty where it is the dataset's own: a property, an encryption root.
    """

    dataset: str
    path: str
    what: str
    wanted: str = ""
    found: str = ""

    def __str__(self) -> str:
        where = f"{self.dataset}: {self.path}" if self.path else self.dataset
        return describe_difference(where, self.what, self.wanted, self.found)


def describe_difference(where: str, what: str, wanted: str, found: str) -> str:
    """A difference in words: ``docs/a: mode: 0600, was 0644``."""
    if wanted:
        return f"{where}: {what}: {found or 'not there'}, was {wanted}"
    return f"{where}: {what}: {found}" if found else f"{where}: {what}"


def list_differing_traits(wanted: FileTraits, found: FileTraits) -> Iterator[tuple[str, str, str]]:
    """Yield each trait that differs, as (what, wanted, found). Of another type of file nothing else is told."""
    if wanted.type != found.type:
        yield "type", wanted.type, found.type
        return
    kind = stat.S_IFMT(wanted.mode)
    pairs = [
        ("mode", f"{stat.S_IMODE(wanted.mode):04o}", f"{stat.S_IMODE(found.mode):04o}"),
        ("owner", f"{wanted.uid}:{wanted.gid}", f"{found.uid}:{found.gid}"),
        ("modification time", _seconds(wanted.mtime), _seconds(found.mtime)),
    ]
    if kind == stat.S_IFREG:
        pairs.append(("size", str(wanted.size), str(found.size)))
    if kind == stat.S_IFLNK:
        pairs.append(("link target", escape_path(wanted.link), escape_path(found.link)))
    if kind in {stat.S_IFBLK, stat.S_IFCHR}:
        pairs.append(("device number", str(wanted.device), str(found.device)))
    yield from ((what, mine, its) for what, mine, its in pairs if mine != its)
    for name in sorted(wanted.xattrs.keys() | found.xattrs.keys()):
        mine, its = (side.xattrs.get(name) for side in (wanted, found))
        if mine != its:
            what = f"ACL {name}" if name.startswith("system.posix_acl") else f"extended attribute {name}"
            yield what, _told(mine), _told(its)


def _seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09d}"


def _told(value: bytes | None) -> str:
    return "not set" if value is None else value[:32].hex() + ("…" if len(value) > 32 else "")


@dataclass
class RestoreComparison:
    """The findings of a comparison so far. ``unread`` are datasets whose content could not be compared, with the
    reason; ``failed`` are those of them where that was not for want of a key: nothing is shown of these, and it should
    be. ``commands`` put the rest back.
    """

    datasets: int = 0
    files: int = 0
    bytes: int = 0
    differences: list[RestoreMismatch] = field(default_factory=list)
    more: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    commands: list[str] = field(default_factory=list)

    def add(self, found: Sequence[RestoreMismatch]) -> list[RestoreMismatch]:
        """Note differences; returns those that are kept of these."""
        room = max(0, KEPT_MISMATCHES - len(self.differences))
        self.differences += found[:room]
        self.more += len(found) - len(found[:room])
        return list(found[:room])

    @property
    def result(self) -> Literal["same", "differs"]:
        """``same`` or ``differs``."""
        return "differs" if self.differences or self.more else "same"


def make_uncompared_error(to: str, compared: RestoreComparison) -> ZvaultError:
    """The error for a restore of which some could not be compared, though no key is wanting."""
    names = sorted(compared.failed)
    more = f"; and {len(names) - NAMED_MISMATCHES} more" if len(names) > NAMED_MISMATCHES else ""
    count = f"{len(names)} {'dataset' if len(names) == 1 else 'datasets'}"
    error = ZvaultError(
        f"restored to {to}, but the content of {count} could not be compared with the snapshot",
        "; ".join(f"{name}: {compared.unread[name]}" for name in names[:NAMED_MISMATCHES]) + more,
        "see what kept it from being read, and restore again, or compare by hand; the vault's snapshot is unchanged",
    )
    error.reason = "not-compared"
    return error


def make_incomplete_error(to: str, compared: RestoreComparison) -> ZvaultError:
    """The error for a restore that did not bring everything back as it was: the first differences, and what to do."""
    count = len(compared.differences) + compared.more
    told = "; ".join(str(one) for one in compared.differences[:NAMED_MISMATCHES])
    more = f"; and {count - NAMED_MISMATCHES} more" if count > NAMED_MISMATCHES else ""
    advice = (
        "; ".join(f"'{one}'" for one in compared.commands[:NAMED_MISMATCHES])
        + (
            f"; and {len(compared.commands) - NAMED_MISMATCHES} more"
            if len(compared.commands) > NAMED_MISMATCHES
            else ""
        )
        if compared.commands
        else "the warnings of the run say why, and 'restore -j' lists every path; restore those again once"
        " the cause is gone"
    )
    error = ZvaultError(
        f"restored to {to}, but {count} {'thing is' if count == 1 else 'things are'} not as in the snapshot",
        told + more,
        advice,
    )
    error.reason = "differs"
    return error
