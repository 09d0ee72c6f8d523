"""Properties of a vault's pool that differ from its profile, and what that costs. Pure.

zvault sets them when it makes a pool, and never on one that is there: they may be as they are on purpose. So it tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zvault.core.units import format_size

COSTS = {
    "failmode": {
        "wait": "whoever writes to it while its storage is gone waits in the kernel, and cannot be ended",
        "panic": "the kernel panics when its storage fails",
    },
    "autotrim": {
        "on": "each transaction group sends discards, and one that outlasts the device's timeout costs the device"
    },
}
"""What a value costs on storage that is slow or goes away, by property."""

NO_CACHEFILE = "none"


def describe_properties(pool: str, seen: Mapping[str, str], profile: Mapping[str, str]) -> Iterator[str]:
    """What to tell of the pool's properties ``seen``, a line each; ``profile``: those that a new pool would get."""
    for name, costs in COSTS.items():
        value = seen.get(name, "")
        better = profile.get(name, value)
        if value != better and value in costs:
            yield (
                f"pool {pool} has {name}={value}, and its profile {name}={better}: {costs[value]}."
                f" 'zpool set {name}={better} {pool}' changes it"
            )
    cachefile = seen.get("cachefile", NO_CACHEFILE)
    if cachefile != NO_CACHEFILE:
        yield (
            f"pool {pool} is in a cachefile, so the system may import it at boot beside zvault."
            f" 'zpool set cachefile=none {pool}' takes it out"
        )


def describe_growth(vault: str, pool: str, more: int) -> Iterator[str]:
    """What to tell of a vault whose devices have ``more`` bytes than its pool uses."""
    if more:
        command = f"zvaultctl vault grow {vault}"
        yield f"the storage of pool {pool} has grown: '{command}' gives the pool {format_size(more)} more"
