"""Hosts that share vaults for days or a month: one writer, bounded lag, few requests, whatever goes wrong.

Each simulation is made of its seed alone. ``ZVAULT_SEED=N`` runs the one that failed again. With ``ZVAULT_EXAMPLES``
above 1, as ``make soak`` sets it, there are 200 hosts with 50 backups each on 20 vaults for a month.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.unit.core.sharing.simulation.bucket import Troubles
from tests.unit.core.sharing.simulation.checks import bounds, longest_lags, requests, violations
from tests.unit.core.sharing.simulation.host import BOUND, Machine
from tests.unit.core.sharing.simulation.sharer import CLEAN_UP, Plan
from tests.unit.core.sharing.simulation.world import DAY, HOUR, SKEW, Scenario, World
from zvault.core.sharing.election import ElectionState

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


@pytest.mark.parametrize("broken", [(2,), (0,), (0, 1, 2)])
def test_hosts_that_always_fail_keep_no_other_from_its_runs_after_the_source_was_away(
    broken: tuple[int, ...],
) -> None:
    plans, hosts = {"mail": replace(HOURLY, failing=0.0)}, max(3, len(broken) + 1)
    world = World(replace(QUIET, hosts=hosts, plans=plans, skew=0.0))
    world.timeline.run(10 * HOUR)
    for number, machine in enumerate(world.groups["v0"]):
        machine.failing_until = math.inf if number in broken else 11.5 * HOUR
    world.run()
    (runs,) = world.done.values()
    ends = [run.at for run in runs if run.at > 12 * HOUR]
    assert ends, "no host made a run any more"
    assert max(later - one for one, later in pairwise([11.5 * HOUR, *ends, 96 * HOUR])) < 3 * HOUR
    assert not world.writers.wrong


def test_a_host_that_skips_makes_a_request_or_two_an_hour() -> None:
    plan = {"mail": replace(HOURLY, longest=180.0, failing=0.0)}
    world = well(replace(QUIET, hosts=10, plans=plan))
    (found,) = requests(world).values()
    looks = found["Get", "note"] + found["Get", "lease"]
    hours, taking = 24 * world.scenario.days, 4 * world.writers.turns["v0"]
    assert (looks - taking) / (hours * 9) <= 2.0
    assert found["Get", "note"] <= bounds(world, "v0")["Get", "note"]


def test_of_many_hosts_that_ask_at_the_same_moment_one_gets_the_vault() -> None:
    """Their clocks agree, and there are so many of them that they ask before they can see what others wrote."""
    plans = {"mail": replace(HOURLY, longest=180.0, failing=0.0)}
    world = well(replace(QUIET, hosts=120, plans=plans, days=1, skew=0.0))
    assert world.writers.turns["v0"] <= 25
    refused = requests(world)["v0"]["Get", "lease"] - world.writers.turns["v0"]
    assert refused > 5


def in_a_long_run(skew: float) -> tuple[World, Machine]:
    """A world in which a host is in the middle of a run of hours, and that host."""
    plan = {"mail": Plan(DAY, DAY, 4 * HOUR, phase=HOUR)}
    world = World(replace(QUIET, plans=plan, days=1, skew=skew))
    world.timeline.run(HOUR + 2 * SKEW)
    (name,) = world.writers.serving["v0"]
    assert world.bucket.parts("v0", "mail", 1)
    return world, next(one for one in world.groups["v0"] if one.name == name)


def until_taken_over(world: World) -> float:
    """Seconds until another host has the vault."""
    began, before = world.timeline.now, world.bucket.epoch("v0")
    while world.bucket.epoch("v0") == before and world.timeline.now < DAY:
        world.timeline.run(world.timeline.now + 1.0)
    return world.timeline.now - began


@pytest.mark.parametrize("skew", [0.0, SKEW])
def test_a_host_that_dies_in_a_run_is_followed_within_its_lease_and_a_minute(skew: float) -> None:
    world, machine = in_a_long_run(skew)
    world.die("v0", machine, 2 * DAY)
    assert until_taken_over(world) <= BOUND + 60.0
    world.run()
    (run,) = world.done["v0", "mail"]
    assert (run.number, run.host != machine.name) == (1, True)
    assert not violations(world)


def test_a_host_that_was_frozen_finds_itself_shut_out_and_what_it_sends_does_not_count() -> None:
    world, machine = in_a_long_run(0.0)
    machine.asleep_until = world.timeline.now + HOUR
    assert until_taken_over(world) <= BOUND + 60.0
    assert world.bucket.ignored == 0
    world.timeline.run(machine.asleep_until + 10 * CLEAN_UP)
    assert world.bucket.ignored > 0
    assert world.sharers[machine.name].turns.turn is ElectionState.STANDING_BY
    world.run()
    (run,) = world.done["v0", "mail"]
    assert run.host != machine.name
    assert not violations(world)


def test_a_host_whose_zvaultd_hangs_stops_its_server_before_another_begins() -> None:
    world, machine = in_a_long_run(0.0)
    machine.hung_until = world.timeline.now + 10 * HOUR
    assert until_taken_over(world) <= 3 * BOUND + BOUND + 120.0
    assert not world.writers.wrong
    assert machine.name not in world.writers.serving["v0"]


def test_a_host_that_loses_its_network_has_stopped_before_another_begins() -> None:
    world, machine = in_a_long_run(0.0)
    machine.cut_until = world.timeline.now + 10 * HOUR
    world.timeline.run(world.timeline.now + BOUND / 2 + 1)
    assert machine.name not in world.writers.serving["v0"]
    assert world.sharers[machine.name].turns.turn is ElectionState.CUT_OFF
    assert until_taken_over(world) <= BOUND / 2 + 60.0
    world.run()
    assert not violations(world)
