"""Hosts that share vaults in simulated time, what goes wrong with them, and what must hold whatever does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.unit.core.sharing.simulation.bucket import Bucket, Troubles
from tests.unit.core.sharing.simulation.host import BOUND, Machine, Writers
from tests.unit.core.sharing.simulation.sharer import Done, Plan, Shared, Sharer
from tests.unit.core.sharing.simulation.timeline import Task, Timeline
from zvault.core.sharing.run_decision import HOST_SPREAD, compute_silence

HOUR, DAY = 3600.0, 86400.0
SKEW = 600.0
"""Seconds by which a host's wall clock may be wrong, either way."""
TAKEOVER = compute_silence(BOUND) + HOST_SPREAD + BOUND + 60.0
"""Seconds until another host goes on, at most: it is seen last that zvaultd hangs, and then the lease must end."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How much of what is simulated. ``faults``: mean seconds between two troubles of a host; 0 for none."""

    seed: int
    vaults: int = 2
    hosts: int = 4
    plans: Mapping[str, Plan] = field(default_factory=dict)
    days: float = 3.0
    faults: float = DAY
    outages: float = 7 * DAY
    skew: float = SKEW
    troubles: Troubles = field(default_factory=Troubles)


class World:
    """One simulation; all that is random in it comes from its seed."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed)
        self.timeline = Timeline()
        self.bucket = Bucket(self.timeline, random.Random(self.rng.random()), scenario.troubles)
        self.timeline.answer = self.bucket.send
        self.writers = Writers(self._began)
        self._ambushes: Counter[str] = Counter()
        self.done: dict[tuple[str, str], list[Done]] = {}
        self.wrong: list[str] = []
        self.troubles: Counter[str] = Counter()
        self.outages: list[tuple[float, float]] = []
        self.groups = {
            f"v{vault}": [self._machine(f"v{vault}h{number}") for number in range(scenario.hosts)]
            for vault in range(scenario.vaults)
        }
        self._tasks: dict[str, Task] = {}
        self.sharers: dict[str, Sharer] = {}
        for vault, machines in self.groups.items():
            for machine in machines:
                self._boot(vault, machine)
                if scenario.faults:
                    self._plan_trouble(vault, machine)
        if scenario.outages:
            self._plan_outage()

    def run(self) -> World:
        """Go through all of it."""
        self.timeline.run(self.scenario.days * DAY)
        return self

    def _machine(self, name: str) -> Machine:
        rng, skew = self.rng, self.scenario.skew
        drift = rng.uniform(-5e-5, 5e-5)
        return Machine(name, self.timeline, rng.uniform(-skew, skew), rng.uniform(0, 1e7), drift)

    def _boot(self, vault: str, machine: Machine) -> None:
        hosts = tuple(one.name for one in self.groups[vault])
        rng = random.Random(self.rng.random())
        shared = Shared(self.writers, self.bucket, self._finished)
        sharer = Sharer(machine, vault, hosts, self.scenario.plans, rng, shared)
        self.sharers[machine.name] = sharer
        self._tasks[machine.name] = self.timeline.spawn(Task(machine, sharer.main(), daemon=True))

    def _finished(self, run: Done) -> None:
        """A host believes that a run is in the vault: whether it is."""
        there = self.bucket.data.pop((run.vault, run.backup, run.number), set())
        if len(there & set(range(run.parts))) < run.parts:
            self.wrong.append(f"{run}: not all of it counts")
        self.done.setdefault((run.vault, run.backup), []).append(run)

    def _plan_trouble(self, vault: str, machine: Machine) -> None:
        """The next trouble of a host; every other one is that of whichever host has the vault next, in its run."""

        def come() -> None:
            self._plan_trouble(vault, machine)
            if self.rng.random() < 0.5:
                self._trouble(vault, machine)
            else:
                self._ambushes[vault] += 1

        self.timeline.call(self.timeline.now + self.rng.expovariate(1 / self.scenario.faults), come)

    def _began(self, vault: str, machine: Machine) -> None:
        """A host has the vault, and may have something waiting for it."""
        if self._ambushes[vault]:
            self._ambushes[vault] -= 1
            at = self.timeline.now + self.rng.uniform(0.0, 900.0)
            self.timeline.call(at, lambda: self._trouble(vault, machine))

    def _trouble(self, vault: str, machine: Machine) -> None:
        """One of all troubles, unless fewer than two other hosts are well."""
        if sum(not one.in_trouble() for one in self.groups[vault] if one is not machine) < 2 or machine.dead:
            return
        now, rng = self.timeline.now, self.rng
        kind = rng.choice(["dies", "sleeps", "hangs", "cut off", "restarts", "clock"])
        self.troubles[kind] += 1
        long = rng.choice([30.0, 300.0, HOUR, 10 * HOUR]) * rng.uniform(0.5, 1.5)
        if kind == "dies":
            self.die(vault, machine, long)
        elif kind == "sleeps":
            machine.asleep_until = max(machine.asleep_until, now + long)
        elif kind == "hangs":
            machine.hung_until = max(machine.hung_until, now + long)
        elif kind == "cut off":
            machine.cut_until = max(machine.cut_until, now + long)
        elif kind == "restarts":
            self.die(vault, machine, 60.0)
        else:
            machine.ahead = rng.uniform(-self.scenario.skew, self.scenario.skew)

    def die(self, vault: str, machine: Machine, long: float) -> None:
        """Power is lost: nothing of it is left but what the store has."""
        self._tasks[machine.name].end()
        self.sharers[machine.name].turns.power_lost()
        machine.dead = True

        def boot() -> None:
            machine.dead = False
            machine.asleep_until = machine.hung_until = 0.0
            machine.boots += 1
            self._boot(vault, machine)

        self.timeline.call(self.timeline.now + long, boot)

    def _plan_outage(self) -> None:
        """The store answers nobody for up to half an hour."""

        def out() -> None:
            long = self.rng.uniform(30.0, HOUR / 2)
            self.bucket.out_until = self.timeline.now + long
            self.outages.append((self.timeline.now, long))
            self.troubles["outage"] += 1
            self._plan_outage()

        self.timeline.call(self.timeline.now + self.rng.expovariate(1 / self.scenario.outages), out)
