"""What a stream was ordered to be, and whether it is that: the rules of the gate (process.py). Pure.

Why each: what libzfs does with a stream (libzfs_sendrecv.c, OpenZFS 2.3). A stream that is no package is one BEGIN …
END, and ``zfs receive`` ends with it. A package (``-p``, ``-b``, ``-I``, ``-R``) goes on: ``zfs receive`` takes one
stream after another until an END comes instead of a BEGIN. Where each goes is taken from the names in the stream, what
properties it gets from the package's header; and unless that header says ``not_recursive``, ``zfs receive -F`` destroys
whatever is on the receiver and not in the header. So every record is looked at, and only one dataset has a place here.

It imports little: the gate starts anew for each stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zvault.zfs.gate import records
from zvault.zfs.gate.nvlist import BadNvlist, Nvlist, unpack_nvlist
from zvault.zfs.gate.records import (
    BEGIN,
    END,
    BadStream,
    BeginRecord,
    RecordLayout,
    StreamCutOff,
    detect_layout,
)

ANY_VALUE = -1
"""A type or a base that does not matter, because nothing is received."""

KNOWN_BEGIN_FLAGS = 0xF
"""The flags of a BEGIN that are known: DRR_FLAG_CLONE, CI_DATA, FREERECORDS, SPILL_BLOCK."""

MAX_NAME = 255
"""Bytes of a property's name, and of ``keylocation``: libzfs copies that into 256 bytes without looking."""

MAX_VALUE = 8192
"""Bytes of a user property's value (ZAP_MAXVALUELEN)."""

REFUSED_PROPERTIES = frozenset({"version", "mlslabel"})
"""Properties that 'zfs receive' cannot be told to leave out (core/replication/receive_properties.py says why each)."""

PACKAGE_KEY_PROPERTIES = frozenset({"encryption", "keyformat", "keylocation", "pbkdf2iters", "pbkdf2salt"})
"""Properties that only the raw stream of an encrypted dataset has: else what is not encrypted would be shown as if it
were.
"""


class UnexpectedStream(BadStream):
    """The stream is not what was ordered; the text says how."""


class OrderedSnapshot(NamedTuple):
    """A snapshot that the stream has to bring."""

    guid: int
    name: str


class StreamOrder(NamedTuple):
    """The order of a stream: the snapshots of one dataset, oldest first, the first of them after ``base`` (0 is none).

    ``dataset`` is its name on the sender. ``package``: it comes as one; with the dataset's ``properties``, and the raw
    ones ``raw``. ``must`` and ``may`` are feature bits; with ``clone`` it may begin a clone of the base.
    """

    dataset: str
    kind: int
    base: int
    snapshots: tuple[OrderedSnapshot, ...]
    package: bool = False
    properties: bool = False
    raw: bool = False
    must: int = 0
    may: int = 0
    clone: bool = False

    def words(self) -> list[str]:
        """The order as words of a command line."""
        numbers = (
            self.kind,
            self.base,
            self.package,
            self.properties,
            self.raw,
            self.must,
            self.may,
            self.clone,
        )
        given = ",".join(f"{int(number):x}" for number in numbers)
        return [self.dataset, given, *(f"{one.guid:x}:{one.name}" for one in self.snapshots)]

    @classmethod
    def of_words(cls, words: Sequence[str]) -> StreamOrder:
        """The reverse of ``words``."""
        dataset, given, *rest = words
        kind, base, package, properties, raw, must, may, clone = (int(one, 16) for one in given.split(","))
        cut = (word.partition(":") for word in rest)
        snapshots = tuple(OrderedSnapshot(int(guid, 16), name) for guid, _, name in cut)
        return cls(
            dataset, kind, base, snapshots, bool(package), bool(properties), bool(raw), must, may, bool(clone)
        )


