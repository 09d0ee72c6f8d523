"""What is compared to prove a backup, in which order, and what came of it. Pure.

A file is known by its object number, which ``zfs send`` preserves. Each file, and each piece of a large one, has a
place on a ring: mixed by a key of its dataset's, so that neighbours on the disk are strangers on the ring. A sample is
an arc of it, and the next one begins where it ended: after a full turn everything was read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from zvault.core.errors import ZvaultError
from zvault.core.units import format_duration

Rung = Literal["guids", "sample", "full", "drill"]
RUNGS: tuple[Rung, ...] = get_args(Rung)

VERIFIED = "org.zvault:verified-"
"""What the names of the vault's user properties begin with that hold proofs; the rung follows."""

DRILLED = "org.zvault:drilled"
"""User property of a vault's dataset: when a drill of it last passed, in seconds since the epoch."""

RING = 65521
"""Places on the ring: a prime, so that the mixing is one to one; its square is exact in an awk's numbers."""

PIECE = 64 << 20
"""Bytes of a large file, or of a volume, that are hashed together and have a place of their own."""

LEAST_FILES = 100
"""About so many files of a dataset are in a sample at least: one percent of ten files would be nothing."""

_STRIDE = 28657
"""What the next piece of a file is further on the ring."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How a dataset's objects are spread over the ring: by its snapshot's key."""

    factor: int
    shift: int

    @classmethod
    def of(cls, key: int) -> Mix:
        """The one for a key, such as a GUID."""
        return cls(1 + key % (RING - 1), (key >> 17) % RING)

    def place(self, number: int, piece: int = 0) -> int:
        """Where an object's piece stands."""
        return ((number % RING) * self.factor + self.shift + piece * _STRIDE) % RING


