"""What must hold at the end of a simulation, whatever went wrong in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.unit.core.sharing.simulation.host import BOUND, RENEWALS
from tests.unit.core.sharing.simulation.sharer import AGAIN
from tests.unit.core.sharing.simulation.world import DAY, HOUR, TAKEOVER, World
from zvault.core.sharing.run_decision import compute_beat

TROUBLE = 15
"""Requests that one trouble of a host may cost besides: it asks again, waits for the other host, comes back."""
SLACK = 1.1
"""Requests and answers are lost, and made again."""


def violations(world: World) -> list[str]:
    """All that was wrong; nothing where all is well."""
    return [*world.wrong, *world.writers.wrong, *_lags(world), *_requests(world)]


def longest_lags(world: World) -> dict[tuple[str, str], float]:
    """For each vault and backup, the largest lag it ever had, less the time that the store was out of reach."""
    longest = {}
    end = world.scenario.days * DAY
    for vault in world.groups:
        for name, plan in world.scenario.plans.items():
            covered, most = plan.phase, 0.0
            for run in world.done.get((vault, name), []):
                most = max(most, run.at - covered - _out(world, covered, run.at))
                covered = max(covered, run.began)
            longest[vault, name] = max(most, end - covered - _out(world, covered, end))
    return longest


def requests(world: World) -> dict[str, Counter[tuple[str, str]]]:
    """For each vault, what was asked of the store, and how often."""
    found: dict[str, Counter[tuple[str, str]]] = {vault: Counter() for vault in world.groups}
    for (vault, verb, what), count in world.bucket.requests.items():
        found[vault][verb, what] += count
    return found


def bounds(world: World, vault: str) -> dict[tuple[str, str], float]:
    """How many requests there may be for one vault: what docs/explanation/several-hosts.md states."""
    scenario, writers = world.scenario, world.writers
    days, hosts = scenario.days, len(world.groups[vault])
    due = {(plan.period, plan.phase) for plan in scenario.plans.values()}
    moments = sum(days * DAY / period + 1 for period, _ in due)
    runs = sum(len(world.done.get((vault, name), [])) for name in scenario.plans) * (
        1 + 2 * max(plan.failing for plan in scenario.plans.values())
    )
    held, turns = writers.held[vault], writers.turns[vault]
    out = sum(long for _, long in world.outages) / AGAIN * hosts
    trouble = TROUBLE * sum(world.troubles.values()) / len(world.groups) + out + 20
    looks = hosts * (2 * moments + held / BOUND) + turns
    return {
        ("Get", "note"): SLACK * looks + trouble,
        ("Get", "lease"): SLACK * (hosts * held / BOUND + 3 * turns) + trouble,
        ("Put", "lease"): SLACK * (held / (BOUND / RENEWALS) + 3 * turns) + trouble,
        ("Put", "note"): SLACK * (2 * runs + turns + held / compute_beat(BOUND)) + trouble,
        ("Get", "epoch"): SLACK * (runs + turns) + trouble,
        ("Put", "epoch"): SLACK * turns + trouble,
    }


def _lags(world: World) -> Iterator[str]:
    for (vault, name), lag in longest_lags(world).items():
        most = world.scenario.plans[name].max_lag + TAKEOVER
        if lag > most:
            yield f"{name} on {vault} lagged {lag / HOUR:.2f} hours, more than {most / HOUR:.2f}"


def _requests(world: World) -> Iterator[str]:
    for vault, found in requests(world).items():
        allowed = bounds(world, vault)
        for what, count in found.items():
            if count > allowed[what]:
                yield f"{' '.join(what)} of {vault} was asked {count} times, more than {allowed[what]:.0f}"


def _out(world: World, start: float, end: float) -> float:
    """Seconds between two times in which the store answered nobody."""
    return sum(max(0.0, min(end, at + long) - max(start, at)) for at, long in world.outages)