class StreamCheck:
    """Holds the records of a stream against an order, one after another."""

    def __init__(self, order: StreamOrder) -> None:
        self.order = order
        self.layout: RecordLayout | None = None
        self.over = False
        self._headed = not order.package
        self._inside = False
        self._done = 0

    def record(self, record: bytes) -> tuple[bool, int]:
        """Take the next record: whether it is a BEGIN, and how many bytes come after it. Raises BadStream.

        Those of a BEGIN must be given to ``begin`` before any of it is passed on.
        """
        if self.over:
            raise UnexpectedStream("it goes on after its end")
        if self.layout is None:
            self.layout = detect_layout(record)
        kind = self.layout.kind(record)
        if (kind == BEGIN) == self._inside and kind != END:
            raise UnexpectedStream(
                "it begins again in the middle" if self._inside else "it has records out of place"
            )
        if kind == END:
            self._end()
        return kind == BEGIN, self.layout.payload(record)

    def begin(self, record: bytes, payload: bytes) -> None:
        """Check a BEGIN with what came after it. Raises BadStream."""
        assert self.layout is not None  # noqa: S101 - it has read this record
        begin = self.layout.begin(record)
        self._inside = True
        if not self._headed:
            self._header(begin, payload)
        else:
            self._substream(begin)

    def ended(self) -> None:
        """The stream is at its end: is it whole? Raises StreamCutOff."""
        if not self.over:
            raise StreamCutOff

    def _end(self) -> None:
        if self._inside and not self._headed:
            self._headed = True
        elif self._inside:
            self._done += 1
            self.over = not self.order.package
        elif not self.order.package or self._done != len(self.order.snapshots):
            raise UnexpectedStream(f"it brings {self._done} snapshots of {len(self.order.snapshots)}")
        else:
            self.over = True
        self._inside = False

    def _header(self, begin: BeginRecord, payload: bytes) -> None:
        order = self.order
        if begin.header != records.PACKAGE:
            raise UnexpectedStream("it is no package, which was ordered")
        if begin.features & ~records.SA_SPILL:
            raise UnexpectedStream(f"its package has features ({begin.features:#x}) that were not ordered")
        if begin.name != f"{order.dataset}@{order.snapshots[-1].name}":
            raise UnexpectedStream(
                f"it is of '{begin.name}', not of '{order.dataset}@{order.snapshots[-1].name}'"
            )
        if bool(payload) != order.properties:
            raise UnexpectedStream(
                "its package " + ("brings properties" if payload else "lacks the properties")
            )
        if payload:
            try:
                check_package(unpack_nvlist(payload), order)
            except BadNvlist as error:
                raise UnexpectedStream(f"the header of its package cannot be read: {error}") from None

    def _substream(self, begin: BeginRecord) -> None:
        order = self.order
        if begin.header != records.SUBSTREAM:
            raise UnexpectedStream("it is a package, which was not ordered")
        if self._done >= len(order.snapshots):
            raise UnexpectedStream(f"it brings '{begin.name}' after all that was ordered")
        wanted = order.snapshots[self._done]
        base = order.snapshots[self._done - 1].guid if self._done else order.base
        if begin.name != f"{order.dataset}@{wanted.name}":
            raise UnexpectedStream(f"it brings '{begin.name}', not '{order.dataset}@{wanted.name}'")
        if begin.to_guid != wanted.guid:
            raise UnexpectedStream(f"'{begin.name}' in it has the GUID {begin.to_guid}, not {wanted.guid}")
        if base not in {begin.from_guid, ANY_VALUE}:
            raise UnexpectedStream(f"'{begin.name}' in it starts from the GUID {begin.from_guid}, not {base}")
        if order.kind not in {begin.kind, ANY_VALUE}:
            raise UnexpectedStream(f"'{begin.name}' in it is of another type than the dataset")
        if begin.flags & ~KNOWN_BEGIN_FLAGS or (
            begin.flags & records.CLONE and not (order.clone and not self._done)
        ):
            raise UnexpectedStream(f"'{begin.name}' in it has flags ({begin.flags:#x}) that were not ordered")
        if lacking := order.must & ~begin.features:
            raise UnexpectedStream(f"'{begin.name}' in it lacks {name_features(lacking)}")
        if added := begin.features & ~(order.must | order.may):
            raise UnexpectedStream(f"'{begin.name}' in it has {name_features(added)}, which was not ordered")


