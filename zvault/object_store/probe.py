"""Trying what an S3 store can do, on objects made for it, before anything is kept there. Nothing is left behind.

Each try tells what it found, also where that is bad: a store is not refused here. What a store is good for follows from
the tries alone (``judge_tries``), so that a document of one (``as_dict``) can be read by whoever was not there.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from zvault.core.policy.object_lock import LOCK_SPAN_FACTOR, ObjectLock
from zvault.core.units import format_duration
from zvault.object_store.conditions import LONG_ROUNDS, try_conditions
from zvault.object_store.interface import (
    ListedVersion,
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    Unsupported,
    join_version,
)
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_errors import KeysExpired
from zvault.object_store.s3_settings import S3Settings

MIB = 1 << 20
LARGE = 8 * MIB
"""Bytes of what speed is measured with: a segment's."""
SMALL = 4096
SMALL_PUTS = 15
DEPTHS = (1, 4, 16, 64)
"""Requests at once."""
LEVEL_SECONDS = 6.0
"""Seconds of one measurement; what is under way then is waited for."""
SLOW_SECONDS = 20.0
"""Once a measurement took so long, more at once are not tried: they would take longer."""
LOCK_SECONDS = 60.0
APART = 2.0
"""Seconds between a put and what hides it, so that a date that moves is told from one that stays."""
MAX_SKEW = 60.0
"""Seconds by which clocks may differ without being told; S3 refuses 900."""

Use = Literal["one host", "several hosts", "history", "lock", "recover"]
USES: tuple[Use, ...] = ("one host", "several hosts", "history", "lock", "recover")


@dataclass(frozen=True, slots=True)
class Try:
    """One thing that was tried. ``held`` None: it could not be told."""

    name: str
    held: bool | None
    came: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Puts or gets of LARGE bytes by ``depth`` at once, in bytes a second."""

    kind: Literal["put", "get"]
    depth: int
    rate: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a store is good for a use, and why not."""

    use: Use
    good: bool
    why: str


@dataclass(slots=True)
class ProbeReport:
    """What was found.

    ``style`` and ``region`` are those with which the store answered. ``put_seconds`` and ``get_seconds`` are medians of
    SMALL bytes. ``at`` in seconds since the epoch. ``left``: objects that could not be removed.
    """

    place: str
    at: float
    style: str = ""
    region: str = ""
    tries: list[Try] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    put_seconds: float | None = None
    get_seconds: float | None = None
    left: list[str] = field(default_factory=list)

    def add(self, name: str, held: bool | None, came: str) -> None:
        """Note what came of a try."""
        self.tries.append(Try(name, held, came))

    def verdicts(self) -> list[Verdict]:
        """What the store is good for."""
        return judge_tries(self.tries)

    def best_depth(self) -> int | None:
        """The least number of puts at once that comes within a tenth of the fastest; None where none was measured."""
        puts = [one for one in self.speeds if one.kind == "put"]
        fastest = max((one.rate for one in puts), default=0.0)
        return next((one.depth for one in puts if one.rate >= 0.9 * fastest), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "verdicts": [asdict(one) for one in self.verdicts()],
            "depth": self.best_depth(),
        }


NEEDED: dict[Use, tuple[str, ...]] = {
    "one host": (
        "answers", "clock", "overwrite", "read a part", "read the end", "list", "delete",
        "condition: If-None-Match: * where there is an object", "condition: If-Match with another ETag",
        "condition: If-Match with the right ETag", "condition: If-Match with the ETag of before",
    ),
    "several hosts": ("condition: If-None-Match by 12 at once", "condition: If-Match by 12 at once"),
    "history": (),
    "lock": ("lock", "lock kept against removal", "lock kept against shortening"),
    "recover": ("versions", "dates of hidden versions"),
}  # fmt: skip
"""The tries that each use needs beside those of one host."""


def judge_tries(tries: Sequence[Try]) -> list[Verdict]:
    """What a store is good for by what was tried, each "no" with its reason."""
    by_name = {one.name: one for one in tries}
    verdicts = []
    for use in USES:
        why = ""
        for name in dict.fromkeys([*NEEDED["one host"], *NEEDED[use]]):
            one = by_name.get(name)
            if one is None or not one.held:
                why = why or (f"{name}: {one.came}" if one is not None else f"{name}: not tried")
        verdicts.append(Verdict(use, not why, why))
    return verdicts


