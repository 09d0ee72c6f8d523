"""In what order layers give up a request that is not answered: the lower one first. Pure.

A request that its device fails has OpenZFS suspend the pool, which can be seen, told and repaired. One that is still
out when OpenZFS's deadman looks is worse: it cannot be failed any more, and with ``zfs_deadman_failmode=panic`` the
host goes down for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

DEADMEN = {"zfs_deadman_ziotime_ms": 300.0, "zfs_deadman_synctime_ms": 600.0}
"""Seconds a request may be out before OpenZFS complains, by the parameter that says so, if nobody set it: zfs(4).

The second is for a sync of the whole pool, and then it is the requests that are out as long that are looked at
(vdev_deadman in vdev.c).
"""

SHARE = 0.9
"""The part of it that devices may take: the block layer looks at its own timeouts only now and then."""


def deadman(values: Mapping[str, str]) -> tuple[float, str]:
    """Seconds until OpenZFS's deadman looks, and the parameter that says so; ``values`` are those that are set."""
    known = {name: value for name, value in values.items() if value.isdecimal()}
    return min(
        (int(known[name]) / 1000 if name in known else default, name) for name, default in DEADMEN.items()
    )


def longest(timeout: float, connections: int) -> float:
    """Seconds until a request fails for certain.

    The kernel hands one that timed out to the next connection that lives (nbd_xmit_timeout in drivers/block/nbd.c).
    """
    return timeout * connections


def fitted(timeout: float, connections: int, deadman: float) -> float:
    """The timeout in whole seconds with which every request has failed in time; ``timeout`` itself if it will do."""
    if longest(timeout, connections) <= SHARE * deadman:
        return timeout
    return float(max(1, math.floor(SHARE * deadman / connections)))
