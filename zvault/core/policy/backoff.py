"""How long to wait before a retry: the backoff of what failed. Pure: chance is passed in.

ops/run.py decides whether a run is retried, by the errors of core/errors.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

LONGEST_DELAY = 3600.0
"""Seconds: no delay doubles beyond an hour, unless its user says otherwise."""

Jitter = tuple[float, float]
"""The least and the most by which chance multiplies a delay, so that those who failed together do not come together."""

NO_JITTER: Jitter = (1.0, 1.0)
A_FIFTH: Jitter = (0.8, 1.2)
FULL_JITTER: Jitter = (0.0, 1.0)
"""Any delay up to the bound is as likely: Amazon's "Exponential Backoff and Jitter"."""


def iterate_delays(
    first: float,
    longest: float = LONGEST_DELAY,
    *,
    jitter: Jitter = NO_JITTER,
    chance: Callable[[], float] = lambda: 1.0,
) -> Iterator[float]:
    """Seconds to wait before each further try, without end: ``first``, then twice as long each time.

    ``chance`` gives numbers from 0 to 1; ``longest`` bounds a delay before its jitter.
    """
    least, most = jitter
    delay = min(first, longest)
    while True:
        yield delay * (least + (most - least) * chance())
        delay = min(2 * delay, longest)
