"""What a probe of an object store says of the number of requests to have on their way to it at once. Pure.

A measurement of the device does not see it: the block store answers writes from its journal, and gathers them into
objects of its own before it asks the store for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ENOUGH_RATE = 0.9
"""The least number at once is taken with this share of the fastest rate, as object_store/probe.py has it."""

MOST_UPLOADS = 16
"""Uploads at most: of twice as many objects, and one that is being filled, all 8 MiB are in the server's memory."""

MOST_READS = 32
"""Reads at most: nbdkit works on no more at once (NBDKIT_THREADS of devices/nbd/blockstore_server.py)."""


@dataclass(frozen=True, slots=True)
class StoreGuess:
    """The least number of 8 MiB puts and gets at once that came near the fastest rate, which is in bytes a second.

    ``at``: when it was probed, in seconds since the epoch.
    """

    at: float
    puts: int
    put_rate: float
    gets: int
    get_rate: float

    @property
    def uploads(self) -> int:
        """The number of uploads for a server whose ``uploads=`` nobody set."""
        return min(self.puts, MOST_UPLOADS)

    @property
    def reads(self) -> int:
        """The number of reads to have at the device at once."""
        return min(self.gets, MOST_READS)


def guess_from_probe(report: Mapping[str, Any]) -> StoreGuess | None:
    """What follows from a probe's document; None where it has no speeds, or is of another form."""
    try:
        speeds = [(str(one["kind"]), int(one["depth"]), float(one["rate"])) for one in report["speeds"]]
        puts, gets = _find_least("put", speeds), _find_least("get", speeds)
        at = float(report["at"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return None if puts is None or gets is None else StoreGuess(at, *puts, *gets)


def _find_least(
    kind: Literal["put", "get"], speeds: list[tuple[str, int, float]]
) -> tuple[int, float] | None:
    rates = sorted((depth, rate) for one, depth, rate in speeds if one == kind and depth > 0 and rate > 0)
    fastest = max((rate for _, rate in rates), default=0.0)
    least = next((depth for depth, rate in rates if rate >= ENOUGH_RATE * fastest), None)
    return None if least is None else (least, fastest)