_NAMES = {
    records.EMBED_DATA: "embedded blocks (-e)",
    records.LARGE_BLOCKS: "large blocks (-L)",
    records.RESUMING: "a resumed stream's mark",
    records.REDACTED: "redaction",
    records.COMPRESSED: "compressed blocks (-c)",
    records.RAW: "the mark of a raw stream (-w)",
    records.HOLDS: "holds (-h)",
}


def name_features(features: int) -> str:
    """Feature bits in words."""
    known = [words for bit, words in _NAMES.items() if features & bit]
    rest = features & ~sum(_NAMES)
    return ", ".join([*known, *([f"features {rest:#x}"] if rest else [])])


def check_package(header: Nvlist, order: StreamOrder) -> None:
    """Check the header of a package: of this dataset alone, and of nothing but the snapshots ordered.

    libzfs takes from it where to look for the datasets whose keys it changes (recv_fix_encryption_hierarchy), by the
    GUIDs of snapshots. Raises UnexpectedStream.
    """
    if header.get("not_recursive") is not True:
        raise UnexpectedStream(
            "it is a package of a dataset with all below it (zfs send -R), which was not ordered"
        )
    if "raw" in header and not order.raw:
        raise UnexpectedStream("its package is marked as raw, which was not ordered")
    listed = header.get("fss")
    if not isinstance(listed, dict) or len(listed) != 1:
        raise UnexpectedStream("its package is not of one dataset")
    (dataset,) = listed.values()
    if not isinstance(dataset, dict) or dataset.get("name") != order.dataset:
        raise UnexpectedStream("its package is of another dataset")
    snapshots = dataset.get("snaps")
    if not isinstance(snapshots, dict):
        raise UnexpectedStream("its package lists no snapshots")
    known = {one.guid for one in order.snapshots} | {order.base}
    if any(type(guid) is not int or guid not in known for guid in snapshots.values()):
        raise UnexpectedStream("its package lists snapshots that were not ordered")
    # Not ``order.raw``: 'zfs send -w' of what is not encrypted makes an ordinary stream.
    keyed = bool(order.must & records.RAW)
    _check_properties(dataset.get("props", {}), keyed=keyed)
    of_snapshots = dataset.get("snapprops", {})
    if not isinstance(of_snapshots, dict):
        raise UnexpectedStream("the properties of snapshots in its package cannot be read")
    for properties in of_snapshots.values():
        _check_properties(properties, keyed=keyed)


def _check_properties(properties: object, *, keyed: bool) -> None:
    """Of properties, which ``zfs receive`` brings into force but where it is told to leave them out
    (zfs/stream_argv.py).

    Some it cannot be told to. No honest stream brings those: ``zfs send`` takes none of them into a package. ``keyed``:
    its streams are those of an encrypted dataset, as it is on the disk.
    """
    if not isinstance(properties, dict):
        raise UnexpectedStream("the properties in its package cannot be read")
    for name, value in properties.items():
        most = MAX_NAME if name == "keylocation" else MAX_VALUE
        if len(name.encode()) > MAX_NAME or (isinstance(value, str) and len(value.encode()) > most):
            raise UnexpectedStream("a property in its package is longer than ZFS has them")
        of_whom = name.find("@")
        if of_whom >= 0 and ":" not in name[:of_whom]:
            raise UnexpectedStream(
                f"its package brings '{name[:of_whom]}@…', which would be written into the dataset"
            )
        if name in PACKAGE_KEY_PROPERTIES and not keyed:
            raise UnexpectedStream(
                f"its package brings the property '{name}', as only that of an encrypted dataset sent raw (zfs send -w)"
                " does, which was not ordered"
            )
        if name in REFUSED_PROPERTIES:
            raise UnexpectedStream(
                f"its package brings the property '{name}', which no 'zfs send' puts there"
            )
