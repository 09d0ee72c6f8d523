"""Which properties of a vault's dataset come from its source, which zvault rules, and which a backup may set. Pure.

What may come in is listed (COMES_IN); all else that the vault's ZFS can set is kept out, what nobody here has heard of
too. A backup's ``receive`` table sets properties, or leaves out what the source has. Neither lets anything in: what a
vault does not take from a source (KEEP_OUT) it can only set itself. Of user properties those that steer other tools
stay out, unless the table lets them in (core/replication/steering_properties.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from zvault.core.property_selection import check_user_property
from zvault.core.replication.source_properties import COUNT_LIMITS, FIXED_PROPERTIES, SPACE_LIMITS
from zvault.core.units import parse_size

RECEIVE_RECORD_PROPERTY = "org.zvault:receive-properties"
"""User property of a vault's dataset: the names of what a backup's ``receive`` table set or left out there."""

_STORAGE = (
    "checksum",
    "copies",
    "dedup",
    "logbias",
    "primarycache",
    "redundant_metadata",
    "secondarycache",
    "sync",
)
_USE = ("devices", "exec", "nbmand", "overlay", "setuid", "snapdir", "special_small_blocks", "vscan")

_SHOWS = ("mountpoint", "sharenfs", "sharesmb", "snapdev", "volmode", "zoned")
SELINUX_PROPERTIES = ("context", "defcontext", "fscontext", "rootcontext")
"""What SELinux goes by. It cannot be inherited, so ZFS keeps nothing of what a receive leaves out, as of limits."""

KEEP_OUT = (*_SHOWS, *SELINUX_PROPERTIES, *SPACE_LIMITS, *COUNT_LIMITS, *_STORAGE, *_USE)
"""Not in force on a vault, whatever the source says: they would mount, share, show or fill it, stop its streams, give
it to a container, or decide how it keeps what is in it, which is the vault's to decide. ``zfs send -b`` gives back what
is inheritable of these; of the limits nothing is kept, so that they go on record (source_properties.py). OpenZFS has
had all of them since 0.8.
"""

VOLUME_KEEP_OUT = (
    "reservation",
    "refreservation",
    "snapdev",
    "snapshot_limit",
    *SELINUX_PROPERTIES,
    *_STORAGE,
)

_OF_CONTENTS = "it says how what is in the dataset is read, or is stored from now on: a restore needs it"

COMES_IN: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("aclinherit", "aclmode", "acltype", "atime", "compression", "direct", "dnodesize", "longname"),
            *("prefetch", "recordsize", "relatime", "volthreading", "xattr"),
        ),
        _OF_CONTENTS,
    ),
    **dict.fromkeys(
        (
            *("defaultgroupobjquota", "defaultgroupquota", "defaultprojectobjquota", "defaultprojectquota"),
            *("defaultuserobjquota", "defaultuserquota"),
        ),
        "OpenZFS 2.4: it is in the contents, as userquota@ is; to take it away would write into the dataset",
    ),
    **dict.fromkeys(
        ("casesensitivity", "normalization", "utf8only", "volblocksize", "volsize"),
        "it is part of what the dataset is, from when it is made",
    ),
    **dict.fromkeys(
        ("encryption", "keyformat", "keylocation", "pbkdf2iters"),
        "a raw stream brings it with its key; of any other stream the gate refuses it (zfs/gate/check.py)",
    ),
}
"""Native properties that may come in with a stream, each with why. What a user calls his own properties comes in too:
nothing of ZFS goes by them. zvault's own are kept out, and those that steer other tools.
"""

SET_HERE = ("canmount", "readonly")
"""Native properties that ``zfs receive`` is told to set on a filesystem: nothing of a stream is in force besides."""

UNRECEIVABLE_PROPERTIES: Mapping[str, str] = {
    "version": "it is written into the dataset, which then differs from its snapshot",
    "mlslabel": "no OpenZFS on Linux takes it",
}
"""Native properties that no honest stream brings, and that ``zfs receive`` cannot be told to leave out. The gate
refuses a package with one (zfs/gate/check.py), and one with a quota of a user, group or project (``userquota@…``).
"""


def find_unlisted(known: Collection[str]) -> tuple[str, ...]:
    """Those of the properties that some ZFS can set which nothing here lists: a later OpenZFS has more."""
    listed = {*COMES_IN, *KEEP_OUT, *VOLUME_KEEP_OUT, *SET_HERE, *UNRECEIVABLE_PROPERTIES}
    return tuple(sorted(set(known) - listed))


def find_lacking(known: Collection[str]) -> frozenset[str]:
    """Those of the properties kept out that the ZFS there has not got: FreeBSD's has "jailed" in place of "zoned",
    and refuses a receive that is to leave out what it does not know (zfs_prop_init in zcommon/zfs_prop.c).

    None where nothing is ``known``.
    """
    return frozenset({*KEEP_OUT, *VOLUME_KEEP_OUT} - set(known)) if known else frozenset()


@dataclass(frozen=True, slots=True)
class _Known:
    """A property that may be set: what its values look like, as ZFS prints them, and what that is in words."""

    values: str
    words: str
    volumes: bool = False
    size: tuple[int, int] | None = None


def _of(*values: str, volumes: bool = False) -> _Known:
    return _Known("|".join(values), ", ".join(values), volumes)


_ON_OFF = _of("on", "off")
_CACHE = _of("all", "metadata", "none", volumes=True)

SETTABLE_PROPERTIES: Mapping[str, _Known] = {
    "aclinherit": _of("discard", "noallow", "restricted", "passthrough", "passthrough-x"),
    "aclmode": _of("discard", "groupmask", "passthrough", "restricted"),
    "acltype": _of("off", "posix", "nfsv4"),
    "atime": _ON_OFF,
    "checksum": _of("on", "off", "fletcher4", "sha256", "sha512", "skein", "edonr", "blake3", volumes=True),
    "compression": _Known(
        "on|off|lz4|lzjb|zle|gzip(-[1-57-9])?|zstd(-([1-9]|1[0-9]))?|zstd-fast(-([2-9]|[1-9]0|100|500|1000))?",
        # Of the two names of one thing ZFS prints the first.
        "on, off, lz4, zstd, zstd-1 to zstd-19, zstd-fast (for -1) to zstd-fast-1000, gzip (for -6), gzip-1 to gzip-9, "
        "zle, lzjb",
        volumes=True,
    ),
    # ZFS has no room for a third copy in an encrypted dataset, and a backup may have one.
    "copies": _of("1", "2", volumes=True),
    "dedup": _Known(
        "on|off|verify|(sha256|sha512|skein|blake3)(,verify)?|edonr,verify",
        "on, off, verify, or a checksum such as sha256 or sha256,verify",
        volumes=True,
    ),
    "devices": _ON_OFF,
    "direct": _of("disabled", "standard", "always"),
    "dnodesize": _of("legacy", "auto", "1k", "2k", "4k", "8k", "16k"),
    "exec": _ON_OFF,
    "logbias": _of("latency", "throughput", volumes=True),
    "nbmand": _ON_OFF,
    "overlay": _ON_OFF,
    "prefetch": _of("none", "metadata", "all", volumes=True),
    "primarycache": _CACHE,
    "recordsize": _Known("", "a power of two from 512 to 16M", size=(512, 16 << 20)),
    "redundant_metadata": _of("all", "most", "some", "none", volumes=True),
    "relatime": _ON_OFF,
    "secondarycache": _CACHE,
    "setuid": _ON_OFF,
    "snapdir": _of("hidden", "visible"),
    "special_small_blocks": _Known("0", "0, or a power of two from 512 to 1M", size=(512, 1 << 20)),
    "sync": _of("standard", "always", "disabled", volumes=True),
    "vscan": _ON_OFF,
    "xattr": _of("off", "dir"),
}
"""Native properties that may be set: each is inherited, so that ZFS keeps what the stream brought beside what is set,
and a restore gives it back. Values are written as ZFS prints them: so one that is in force can be told.
"""

_CHANGES_CONTENTS = "the stream brings it with what is in the dataset"
_ZVAULTS = "zvault sets it: what it receives is neither mounted nor written to, and appears as no device"
_MOUNTED = "it is never taken from a source; set it on a dataset above, on the vault"
_LIMIT = "a limit of the dataset itself stops its streams; set one on a dataset above, on the vault"

RULED_PROPERTIES: Mapping[str, str] = {
    **dict.fromkeys(_SHOWS, _MOUNTED),
    **dict.fromkeys(
        SELINUX_PROPERTIES, "it is never taken from a source: labels are the vault's host's to give"
    ),
    **dict.fromkeys((*SPACE_LIMITS, *COUNT_LIMITS), _LIMIT),
    **dict.fromkeys((*FIXED_PROPERTIES, "volsize"), _CHANGES_CONTENTS),
    "keylocation": "the keys of an encrypted dataset are its source's: it is sent raw",
    "origin": "a run decides which clone a dataset is",
    **dict.fromkeys(("readonly", "canmount", "volmode"), _ZVAULTS),
}
"""Properties that zvault rules, each with why nobody else may."""

PROPERTY_ALIASES = {
    "compress": "compression",
    "recsize": "recordsize",
    "rdonly": "readonly",
    "dnsize": "dnodesize",
    "refreserv": "refreservation",
    "reserv": "reservation",
}
"""Short names that ``zfs`` takes (zfs_prop.c), of which none is taken here: the same name is to be seen everywhere."""

MOST_VALUE = 8191
"""Bytes in the value of a user property (ZAP_MAXVALUELEN less its final zero)."""


def check_receive_property(name: str, *, leave_out: bool = False) -> None:
    """Check that a backup may set a property on its vault, or leave it out there. Raises ValueError with the reason."""
    if ":" in name:
        check_user_property(name)
        return
    if name in PROPERTY_ALIASES:
        raise ValueError(f"{name!r} is short for {PROPERTY_ALIASES[name]!r}: write that")
    if name in RULED_PROPERTIES:
        raise ValueError(f"{name!r} is not a backup's to say: {RULED_PROPERTIES[name]}")
    if name not in SETTABLE_PROPERTIES:
        raise ValueError(
            f"{name!r} is no property that a backup may set; it may be "
            f"{', '.join(sorted(SETTABLE_PROPERTIES))}, or a user "
            "property, as org.example:note"
        )
    if leave_out and name in (*KEEP_OUT, *VOLUME_KEEP_OUT):
        raise ValueError(f"{name!r} is never taken from a source: there is nothing to leave out")


def normalize_receive_value(name: str, value: str) -> str:
    """A property's value as ZFS prints it (``zfs get -p``). Raises ValueError where it can have no such."""
    if ":" in name:
        if not value.isprintable() or not 0 < len(value.encode()) <= MOST_VALUE:
            raise ValueError(f"{name!r} needs a value of 1 to {MOST_VALUE} bytes on one line")
        return value
    known = SETTABLE_PROPERTIES[name]
    if known.size is not None and value != known.values:
        least, most = known.size
        try:
            size = parse_size(value)
        except ValueError:
            size = 0
        if not least <= size <= most or size & (size - 1):
            raise ValueError(f"{name!r} must be {known.words}, not {value!r}")
        return str(size)
    if not re.fullmatch(known.values, value):
        raise ValueError(f"{name!r} must be one of {known.words}, not {value!r}")
    return value


