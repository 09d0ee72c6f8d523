"""How long to wait before what failed is tried again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

LONGEST = 3600.0
"""Seconds: no wait doubles beyond an hour."""

SPREAD = 0.2
"""The part by which chance makes a wait longer or shorter, so that hosts that failed together do not come together."""


def waits(tries: int, first: float) -> Iterator[float]:
    """Seconds to wait before each further try: ``first``, then twice as long each time."""
    for number in range(tries):
        yield min(first * 2**number, LONGEST)


def spread(wait: float, chance: float) -> float:
    """A wait made longer or shorter; ``chance`` is between 0 and 1."""
    return wait * (1 + SPREAD * (2 * chance - 1))
