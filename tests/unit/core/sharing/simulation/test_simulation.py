"""Hosts that share vaults for days or a month: one writer, bounded lag, few requests, whatever goes wrong.

Each simulation is made of its seed alone. ``ZVAULT_SEED=N`` runs the one that failed again. With ``ZVAULT_EXAMPLES``
above 1, as ``make soak`` sets it, there are 200 hosts with 50 backups each on 20 vaults for a month.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.unit.core.sharing.simulation.bucket import Troubles
from tests.unit.core.sharing.simulation.checks import bounds, longest_lags, requests, violations
from tests.unit.core.sharing.simulation.host import BOUND
from tests.unit.core.sharing.simulation.sharer import Plan
from tests.unit.core.sharing.simulation.world import DAY, HOUR, SKEW, Scenario, World

SOAK = int(os.environ.get("ZVAULT_EXAMPLES", "1")) > 1
HOURLY = Plan(HOUR, 3 * HOUR, 600.0, failing=0.01)
DAILY = Plan(DAY, 2 * DAY, HOUR, phase=7200.0, failing=0.01)
FEW = {"mail": HOURLY, "home": HOURLY, "attic": DAILY}
MANY = {f"hourly{number}": replace(HOURLY, longest=180.0) for number in range(10)} | {
    f"daily{number}": replace(DAILY, longest=300.0, phase=7200.0 + 600.0 * number) for number in range(40)
}
QUIET = Scenario(0, vaults=1, hosts=4, plans=FEW, days=4, faults=0, outages=0, troubles=Troubles(0, 0, 0))


def seeds() -> list[int]:
    """Those of the simulations: always the same ones, in the soak others each time, or the one that is asked for."""
    if "ZVAULT_SEED" in os.environ:
        return [int(os.environ["ZVAULT_SEED"])]
    return [random.randrange(1 << 32) for _ in range(30)] if SOAK else [1, 2, 3]


def well(scenario: Scenario) -> World:
    """Go through a simulation in which nothing may be wrong."""
    world = World(scenario).run()
    found = violations(world)
    assert not found, f"ZVAULT_SEED={scenario.seed}: {len(found)} wrong, such as: " + "\n".join(found[:10])
    return world


@pytest.mark.parametrize("seed", seeds())
def test_whatever_goes_wrong_one_host_writes_and_no_backup_lags(seed: int) -> None:
    world = well(Scenario(seed, vaults=2, hosts=4, plans=FEW, days=4, faults=DAY / 2))
    assert sum(world.troubles.values()) > 20
    assert all(world.writers.turns[vault] > 90 for vault in world.groups)


@pytest.mark.parametrize("seed", seeds()[:1])
def test_a_fleet_for_a_month(seed: int) -> None:
    month = Scenario(seed, vaults=20, hosts=10, plans=MANY, days=30, faults=3 * DAY)
    world = well(month if SOAK else replace(month, vaults=1, hosts=6, plans=FEW, days=10))
    assert len(world.done) == len(world.groups) * len(world.scenario.plans)


def test_a_simulation_is_made_of_its_seed_alone() -> None:
    scenario = Scenario(7, vaults=1, hosts=3, plans=FEW, days=1, faults=DAY / 4)
    one, again, other = (World(replace(scenario, seed=seed)).run() for seed in (7, 7, 8))
    assert one.done == again.done
    assert one.bucket.requests == again.bucket.requests
    assert one.done != other.done


def test_clocks_that_are_wrong_by_minutes_change_neither_runs_nor_lag() -> None:
    for skew in (0.0, SKEW):
        world = well(replace(QUIET, skew=skew, plans={"mail": replace(HOURLY, failing=0.0)}))
        (runs,) = world.done.values()
        assert len(runs) in (95, 96, 97)
        (lag,) = longest_lags(world).values()
        assert lag < 1.7 * HOUR


def test_a_host_that_skips_makes_a_request_or_two_an_hour() -> None:
    plan = {"mail": replace(HOURLY, longest=180.0, failing=0.0)}
    world = well(replace(QUIET, hosts=10, plans=plan))
    (found,) = requests(world).values()
    looks = found["Get", "note"] + found["Get", "lease"]
    hours, taking = 24 * world.scenario.days, 4 * world.writers.turns["v0"]
    assert (looks - taking) / (hours * 9) <= 2.0
    assert found["Get", "note"] <= bounds(world, "v0")["Get", "note"]


@pytest.mark.parametrize("first", [True, False])
def test_a_host_that_dies_in_a_run_is_followed_within_its_lease_and_a_minute(first: bool) -> None:
    plan = {"mail": Plan(DAY, DAY, 4 * HOUR, phase=HOUR)}
    world = World(replace(QUIET, plans=plan, days=1, skew=0.0 if first else SKEW))
    world.timeline.run(HOUR + 2 * SKEW)
    (name,) = world.writers.serving["v0"]
    died, dead = world.timeline.now, next(one for one in world.groups["v0"] if one.name == name)
    before = world.bucket.epoch("v0")
    parts = set(world.bucket.parts("v0", "mail", 1))
    assert parts
    world.die("v0", dead, 2 * DAY)
    while world.bucket.epoch("v0") == before:
        world.timeline.run(world.timeline.now + 1.0)
    assert world.timeline.now - died <= BOUND + 60.0
    world.run()
    (run,) = world.done["v0", "mail"]
    assert (run.number, run.host != name) == (1, True)
    assert not violations(world)