def list_excluded_properties(kind: str) -> tuple[str, ...]:
    """The native properties that no dataset of a vault takes from a stream."""
    return VOLUME_KEEP_OUT if kind == "volume" else KEEP_OUT


def _applies(name: str, kind: str) -> bool:
    return kind != "volume" or ":" in name or SETTABLE_PROPERTIES[name].volumes


@dataclass(frozen=True, slots=True)
class ReceiveProperties:
    """The properties that a backup sets on its datasets on the vault, and leaves out: checked names, values as ZFS
    prints them.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def to_set(self, kind: str) -> dict[str, str]:
        """Return the properties to set on a dataset of this kind."""
        return {name: value for name, value in self.values.items() if _applies(name, kind)}

    def to_leave_out(self, kind: str) -> tuple[str, ...]:
        """Return the properties that a dataset of this kind does not take from its source, besides
        ``list_excluded_properties``.
        """
        return tuple(name for name in self.left_out if _applies(name, kind))

    @property
    def hidden(self) -> tuple[str, ...]:
        """User properties that are left out: 'zfs get all' does not show what a stream brought of them."""
        return tuple(name for name in self.left_out if ":" in name)

    def words(self, kind: str) -> frozenset[str]:
        """All that it says of a dataset of this kind, as words of a record: ``sync`` is set, ``-atime`` is left out."""
        return frozenset((*self.to_set(kind), *(f"-{name}" for name in self.to_leave_out(kind))))


NO_RECEIVE_PROPERTIES = ReceiveProperties()


def format_property_words(words: Collection[str]) -> str:
    """The words as they go on record with a dataset."""
    return " ".join(sorted(words))


def parse_property_words(text: str) -> frozenset[str]:
    """The words on record, without what no backup may have said: a vault's host may have put it there."""
    found = []
    for word in text.split():
        name = word.removeprefix("-")
        try:
            check_receive_property(name, leave_out=word != name)
        except ValueError:
            continue
        found.append(word)
    return frozenset(found)


