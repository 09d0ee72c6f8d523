"""How many random cases a property test takes: a part of its number in an ordinary run, many times it in ``make soak``.

``ZVAULT_EXAMPLES`` is by what the number that stands at each test is multiplied; without it an ordinary run takes half
of it, but no fewer than ``FEW``, which are too few to leave some out.
"""

from __future__ import annotations

import os

EXAMPLES = int(os.environ.get("ZVAULT_EXAMPLES", "0"))
"""0 in an ordinary run."""

FEW = 40
USUAL = 100
"""Of a test at which no number stands."""


def cases(number: int) -> int:
    """How many this run takes of a test that has this number."""
    return number * EXAMPLES if EXAMPLES else max(min(number, FEW), number // 2)


def same_cases(number: int) -> int:
    """The same for a test whose cases are always the same: there are no more than its number."""
    return min(number, cases(number))