def probe_store(
    settings: S3Settings,
    prefix: str,
    *,
    writers: S3Settings | None = None,
    rounds: int = LONG_ROUNDS,
    speed: bool = True,
    say: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], object] = time.sleep,
) -> ProbeReport:
    """Try all of it on objects that begin with ``prefix``. Raises StoreDenied, StoreUnreachable where nothing answers.

    ``writers``: the bucket of conditional puts, where it is another one. ``speed``: whether speed is measured, by some
    hundreds of MiB.
    """
    report = ProbeReport(str(settings), time.time())
    found = find_settings(replace(settings, lock=None, connections=max(DEPTHS)), prefix)
    report.style, report.region = found.style, found.region or ""
    it = _Probe(found, f"{prefix}{uuid.uuid4().hex[:12]}/", report, sleep)
    with contextlib.ExitStack() as stack:
        stack.callback(it.clean)
        say("asking for objects, parts and listings")
        it.try_objects()
        say(f"putting under conditions, {rounds} rounds of 12 at once")
        other = it.store if writers is None else S3Store(replace(writers, lock=None, style=found.style))
        it.try_all_conditions(other, rounds)
        say("hiding a version, and looking again")
        it.try_versions()
        it.try_lock()
        if speed:
            it.measure(say)
    return report


def find_settings(settings: S3Settings, prefix: str) -> S3Settings:
    """The settings with which the store answers: as given, or else with another style or region.

    Raises the first error where it answers none of them.
    """
    first: StoreError | None = None
    for candidate in _candidates(settings):
        try:
            next(iter(S3Store(replace(candidate, read_seconds=10.0)).list(prefix)), None)
        except (StoreUnreachable, StoreDenied, ObjectDamaged) as error:
            first = first or error
            region = _region_told(error)
            if region and region != candidate.region:
                with contextlib.suppress(StoreUnreachable, StoreDenied, ObjectDamaged):
                    told = replace(candidate, region=region)
                    next(iter(S3Store(told).list(prefix)), None)
                    return told
            if isinstance(error, (KeysExpired, Unsupported)):
                break
        else:
            return candidate
    if first is None:
        raise TypeError("there is no candidate")
    raise first


def _candidates(settings: S3Settings) -> Iterator[S3Settings]:
    yield settings
    for style in ("path", "virtual"):
        if style != settings.style:
            yield replace(settings, style=style)


def _region_told(error: StoreError) -> str:
    """The region that a store says it wants, in its answer to a request that was signed for another."""
    answer = getattr(error.__cause__, "response", None) or {}
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(answer.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or "")