def list_named_properties(words: Collection[str]) -> frozenset[str]:
    """The properties that words of a record are about."""
    return frozenset(word.removeprefix("-") for word in words)


@dataclass(frozen=True, slots=True)
class PropertyChanges:
    """The changes to one dataset of a vault that make it as its backup says now.

    ``put`` is set first, with the record of all that is touched; then each of ``inherit`` is inherited, each of
    ``revert`` goes back to what the stream brought (``zfs inherit -S``), and ``final`` is the record that remains.
    """

    put: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    revert: tuple[str, ...] = ()
    noted: str = ""
    final: str = ""

    def __bool__(self) -> bool:
        return bool(self.put or self.inherit or self.revert) or self.noted != self.final


def plan_property_changes(
    wanted: ReceiveProperties, kind: str, there: Mapping[str, tuple[str, str]], noted: str
) -> PropertyChanges:
    """The changes to a dataset of this kind. ``there`` has the value and the source (zfs get(8)) of each property that
    is wanted or on record; one that is not known there is set again. ``noted`` is the record.

    What the vault's administrator set of what is left out stays: zvault takes away only what it set.
    """
    now, before = wanted.words(kind), parse_property_words(noted)
    put = {name: value for name, value in wanted.to_set(kind).items() if there.get(name) != (value, "local")}
    inherit: list[str] = []
    revert: list[str] = []

    def source(name: str) -> str:
        return there.get(name, ("", ""))[1]

    for name in wanted.to_leave_out(kind):
        if source(name) in {"", "received"} or (source(name) == "local" and name in before):
            inherit.append(name)
    for name in sorted(list_named_properties(before) - list_named_properties(now)):
        if name in list_excluded_properties(kind):
            inherit.append(name)
        elif name in before or source(name) != "local":
            revert.append(name)
    return PropertyChanges(put, tuple(inherit), tuple(revert), noted, format_property_words(now))
