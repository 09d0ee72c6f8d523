"""A clock for tests that wait for real processes: it does not count for how long this machine stood still."""

from __future__ import annotations

import time

from zvault.devices.s3_lease.takeover import BootClock

MOST = 1.5
"""Seconds that count between two looks: a guard looks at the clock each second (``guard._rest``)."""


class Awake:
    """``now`` is the time as ``clock`` told it last."""

    def __init__(self) -> None:
        self.now, self._looked = 1000.0, time.monotonic()

    def _look(self) -> float:
        before, self._looked = self._looked, time.monotonic()
        self.now += min(self._looked - before, MOST)
        return self.now

    @property
    def clock(self) -> BootClock:
        return BootClock(self._look)
