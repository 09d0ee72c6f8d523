"""How much of a bucket is there for moments of the past alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zvault.blockstore.history import Moment, Needs
from zvault.blockstore.map.usage import Usage


def past_bytes(usage: Usage, moments: Sequence[Moment]) -> int:
    """Bytes of segments that are dead, and that one of these moments needs."""
    dead = np.array(usage.dead(), np.int64)
    needed = Needs(moments).segments(dead, usage.died[dead])
    return int(usage.size[dead[needed]].sum(dtype=np.int64))
