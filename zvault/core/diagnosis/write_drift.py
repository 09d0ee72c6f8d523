"""Whether a vault's writes are as its profile would have them, or drift from that while streams go in. Pure.

A sample is taken now and then while a run goes on (ops/drift.py). What two samples in a row say is told, once a run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zvault.core.diagnosis.doctor_text import seconds
from zvault.core.units import format_size

Cause = Literal["request-size", "latency", "txg-sync", "queue"]

SMALLER = 4
"""Requests of less than this part of what the profile lets be merged are not what it is for."""

ENOUGH = 4
"""Requests of the expected size that must have been written at least: little data makes small requests anywhere."""

SLOWER = 4
"""Times what requests took when they took least in this run."""

NOTICED = 0.01
"""Seconds: what a request has to take at least before it counts as slow."""

LATE = 12
"""Times zfs_txg_timeout that writing out one transaction group may take: a narrow uplink needs a while."""

LONG = 120.0
"""Seconds that a write may wait in all."""

IN_A_ROW = 2
"""Samples that have to say the same."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Writes since the sample before: bytes, the size of the request that one came in on average, the seconds a write
    takes with the queue and on the device alone, and the longest sync of a transaction group.
    """

    written: int
    request: float | None
    wait: float | None
    disk_wait: float | None
    sync: float | None


@dataclass(frozen=True, slots=True)
class ExpectedWrites:
    """What a vault's profile has in mind: up to how many bytes are merged (None: it does not care), and
    zfs_txg_timeout in seconds.
    """

    merged: int | None
    timeout: float


@dataclass
class DriftWatch:
    """The samples of one run, as far as they matter for the next."""

    vault: str
    expected: ExpectedWrites
    told: bool = False
    _least: Sample | None = None
    _before: list[Cause] = field(default_factory=list)

    def note(self, sample: Sample) -> tuple[Cause, str] | None:
        """Take in a sample; what is to be told of it, and why, once in a run."""
        found = self._drift(sample)
        self._remember(sample)
        self._before = [*self._before[-IN_A_ROW + 1 :], found[0]] if found is not None else []
        if found is None or self.told or len(self._before) < IN_A_ROW or len(set(self._before)) > 1:
            return None
        self.told = True
        cause, text = found
        return cause, f"vault {self.vault}: {text}; 'zvaultctl doctor {self.vault}' tells what bounds it"

    def _remember(self, sample: Sample) -> None:
        """Keep the sample in which requests took least."""
        least = self._least.disk_wait if self._least is not None else None
        if sample.disk_wait is not None and (least is None or sample.disk_wait < least):
            self._least = sample

    def _drift(self, now: Sample) -> tuple[Cause, str] | None:
        merged, request, took = self.expected.merged, now.request, now.disk_wait
        if merged is not None and request is not None and request * SMALLER < merged:
            if now.written >= ENOUGH * merged:
                told = f"its requests have {format_size(int(request))} on average, where up to {format_size(merged)}"
                return "request-size", f"{told} were to be merged"
        elif self._is_slower(now) and took is not None and self._least is not None:
            least = seconds(self._least.disk_wait)
            return "latency", f"a request takes {seconds(took)}, and took {least} earlier in this run"
        if now.sync is not None and now.sync > LATE * self.expected.timeout > 0:
            told = f"it took {seconds(now.sync)} to write out one transaction group"
            return "txg-sync", f"{told}, where one is begun every {seconds(self.expected.timeout)}"
        if now.wait is not None and now.wait > LONG:
            return "queue", f"a write takes {seconds(now.wait)}, {seconds(took)} of them on the device"
        return None

    def _is_slower(self, now: Sample) -> bool:
        """Whether a request of about the same size takes much longer than it could."""
        least = self._least
        if least is None or least.disk_wait is None or least.request is None:
            return False
        if now.disk_wait is None or now.request is None or now.request > 2 * least.request:
            return False
        return now.disk_wait >= NOTICED and now.disk_wait >= SLOWER * least.disk_wait
