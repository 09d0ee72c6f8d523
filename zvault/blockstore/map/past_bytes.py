"""How much of a bucket is there for moments of the past alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zvault.blockstore.kept_moments import KeptMoment, MomentNeeds
from zvault.blockstore.map.usage import SegmentUsage


def count_past_bytes(usage: SegmentUsage, moments: Sequence[KeptMoment]) -> int:
    """Bytes of segments that are dead, and that one of these moments needs."""
    dead = np.array(usage.dead(), np.int64)
    needed = MomentNeeds(moments).segments(dead, usage.died[dead])
    return int(usage.size[dead[needed]].sum(dtype=np.int64))
