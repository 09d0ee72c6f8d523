"""Detects when a vault's writes drift from what its profile expects during a run. Pure.

ops/diagnosis/write_watch.py takes samples during a run. If two samples in a row show the same drift, it is reported,
once in a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zvault.core.diagnosis.doctor_text import seconds
from zvault.core.units import format_size

Cause = Literal["request-size", "latency", "txg-sync", "queue"]

SMALLER = 4
"""Requests count as too small if they have less than 1/SMALLER of the size that the profile lets ZFS merge."""

ENOUGH = 4
"""The data written must fill this many requests of the expected size: little data always makes small requests."""

SLOWER = 4
"""Requests count as slow from this many times the lowest latency seen in the run."""

MORE = 2
"""Samples with up to so many times as much written are alike: with more, requests wait for each other."""

NOTICED = 0.01
"""Seconds: a faster request never counts as slow."""

LATE = 12
"""How many times zfs_txg_timeout the sync of one transaction group may take; a slow uplink needs this much."""

LONG = 120.0
"""Seconds that a write may take, queue included."""

IN_A_ROW = 2
"""Samples in a row that must show the same drift."""


@dataclass(frozen=True, slots=True)
class Sample:
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
    _best: list[Sample] = field(default_factory=list)
    _before: list[Cause] = field(default_factory=list)

    def note(self, sample: Sample) -> tuple[Cause, str] | None:
        """Judge a sample. Returns cause and warning, at most once in a run, else None."""
        found = self._drift(sample)
        self._remember(sample)
        self._before = [*self._before[-IN_A_ROW + 1 :], found[0]] if found is not None else []
        if found is None or self.told or len(self._before) < IN_A_ROW or len(set(self._before)) > 1:
            return None
        self.told = True
        cause, text = found
        return cause, f"vault {self.vault}: {text}; 'zvaultctl doctor {self.vault}' names the bottleneck"

    def _remember(self, sample: Sample) -> None:
        """Keep the samples than which none has both more written and a latency as low."""
        if sample.disk_wait is None or any(_as_good(one, sample) for one in self._best):
            return
        self._best = [*(one for one in self._best if not _as_good(sample, one)), sample]

    def _least(self, now: Sample) -> Sample | None:
        """The one with the lowest latency when not much less was written than now: requests wait for each other."""
        alike = [one for one in self._best if now.written <= MORE * one.written]
        return min(alike, key=lambda one: one.disk_wait or 0.0, default=None)

    def _drift(self, now: Sample) -> tuple[Cause, str] | None:
        merged, request, took = self.expected.merged, now.request, now.disk_wait
        if merged is not None and request is not None and request * SMALLER < merged:
            if now.written >= ENOUGH * merged:
                text = f"its requests have {format_size(int(request))} on average, although up to {format_size(merged)}"
                return "request-size", f"{text} may be merged"
        elif (before := self._least(now)) is not None and took is not None and _is_slower(now, before):
            least = seconds(before.disk_wait)
            return "latency", f"a request takes {seconds(took)}; earlier in this run it took {least}"
        if now.sync is not None and now.sync > LATE * self.expected.timeout > 0:
            text = f"the sync of one transaction group took {seconds(now.sync)}"
            return "txg-sync", f"{text}, although a new one starts every {seconds(self.expected.timeout)}"
        if now.wait is not None and now.wait > LONG:
            return "queue", f"a write takes {seconds(now.wait)}, {seconds(took)} of them on the device"
        return None


def _as_good(one: Sample, other: Sample) -> bool:
    """True if as much was written of one as of the other, with a latency as low."""
    if one.disk_wait is None or other.disk_wait is None:
        return False
    return one.written >= other.written and one.disk_wait <= other.disk_wait


def _is_slower(now: Sample, before: Sample) -> bool:
    """True if a request of about the same size takes much longer than before."""
    if before.disk_wait is None or before.request is None:
        return False
    if now.disk_wait is None or now.request is None or now.request > 2 * before.request:
        return False
    return now.disk_wait >= NOTICED and now.disk_wait >= SLOWER * before.disk_wait
