"""Detects when a vault's writes drift from what its profile expects during a run. Pure.

ops/diagnosis/write_watch.py takes samples during a run. If two samples in a row show the same drift, it is reported,
once in a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zvault.core.diagnosis.doctor_text import format_latency
from zvault.core.units import format_size

DriftCause = Literal["request-size", "latency", "txg-sync", "queue"]

SMALL_REQUEST_FACTOR = 4
"""Requests count as too small if they have less than 1/SMALLER of the size that the profile lets ZFS merge."""

ENOUGH_REQUESTS = 4
"""The data written must fill this many requests of the expected size: little data always makes small requests."""

SLOW_REQUEST_FACTOR = 4
"""Requests count as slow from this many times the lowest latency seen in the run."""

LIKE_SAMPLE_FACTOR = 2
"""Samples with up to so many times as much written are alike: with more, requests wait for each other."""

NOTICED_LATENCY = 0.01
"""Seconds: a faster request never counts as slow."""

LATE_SYNC_FACTOR = 12
"""How many times zfs_txg_timeout the sync of one transaction group may take; a slow uplink needs this much."""

LONG_WRITE = 120.0
"""Seconds that a write may take, queue included."""

IN_A_ROW = 2
"""Samples in a row that must show the same drift."""


@dataclass(frozen=True, slots=True)
class WriteSample:
    """Writes since the previous sample.

    ``written``: bytes. ``request``: average request size in bytes, averaged over the bytes. ``wait`` and ``disk_wait``:
    seconds a write takes with the queue, and on the device alone. ``sync``: seconds of the longest txg sync.
    """

    written: int
    request: float | None
    wait: float | None
    disk_wait: float | None
    sync: float | None


@dataclass(frozen=True, slots=True)
class ExpectedWrites:
    """The writes that a vault's profile expects: the largest merged request in bytes (None: no expectation), and
    zfs_txg_timeout in seconds.
    """

    merged: int | None
    timeout: float


@dataclass
class DriftWatch:
    """Judges each sample of a run by what its profile expects and by the samples before it."""

    vault: str
    expected: ExpectedWrites
    told: bool = False
    _best: list[WriteSample] = field(default_factory=list)
    _before: list[DriftCause] = field(default_factory=list)

    def note(self, sample: WriteSample) -> tuple[DriftCause, str] | None:
        """Judge a sample. Returns cause and warning, at most once in a run, else None."""
        found = self._drift(sample)
        self._remember(sample)
        self._before = [*self._before[-IN_A_ROW + 1 :], found[0]] if found is not None else []
        if found is None or self.told or len(self._before) < IN_A_ROW or len(set(self._before)) > 1:
            return None
        self.told = True
        cause, text = found
        return cause, f"vault {self.vault}: {text}; 'zvaultctl doctor {self.vault}' names the bottleneck"

    def _remember(self, sample: WriteSample) -> None:
        """Keep the samples than which none has both more written and a latency as low."""
        if sample.disk_wait is None or any(_as_good(one, sample) for one in self._best):
            return
        self._best = [*(one for one in self._best if not _as_good(sample, one)), sample]

    def _least(self, now: WriteSample) -> WriteSample | None:
        """The one with the lowest latency when not much less was written than now: requests wait for each other."""
        alike = [one for one in self._best if now.written <= LIKE_SAMPLE_FACTOR * one.written]
        return min(alike, key=lambda one: one.disk_wait or 0.0, default=None)

    def _drift(self, now: WriteSample) -> tuple[DriftCause, str] | None:
        merged, request, took = self.expected.merged, now.request, now.disk_wait
        if merged is not None and request is not None and request * SMALL_REQUEST_FACTOR < merged:
            if now.written >= ENOUGH_REQUESTS * merged:
                text = f"its requests have {format_size(int(request))} on average, although up to {format_size(merged)}"
                return "request-size", f"{text} may be merged"
        elif (before := self._least(now)) is not None and took is not None and _is_slower(now, before):
            least = format_latency(before.disk_wait)
            return "latency", f"a request takes {format_latency(took)}; earlier in this run it took {least}"
        if now.sync is not None and now.sync > LATE_SYNC_FACTOR * self.expected.timeout > 0:
            text = f"the sync of one transaction group took {format_latency(now.sync)}"
            return (
                "txg-sync",
                f"{text}, although a new one starts every {format_latency(self.expected.timeout)}",
            )
        if now.wait is not None and now.wait > LONG_WRITE:
            return (
                "queue",
                f"a write takes {format_latency(now.wait)}, {format_latency(took)} of them on the device",
            )
        return None


def _as_good(one: WriteSample, other: WriteSample) -> bool:
    """True if as much was written of one as of the other, with a latency as low."""
    if one.disk_wait is None or other.disk_wait is None:
        return False
    return one.written >= other.written and one.disk_wait <= other.disk_wait


def _is_slower(now: WriteSample, before: WriteSample) -> bool:
    """True if a request of about the same size takes much longer than before."""
    if before.disk_wait is None or before.request is None:
        return False
    if now.disk_wait is None or now.request is None or now.request > 2 * before.request:
        return False
    return now.disk_wait >= NOTICED_LATENCY and now.disk_wait >= SLOW_REQUEST_FACTOR * before.disk_wait
