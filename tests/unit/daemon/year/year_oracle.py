"""What each side should have, and how far it lags, read one snapshot at a time from the configuration's words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from tests.unit.daemon.year.simulated_zfs import Own, Point

BERLIN = ZoneInfo("Europe/Berlin")

PERIODS: dict[str, Callable[[datetime], str]] = {
    "hourly": lambda local: local.strftime("%Y-%m-%d %H %z"),
    "daily": lambda local: local.strftime("%Y-%m-%d"),
    "weekly": lambda local: local.strftime("%G-%V"),
    "monthly": lambda local: local.strftime("%Y-%m"),
}


@lru_cache(maxsize=1 << 16)
def _period(rule: str, creation: int) -> str:
    return PERIODS[rule](datetime.fromtimestamp(creation, BERLIN))


def _keeps(number: int, history: Sequence[Point], rules: Mapping[str, int]) -> bool:
    """Whether a rule keeps one of a dataset's snapshots, which are given in the order of their history."""
    newer = history[number + 1 :]
    if len(newer) < rules.get("last", 1):
        return True
    for rule in PERIODS.keys() & rules.keys():
        periods = {_period(rule, other.creation) for other in newer}
        if _period(rule, history[number].creation) not in periods and len(periods) < rules[rule]:
            return True
    return False


def kept(history: Sequence[Point], rules: Mapping[str, int], needed: Collection[int] = ()) -> set[int]:
    """The GUIDs of the snapshots that stay: those that a rule keeps, and those that are ``needed``."""
    stays = {point.guid for number, point in enumerate(history) if _keeps(number, history, rules)}
    return stays | {point.guid for point in history if point.guid in needed}


def in_order(history: Sequence[Point]) -> bool:
    """Whether no snapshot is dated before an older one, as they are where no clock was set back."""
    times = [point.creation for point in history]
    return times == sorted(times)


def base(source: Own, vault: Own | None) -> Point | None:
    """The newest snapshot of the source that the vault has."""
    there = {point.guid for point in vault.points.values()} if vault is not None else set()
    return max(
        (one for one in source.points.values() if one.guid in there), key=lambda one: one.txg, default=None
    )


def lag(source: Own, vault: Own | None, now: float) -> float | None:
    """Seconds since the newest snapshot of the source that is on the vault was made."""
    newest = base(source, vault)
    return now - newest.creation if newest is not None else None
