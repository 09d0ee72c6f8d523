"""What is compared to prove a backup, in which order, and what came of it. Pure.

A file is known by its object number, which ``zfs send`` preserves. Each file, and each piece of a large one, has a key:
a hash of that number, seeded by the snapshot, so that neighbours on the disk have keys far apart. A sample is a range
of keys, and the next sample begins where it ended: once the ranges have covered all keys, everything was read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from zvault.core.dates import reject_future
from zvault.core.errors import ZvaultError
from zvault.core.units import format_duration, is_number

ProofLevel = Literal["guids", "sample", "full", "drill"]
PROOF_LEVELS: tuple[ProofLevel, ...] = get_args(ProofLevel)

ProofResult = Literal["ok", "differs", "nothing"]
"""How a verification ends: all that was compared is the same, something differs, nothing could be compared."""

VERIFIED_PREFIX = "org.zvault:verified-"
"""What the names of the vault's user properties begin with that hold proofs; the level follows."""

DRILLED_PROPERTY = "org.zvault:drilled"
"""User property of a vault's dataset: when a drill of it last passed, in seconds since the epoch."""

KEY_SPACE = 65521
"""Number of keys, which wrap around: a prime, so that hashing is one to one; its square is exact in awk's numbers."""

HASHED_PIECE = 64 << 20
"""Bytes of a large file, or of a volume, that are hashed together and have a key of their own."""

LEAST_FILES = 100
"""About so many files of a dataset are in a sample at least: one percent of ten files would be nothing."""

_STRIDE = 28657
"""Distance between the keys of one piece of a file and the next."""


@dataclass(frozen=True, slots=True)
class KeySpread:
    """Spreads a dataset's objects over the key space, by a seed that comes from its snapshot."""

    factor: int
    shift: int

    @classmethod
    def of(cls, seed: int) -> KeySpread:
        """Build it from a seed, such as a GUID."""
        return cls(1 + seed % (KEY_SPACE - 1), (seed >> 17) % KEY_SPACE)

    def key(self, number: int, piece: int = 0) -> int:
        """The key of an object's piece."""
        return ((number % KEY_SPACE) * self.factor + self.shift + piece * _STRIDE) % KEY_SPACE


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of keys: ``length`` of them from ``start`` on, wrapping around."""

    start: int = 0
    length: int = KEY_SPACE

    def has(self, key: int) -> bool:
        """True if a key is in it."""
        return (key - self.start) % KEY_SPACE < self.length

    @property
    def end(self) -> int:
        """The key at which the next range begins."""
        return (self.start + self.length) % KEY_SPACE

    def parts(self, count: int) -> Iterator[KeyRange]:
        """The same in about ``count`` ranges of equal length."""
        size = max(1, -(-self.length // max(1, count)))
        for offset in range(0, self.length, size):
            yield KeyRange((self.start + offset) % KEY_SPACE, min(size, self.length - offset))


def select_sample_keys(start: int, share: float, *, files: int, bytes_: int, budget: int | None) -> KeyRange:
    """The keys of a sample: ``share`` of everything, LEAST_FILES at least, but no more bytes than the budget has."""
    part = max(share, min(1.0, LEAST_FILES / max(1, files)))
    if budget is not None and bytes_ > 0:
        part = min(part, budget / bytes_)
    return KeyRange(start % KEY_SPACE, min(KEY_SPACE, max(1, round(part * KEY_SPACE))))


@dataclass(frozen=True, slots=True)
class TreeEntry:
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
        """The traits that must be the same on both sides besides contents, in words."""
        size = f"{self.size} bytes" if self.kind == "f" else ""
        link = f"to {escape_path(self.link)}" if self.kind == "l" else ""
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
class ContentRange:
    """A file (``length`` None), or ``length`` bytes of it from ``offset`` on. ``size`` is how much is read.

    A volume's have an empty path.
    """

    path: bytes
    size: int
    offset: int = 0
    length: int | None = None

    def __str__(self) -> str:
        where = f"bytes {self.offset} to {self.offset + self.size}" if self.length is not None else ""
        return ", ".join(filter(None, (escape_path(self.path), where)))


def select_content_ranges(
    entries: Sequence[TreeEntry], mix: KeySpread, keys: KeyRange
) -> Iterator[ContentRange]:
    """Tell the ranges to hash of the files listed: first small ones, whole; then of large ones the pieces in the range
    of keys, one by one: a file that is one hole may have a size of 8 EiB, and a list of its pieces had no end.
    """
    files = [entry for entry in entries if entry.kind == "f"]
    for entry in files:
        if entry.size <= HASHED_PIECE and keys.has(mix.key(entry.number)):
            yield ContentRange(entry.path, entry.size)
    for entry in files:
        if entry.size > HASHED_PIECE:
            yield from cut_content_ranges(entry.path, entry.size, mix, keys, entry.number)


def cut_content_ranges(
    path: bytes, size: int, mix: KeySpread, keys: KeyRange, number: int = 0
) -> Iterator[ContentRange]:
    """The pieces of a large file, or of a volume, that are in the range of keys."""
    for index in range(-(-size // HASHED_PIECE)):
        if keys.has(mix.key(number, index)):
            at = index * HASHED_PIECE
            yield ContentRange(path, min(HASHED_PIECE, size - at), at, HASHED_PIECE)


@dataclass(frozen=True, slots=True)
class ContentDifference:
    """Something that is not the same on both sides: where, and what either has (None: it cannot be read there)."""

    dataset: str
    path: str
    source: str | None
    vault: str | None

    def __str__(self) -> str:
        here, there = (side or "cannot be read" for side in (self.source, self.vault))
        return f"{self.dataset}: {self.path}: source {here}, vault {there}"


def list_hash_differences(
    dataset: str,
    wanted: Sequence[ContentRange],
    source: Mapping[ContentRange, str],
    vault: Mapping[ContentRange, str],
) -> list[ContentDifference]:
    """The pieces whose hashes are not the same, or that could not be read."""
    return [
        ContentDifference(dataset, str(one), source.get(one), vault.get(one))
        for one in wanted
        if source.get(one) is None or source.get(one) != vault.get(one)
    ]


def list_trait_differences(
    dataset: str, source: Sequence[TreeEntry], vault: Sequence[TreeEntry]
) -> list[ContentDifference]:
    """Return the entries that are listed on one side only, or with other traits."""
    here, there = ({one.path: one for one in side} for side in (source, vault))
    found = []
    for path in sorted(here.keys() | there.keys()):
        one, other = here.get(path), there.get(path)
        mine, its = (", ".join(side.traits()) if side else "nothing" for side in (one, other))
        if mine != its:
            found.append(ContentDifference(dataset, escape_path(path), mine, its))
    return found


def escape_path(path: bytes) -> str:
    """A name of any bytes as text on one line, other for each name: ``a\\nb``, ``\\xff``, ``back\\\\slash``."""
    return "".join(_shown(char) for char in path.decode(errors="surrogateescape"))


def _shown(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    if "\x80" <= char <= "\xff" and not char.isprintable():  # repr() would write it as the byte
        return f"\\u{ord(char):04x}"
    return char if char.isprintable() and char != "\\" else repr(char)[1:-1]


@dataclass(frozen=True, slots=True)
class LevelProof:
    """The standing of a level: when it last passed and was last tried, in seconds since the epoch, and how that went.

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

    def after(self, now: float, result: str, at: int | None = None) -> LevelProof:
        """The same after another try. Dates later than now, which say nothing, are forgotten: their day would come."""
        kept = self.proven if reject_future(self.proven, now) is not None else None
        proven = int(now) if result == "ok" else kept
        since = self.since if reject_future(self.since, now) is not None else int(now)
        return LevelProof(proven, int(now), result, self.at if at is None else at, since)


