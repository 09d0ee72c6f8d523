"""How many requests and bytes a second a store may be asked for (rate limit). metered_store.py keeps to it.

Each of the three is a bucket that fills steadily and holds a second's worth. Who comes while it has anything left
goes at once and takes all he needs, so that a large object can pass a small bucket; who comes next waits until that
is paid for. Waits are given out in the order of coming, so no thread starves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BUCKET_BURST = 1.0
"""Seconds: what was not used for so long may be used at once."""


class TokenBucket:
    """``rate`` is what may be taken a second, in whatever unit. Safe for threads.

    In any T seconds at most ``rate`` * (T + BURST) passes, and the one that went last.
    """

    def __init__(self, rate: float, now: float) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} lets nothing through")
        self.rate = rate
        self._paid = now - BUCKET_BURST
        self._lock = threading.Lock()

    def take(self, amount: float, now: float) -> float:
        """Take so much; the seconds to wait before it may be used. ``now`` in seconds never goes back."""
        with self._lock:
            turn = max(self._paid, now - BUCKET_BURST)
            self._paid = turn + amount / self.rate
        return max(0.0, turn - now)

    def settle(self, amount: float, now: float) -> None:
        """Take so much more, or give it back when it is negative, without waiting: it was used already, or not."""
        with self._lock:
            self._paid = max(self._paid, now - BUCKET_BURST) + amount / self.rate


class RequestBudget:
    """Requests a second, and bytes a second ``up`` and ``down``; None: as many as there are.

    ``sleep`` waits so many seconds; one that ends early lets its caller go early. ``clock`` gives seconds that never
    go back.
    """

    def __init__(
        self,
        requests: float | None = None,
        up: float | None = None,
        down: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Raises ValueError for a rate that is not above zero."""
        self.requests, self.up, self.down = requests, up, down
        self._clock, self._sleep = clock, sleep
        now = clock()
        self._requests = None if requests is None else TokenBucket(requests, now)
        self._up = None if up is None else TokenBucket(up, now)
        self._down = None if down is None else TokenBucket(down, now)

    def take(self, requests: int, up: int | None = None, down: int | None = None) -> None:
        """Wait until so much may be used. Bytes of which it is not known how many there will be are 0, not None."""
        now = self._clock()
        wanted = ((self._requests, requests), (self._up, up), (self._down, down))
        waits = [bucket.take(amount, now) for bucket, amount in wanted if bucket and amount is not None]
        if (wait := max(waits, default=0.0)) > 0:
            self._sleep(wait)

    def settle(self, down: int) -> None:
        """Count bytes that came beyond those that were taken; negative: that did not come."""
        if self._down is not None and down:
            self._down.settle(down, self._clock())