class _Probe:
    """One probe: its store, and the objects that it made."""

    def __init__(
        self, settings: S3Settings, prefix: str, report: ProbeReport, sleep: Callable[[float], object]
    ) -> None:
        self.settings, self.prefix, self.report, self.sleep = settings, prefix, report, sleep
        self.store = S3Store(settings)
        self.made: list[str] = []
        self.locked: tuple[str, str] | None = None

    def key(self, name: str) -> str:
        """The key of an object that is to be removed again."""
        self.made.append(self.prefix + name)
        return self.made[-1]

    def attempt(self, name: str, call: Callable[[], tuple[bool | None, str]]) -> bool:
        """Note what came of a call, also where the store failed; whether it held."""
        try:
            held, came = call()
        except StoreError as error:
            held, came = False, f"{error.what}: {error.why}"
        self.report.add(name, held, came)
        return bool(held)

    # Objects

    def try_objects(self) -> None:
        """Put, read, parts, listing, removal."""
        if not self.attempt("answers", self._put_and_read):
            return
        self.attempt("clock", self._clock)
        self.attempt("overwrite", self._overwrite)
        self.attempt("read a part", self._parts)
        self.attempt("read the end", self._end)
        self.attempt("list", self._list)
        self.attempt("delete", self._delete)
        self.attempt("refuses changed bytes", self._changed)

    def _put_and_read(self) -> tuple[bool, str]:
        key = self.key("one")
        etag = self.store.put(key, DATA)
        data, again = self.store.read(key)
        same = (data, again) == (DATA, etag)
        return same, "what is put is read, with its ETag" if same else "what is read is not what was put"

    def _clock(self) -> tuple[bool, str]:
        ahead = self.store.now() - time.time()
        if abs(ahead) <= MAX_SKEW:
            return True, "agrees with this host's"
        which = "ahead of" if ahead > 0 else "behind"
        return abs(ahead) < 600, f"the store's is {format_duration(abs(ahead))} {which} this host's"

    def _overwrite(self) -> tuple[bool, str]:
        key = self.key("one")
        self.store.put(key, DATA[::-1])
        read = self.store.read(key)[0]
        self.store.put(key, DATA)
        good = read == DATA[::-1] and self.store.read(key)[0] == DATA
        return (
            good,
            "the newest is read at once" if good else "an older object is read after the put was answered",
        )

    def _parts(self) -> tuple[bool, str]:
        key = self.key("one")
        for start, length in ((0, 10), (100, 1000), (len(DATA) - 5, 50), (len(DATA), 5), (len(DATA) + 99, 5)):
            if self.store.get(key, start, length) != DATA[start : start + length]:
                return False, f"bytes {start} to {start + length} are others"
        known = self.store.range_status(key, "bytes=0-9") == 206
        return (
            True,
            "as asked" if known else "the store sends the whole object for each part: reads take long",
        )

    def _end(self) -> tuple[bool, str]:
        key = self.key("one")
        for length in (1, 500, len(DATA), len(DATA) + 5000):
            if self.store.tail(key, length) != (DATA[max(0, len(DATA) - length) :], len(DATA)):
                return False, f"the last {length} bytes are others"
        if self.store.range_status(key, f"bytes=-{len(DATA) + 5000}") == 416:
            return True, "as asked; it answers 416 to more than there is, and zvault asks for all then"
        return True, "as asked"

    def _list(self) -> tuple[bool, str]:
        keys = [self.key(f"list/{number:02d}") for number in range(7)]
        for key in keys:
            self.store.put(key, b"x")
        paged = S3Store(self.settings, page=3)
        if [one.key for one in paged.list(f"{self.prefix}list/")] != keys:
            return False, "objects are missing, or in another order, after the first page"
        if [one.key for one in paged.list(f"{self.prefix}list/", keys[2])] != keys[3:]:
            return False, "a listing does not begin after the key that is named (start-after)"
        return True, "whole and in order, over several pages"

    def _delete(self) -> tuple[bool, str]:
        keys = [self.key(f"list/{number:02d}") for number in range(7)]
        self.store.delete(keys)
        if next(iter(self.store.list(f"{self.prefix}list/")), None) is not None:
            return False, "what was removed is listed still"
        with contextlib.suppress(ObjectMissing):
            self.store.read(keys[0])
            return False, "what was removed is read still"
        return True, "several in one request"

    def _changed(self) -> tuple[bool | None, str]:
        if self.store.refuses_changed_bytes(self.key("changed")):
            return True, "a put whose bytes changed on their way is refused"
        return False, "a put whose bytes changed on their way is taken: use https, which sees to that"

    # Conditions

    def try_all_conditions(self, store: S3Store, rounds: int) -> None:
        """Conditional puts, one after the other and at once."""
        try:
            for one in try_conditions(store, f"{self.prefix}condition", rounds):
                self.report.add(f"condition: {one.what}", one.held, one.came)
        except StoreError as error:
            self.report.add("condition", False, f"{error.what}: {error.why}")

    # Versions and locks

    def try_versions(self) -> None:
        """Whether what is hidden is kept, with its date."""
        key = self.key("version")
        first: list[ListedVersion] = []

        def kept() -> tuple[bool, str]:
            self.store.put(key, DATA)
            found = [one for one in self.store.versions(key) if one.key == key]
            if not found or found[0].version in ("", "null"):
                return False, "the bucket keeps none"
            first.append(found[0])
            return True, "the bucket keeps them"

        def dated() -> tuple[bool, str]:
            self.sleep(APART)
            self.store.delete([key])
            again = [one for one in self.store.versions(key) if one.version == first[0].version]
            if not again or self.store.read(join_version(key, first[0].version))[0] != DATA:
                return False, "a version that a delete marker hides is gone"
            moved = again[0].modified - first[0].modified
            if abs(moved) > APART / 2:
                return (
                    False,
                    f"a version gets another date when it is hidden ({format_duration(abs(moved))} off)",
                )
            return True, "they stay"

        if self.attempt("versions", kept):
            self.attempt("dates of hidden versions", dated)

    def try_lock(self) -> None:
        """Whether a locked version stays, and stays locked."""

        def enabled() -> tuple[bool | None, str]:
            found = self.store.bucket_lock().enabled
            return found, {True: "the bucket locks", False: "the bucket has no object lock"}.get(
                bool(found), ""
            ) if found is not None else "the store does not say whether the bucket locks"

        if not self.attempt("lock", enabled):
            return
        key = self.key("locked")
        store = S3Store(
            replace(self.settings, lock=ObjectLock("governance", LOCK_SECONDS / LOCK_SPAN_FACTOR))
        )
        try:
            store.put(key, DATA)
            version = next(one for one in store.versions(key) if one.key == key)
        except (StoreError, StopIteration) as error:
            self.report.add("lock kept against removal", False, f"nothing can be put with a lock: {error}")
            return
        self.locked = (key, version.version)
        refused = bool(self.store.delete_versions([version]))
        self.report.add("lock kept against removal", refused, "refused" if refused else "it was removed")
        try:
            self.store.retain(key, version.version, "governance", store.now() + 5)
        except StoreDenied:
            self.report.add("lock kept against shortening", True, "refused")
        except StoreError as error:
            self.report.add("lock kept against shortening", False, f"{error.what}: {error.why}")
        else:
            self.report.add("lock kept against shortening", False, "it was made shorter")

    # Speed

    def measure(self, say: Callable[[str], None]) -> None:
        """Latency of small objects, and speed of large ones at several depths."""
        try:
            self._measure_small()
            for kind in ("put", "get"):
                for depth in DEPTHS:
                    say(f"measuring {kind}s of 8 MiB, {depth} at once")
                    began = time.monotonic()
                    self.report.speeds.append(Speed(kind, depth, self._rate(kind, depth)))
                    if time.monotonic() - began > SLOW_SECONDS:
                        break
        except StoreError as error:
            self.report.add("speed", None, f"{error.what}: {error.why}")

    def _measure_small(self) -> None:
        puts, gets = [], []
        for number in range(SMALL_PUTS):
            key, began = self.key(f"small/{number:02d}"), time.monotonic()
            self.store.put(key, bytes(SMALL))
            between = time.monotonic()
            self.store.get(key)
            puts.append(between - began)
            gets.append(time.monotonic() - between)
        self.report.put_seconds, self.report.get_seconds = statistics.median(puts), statistics.median(gets)

    def _rate(self, kind: str, depth: int) -> float:
        """Bytes a second."""
        keys = [self.key(f"large/{number:03d}") for number in range(depth)]
        data, end = memoryview(_noise()), time.monotonic() + LEVEL_SECONDS
        began = time.monotonic()

        def work(key: str) -> int:
            moved = 0
            for _ in range(4):
                if kind == "put":
                    self.store.put(key, data)
                    moved += LARGE
                else:
                    moved += len(self.store.get(key))
                if time.monotonic() >= end:
                    break
            return moved

        with ThreadPoolExecutor(depth, "speed") as pool:
            moved = sum(pool.map(work, keys))
        return moved / max(time.monotonic() - began, 1e-6)

    def clean(self) -> None:
        """Remove all that was made; what stays is told."""
        keys = list(dict.fromkeys(self.made))
        if self.locked is not None:
            with contextlib.suppress(StoreError):
                self.store.bypass(*self.locked)
        try:
            versions = [one for one in self.store.versions(self.prefix) if one.version not in ("", "null")]
            left = self.store.delete_versions(versions) if versions else ()
            if not versions:
                self.store.delete(keys)
            self.report.left = sorted({one.key for one in left})
        except StoreError:
            with contextlib.suppress(StoreError):
                self.store.delete(keys)
            self.report.left = self._still_there(keys)

    def _still_there(self, keys: Sequence[str]) -> list[str]:
        try:
            return [one.key for one in self.store.list(self.prefix)]
        except StoreError:
            return list(keys)


DATA = bytes(range(256)) * 37
"""9,472 bytes, of which no two parts of some length are alike by chance."""


def _noise() -> bytes:
    """LARGE bytes that cannot be compressed or shared with others."""
    return os.urandom(LARGE)