@dataclass(frozen=True, slots=True)
class Arc:
    """A part of the ring: ``length`` places from ``start`` on."""

    start: int = 0
    length: int = RING

    def has(self, place: int) -> bool:
        """Whether a place is on it."""
        return (place - self.start) % RING < self.length

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return (self.start + self.length) % RING

    def parts(self, count: int) -> Iterator[Arc]:
        """The same in about ``count`` arcs of equal length."""
        size = max(1, -(-self.length // max(1, count)))
        for offset in range(0, self.length, size):
            yield Arc((self.start + offset) % RING, min(size, self.length - offset))


def sampled(start: int, share: float, *, files: int, bytes_: int, budget: int | None) -> Arc:
    """The arc of a sample: ``share`` of everything, LEAST_FILES at least, but no more bytes than the budget has."""
    part = max(share, min(1.0, LEAST_FILES / max(1, files)))
    if budget is not None and bytes_ > 0:
        part = min(part, budget / bytes_)
    return Arc(start % RING, min(RING, max(1, round(part * RING))))


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link of a snapshot: ``kind`` is find's letter for it, ``mtime`` is in seconds, as text."""

    number: int
    kind: str
    mode: str
    owner: str
    size: int
    mtime: str
    path: bytes
    link: bytes = b""

    def traits(self) -> tuple[str, ...]:
        """What must be the same on both sides besides contents, in words."""
        size = f"{self.size} bytes" if self.kind == "f" else ""
        link = f"to {shown(self.link)}" if self.kind == "l" else ""
        return tuple(
            filter(None, (_KINDS.get(self.kind, self.kind), f"mode {self.mode}", self.owner, size, link))
        )


_KINDS = {
    "f": "a file",
    "d": "a folder",
    "l": "a link",
    "p": "a pipe",
    "s": "a socket",
    "b": "a block device",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A file (``length`` None), or ``length`` bytes of it from ``offset`` on. ``size`` is how much is read.

    A volume's have an empty path.
    """

    path: bytes
    size: int
    offset: int = 0
    length: int | None = None

    def __str__(self) -> str:
        where = f"bytes {self.offset} to {self.offset + self.size}" if self.length is not None else ""
        return ", ".join(filter(None, (shown(self.path), where)))


def pieces(entries: Sequence[Entry], mix: Mix, arc: Arc) -> list[Piece]:
    """What is to be hashed of the files listed: small ones whole, of large ones the pieces that are on the arc."""
    found: list[Piece] = []
    for entry in entries:
        if entry.kind != "f":
            continue
        if entry.size <= PIECE:
            if arc.has(mix.place(entry.number)):
                found.append(Piece(entry.path, entry.size))
            continue
        found += cut(entry.path, entry.size, mix, arc, entry.number)
    return found


def cut(path: bytes, size: int, mix: Mix, arc: Arc, number: int = 0) -> list[Piece]:
    """The pieces of a large file, or of a volume, that are on the arc."""
    return [
        Piece(path, min(PIECE, size - index * PIECE), index * PIECE, PIECE)
        for index in range(-(-size // PIECE))
        if arc.has(mix.place(number, index))
    ]


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not the same on both sides: where, and what either has (None: it cannot be read there)."""

    dataset: str
    path: str
    source: str | None
    vault: str | None

    def __str__(self) -> str:
        here, there = (side or "cannot be read" for side in (self.source, self.vault))
        return f"{self.dataset}: {self.path}: source {here}, vault {there}"


def differing(
    dataset: str, wanted: Sequence[Piece], source: Mapping[Piece, str], vault: Mapping[Piece, str]
) -> list[Difference]:
    """The pieces whose hashes are not the same, or that could not be read."""
    return [
        Difference(dataset, str(one), source.get(one), vault.get(one))
        for one in wanted
        if source.get(one) is None or source.get(one) != vault.get(one)
    ]


def unlike(dataset: str, source: Sequence[Entry], vault: Sequence[Entry]) -> list[Difference]:
    """What is listed on one side only, or with other traits."""
    here, there = ({one.path: one for one in side} for side in (source, vault))
    found = []
    for path in sorted(here.keys() | there.keys()):
        one, other = here.get(path), there.get(path)
        mine, its = (", ".join(side.traits()) if side else "nothing" for side in (one, other))
        if mine != its:
            found.append(Difference(dataset, shown(path), mine, its))
    return found


def shown(path: bytes) -> str:
    """A name of any bytes as text on one line, other for each name: ``a\\nb``, ``\\xff``, ``back\\\\slash``."""
    return "".join(_shown(char) for char in path.decode(errors="surrogateescape"))


def _shown(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char if char.isprintable() and char != "\\" else repr(char)[1:-1]


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a rung: when it last passed and was last tried, in seconds since the epoch, and how that went.

    ``at`` is where the next sample begins, ``since`` when the first was written. It is kept on the vault as text,
    ``proven=1 tried=2 result=ok at=3``.
    """

    proven: int | None = None
    tried: int | None = None
    result: str = ""
    at: int = 0
    since: int | None = None

    def __str__(self) -> str:
        known = {
            "proven": self.proven,
            "tried": self.tried,
            "result": self.result or None,
            "at": self.at or None,
            "since": self.since,
        }
        return " ".join(f"{key}={value}" for key, value in known.items() if value is not None)

    def after(self, now: float, result: str, at: int | None = None) -> Proof:
        """The same after another try."""
        proven = int(now) if result == "ok" else self.proven
        since = int(now) if self.since is None else self.since
        return Proof(proven, int(now), result, self.at if at is None else at, since)


def parse_proof(text: str) -> Proof:
    """A proof as it was written; what cannot be read counts as not there."""
    words = dict(word.split("=", 1) for word in text.split() if "=" in word)

    def number(key: str) -> int | None:
        return int(words[key]) if words.get(key, "").isdecimal() else None

    at = (number("at") or 0) % RING
    return Proof(number("proven"), number("tried"), words.get("result", ""), at, number("since"))


def due(proof: Proof, every: float | None, since: float, now: float) -> float | None:
    """Seconds by which a rung is overdue, below zero if it is not due yet; None where it is never due.

    It counts from the last try; one that was never tried is due ``every`` after ``since``, when the backup began.
    """
    if every is None:
        return None
    last = proof.tried if proof.tried is not None else since
    # The clock may have been set back: a try in the future says nothing.
    return now - min(last, now) - every


@dataclass
class Findings:
    """What a verification found so far. ``unproven`` are datasets of which nothing could be said, with the reason."""

    datasets: int = 0
    files: int = 0
    bytes: int = 0
    differences: list[Difference] = field(default_factory=list)
    more: int = 0
    unproven: dict[str, str] = field(default_factory=dict)

    def add(self, found: Sequence[Difference], most: int = 100) -> list[Difference]:
        """Note differences; no more than ``most`` are kept, the others are counted. Returns those kept of these."""
        room = max(0, most - len(self.differences))
        self.differences += found[:room]
        self.more += max(0, len(found) - room)
        return list(found[:room])

    @property
    def result(self) -> str:
        """``differs``; ``ok``; or ``nothing`` where there was nothing that could be compared."""
        if self.differences:
            return "differs"
        return "ok" if self.datasets else "nothing"


def mismatch(backup: str, vault: str, rung: Rung, found: Findings) -> ZvaultError:
    """The error for what differs: it names the first, both hashes, and what to do."""
    count = len(found.differences) + found.more
    told = "; ".join(str(one) for one in found.differences[:3])
    more = f"; and {count - 3} more" if count > 3 else ""
    error = ZvaultError(
        f"verification ({rung}) of backup '{backup}' found {count} {'difference' if count == 1 else 'differences'}",
        told + more,
        f"look for damage: 'zpool status -v' on both hosts, 'zvaultctl scrub {vault}'. Do not prune '{backup}' until it"
        " is clear which side is right: compare the file by hand in both snapshots ('zvaultctl find')",
    )
    error.reason = "differs"
    return error


def aged(proven: float | None, now: float) -> str:
    """``last proven 3d 2h ago``, or that it never was."""
    return "never proven" if proven is None else f"last proven {format_duration(max(0.0, now - proven))} ago"