def parse_proof(text: str) -> LevelProof:
    """A proof as it was written; what cannot be read counts as not there."""
    words = dict(word.split("=", 1) for word in text.split() if "=" in word)

    def number(key: str) -> int | None:
        return int(words[key]) if is_number(words.get(key, "")) else None

    at = (number("at") or 0) % KEY_SPACE
    return LevelProof(number("proven"), number("tried"), words.get("result", ""), at, number("since"))


def measure_overdue(proof: LevelProof, every: float | None, since: float, now: float) -> float | None:
    """Seconds by which a level is overdue, below zero if it is not due yet; None where it is never due.

    It counts from the last try; one that was never tried is due ``every`` after ``since``, when the backup began.
    """
    if every is None:
        return None
    # A clock may have been wrong: a date later than now says nothing. Where there is no other, it is due.
    last = reject_future(proof.tried if proof.tried is not None else since, now)
    return 0.0 if last is None else now - last - every


@dataclass
class VerificationFindings:
    """The findings of a verification so far. ``unproven`` are datasets of which nothing could be said, with the
    reason; ``vault_seconds``: the time for which the vault's ``bytes`` were read.
    """

    datasets: int = 0
    files: int = 0
    bytes: int = 0
    vault_seconds: float = 0.0
    differences: list[ContentDifference] = field(default_factory=list)
    more: int = 0
    unproven: dict[str, str] = field(default_factory=dict)

    def add(self, found: Sequence[ContentDifference], most: int = 100) -> list[ContentDifference]:
        """Note differences; no more than ``most`` are kept, the others are counted. Returns those kept of these."""
        room = max(0, most - len(self.differences))
        self.differences += found[:room]
        self.more += max(0, len(found) - room)
        return list(found[:room])

    @property
    def result(self) -> ProofResult:
        """``differs``; ``ok``; or ``nothing`` where there was nothing that could be compared."""
        if self.differences:
            return "differs"
        return "ok" if self.datasets else "nothing"


def make_mismatch_error(
    backup: str, vault: str, level: ProofLevel, found: VerificationFindings
) -> ZvaultError:
    """The error for what differs: it names the first, both hashes, and what to do."""
    count = len(found.differences) + found.more
    told = "; ".join(str(one) for one in found.differences[:3])
    more = f"; and {count - 3} more" if count > 3 else ""
    error = ZvaultError(
        f"verification ({level}) of backup '{backup}' found {count} {'difference' if count == 1 else 'differences'}",
        told + more,
        f"look for damage: 'zpool status' on both hosts counts errors, 'zvaultctl scrub {vault}'. Do not prune"
        f" '{backup}' until it is clear which side is right: compare the file by hand in both snapshots"
        " ('zvaultctl find')",
    )
    error.reason = "differs"
    return error


def describe_proof_age(proven: float | None, now: float) -> str:
    """``last proven 3d 2h ago``, or that it never was."""
    if proven is None:
        return "never proven"
    at = reject_future(proven, now)
    return (
        "last proven at a time later than now"
        if at is None
        else f"last proven {format_duration(now - at)} ago"
    )
