"""The timeouts of a request, layer by layer: a lower layer must give up before the one above it. Pure.

If the device fails a request, OpenZFS suspends the pool; zvault can see, report and repair that. If a request is still
in flight when OpenZFS's deadman checks, nothing can fail it any more, and with ``zfs_deadman_failmode=panic`` the host
panics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

DEADMAN_DEFAULTS = {"zfs_deadman_ziotime_ms": 300.0, "zfs_deadman_synctime_ms": 600.0}
"""Default seconds that a request may be in flight before OpenZFS's deadman acts, by module parameter: zfs(4).

The second one applies to a sync of the whole pool; then OpenZFS checks the requests that have been in flight that long
(vdev_deadman in vdev.c).
"""

DEADMAN_SHARE = 0.9
"""Share of the deadman's time that devices may use: the block layer checks its own timeouts only at intervals."""


def find_deadman(values: Mapping[str, str]) -> tuple[float, str]:
    """Seconds until OpenZFS's deadman checks, and the parameter that sets this; ``values``: parameters that are set."""
    known = {name: value for name, value in values.items() if value.isdecimal()}
    return min(
        (int(known[name]) / 1000 if name in known else default, name)
        for name, default in DEADMAN_DEFAULTS.items()
    )


def compute_longest_request(timeout: float, connections: int) -> float:
    """Seconds after which a request has certainly failed.

    After a timeout the kernel retries it on the next live connection (nbd_xmit_timeout in drivers/block/nbd.c).
    """
    return timeout * connections


def fit_timeout(timeout: float, connections: int, deadman: float) -> float:
    """The timeout with which every request fails before the deadman checks: ``timeout`` if it is short enough, else a
    shorter one in whole seconds.
    """
    if compute_longest_request(timeout, connections) <= DEADMAN_SHARE * deadman:
        return timeout
    return float(max(1, math.floor(DEADMAN_SHARE * deadman / connections)))
