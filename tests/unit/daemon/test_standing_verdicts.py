"""Verdicts that stand are those that would be made anew, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.daemon.health.test_health_judge import DOWN
from tests.unit.ops.ops_world import HOUR, START, context, snap
from zvault.api.vaults import VaultDocument
from zvault.core.diagnosis.stalls import StallSign
from zvault.core.integrity.verification import LevelProof
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.standing_verdicts import STANDS, StandingVerdicts
from zvault.daemon.status import DaemonStatus
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.vault import Vaults

FIGURES = {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0}
SEEN: VaultDocument = {
    **DOWN,
    "hosts": [],
    "held_by": None,
    "away": False,
    "scrub": PoolCondition(START).document(),
}


class World:
    """A daemon's state with one backup, which lags an hour of the two that it may."""

    def __init__(self, folder: Path) -> None:
        self.where = context(START + HOUR, folder=folder, max_lag="2h", every="1h", verify={"every": "3h"})
        self.clock: Any = self.where.env.clock
        self.history = RunHistory(folder / "history.sqlite")
        self.runs = assemble_runs(self.where, Vaults(self.where), self.history, EventPublisher())
        monitor: Any = SimpleNamespace(documents=lambda: asyncio.sleep(0, []))
        self.scheduler = SimpleNamespace(next_run=lambda _: self.next_run, behind=lambda: self.behind)
        self.next_run: float | None = START + 9 * HOUR
        self.behind = 0.0
        self.status = DaemonStatus(
            self.where, monitor, self.runs, self.history, self.scheduler, started=START
        )  # type: ignore[arg-type]
        self.standing = StandingVerdicts(self.status)
        self.vaults: list[VaultDocument] = [SEEN]
        self.numbers = itertools.count(1)
        self.made: dict[Any, tuple[str, ...]] = {}
        self.where.records.conditions.put("cold", PoolCondition(START))
        self.ran("ok")
        self.lag(0)

    def ran(self, result: Any) -> None:
        run, env = f"r{next(self.numbers)}", self.where.env
        self.history.begin(run, "b", "schedule", self.clock.at - 60, env.way(env.backup("b")))
        error = None if result == "ok" else {"reason": "failed", "what": "x", "why": "", "next": ""}
        self.history.end(run, self.clock.at, result, FIGURES, error)

    def lag(self, pending: int) -> None:
        self.runs.lags["b"] = {"tank": DatasetLag("tank", snap(1), pending)}

    def fresh(self) -> dict[Any, tuple[str, ...]]:
        return {subject: one.keys for subject, one in self.status.verdicts_later(self.vaults, 0.0).items()}

    def look(self) -> bool:
        """A look, as zvaultd makes one each few seconds; whether the verdicts stand."""
        if self.standing.hold(self.vaults, moving=False):
            return True
        verdicts = self.status.verdicts(self.vaults)
        self.made = {subject: one.keys for subject, one in verdicts.items()}
        self.standing.note(verdicts, self.vaults, moving=False)
        return False


def _set_down(world: World) -> None:
    error = {"reason": "device-gone", "what": "gone", "why": "", "next": ""}
    world.vaults = [{**SEEN, "error": error}] if world.vaults == [SEEN] else [SEEN]  # type: ignore[typeddict-item]


def _reload(world: World) -> None:
    world.where.env.reconfigure(context(max_lag="3h", every="1h").env.config)


CHANGES: dict[str, Callable[[World], object]] = {
    "failed": lambda world: world.ran("failed"),
    "ran": lambda world: world.ran("ok"),
    "lag": lambda world: world.lag(1),
    "proof": lambda world: world.runs.proofs.__setitem__(
        "b", {"sample": LevelProof(proven=int(world.clock.at), since=int(START))}
    ),
    "warning": lambda world: world.status.warnings.__setitem__("x", f"it fails {next(world.numbers)}"),
    "no warning": lambda world: world.status.warnings.pop("x", None),
    "lag unread": lambda world: world.status.warnings.__setitem__("lag b", "it is not known"),
    "due": lambda world: setattr(world, "next_run", world.clock.at - 700),
    "not due": lambda world: setattr(world, "next_run", None),
    "behind": lambda world: setattr(world, "behind", 4000.0),
    "stall": lambda world: world.status.stalls.note("cold", StallSign("deadman", "it hangs"), world.clock.at),
    "vault": _set_down,
    "reload": _reload,
    "drift": lambda world: world.where.activity.writes.drifts.__setitem__("cold", "writes are small"),
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["nothing", *CHANGES]),
            st.sampled_from([0.0, 1.0, 5.0, 60.0, STANDS - 5, STANDS, 1700.0, HOUR, 30 * HOUR]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_verdicts_that_stand_are_those_made_anew(steps: list[tuple[str, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            for change, seconds in steps:
                CHANGES.get(change, lambda _: None)(world)
                world.clock.at += seconds
                if world.look():
                    assert world.made == world.fresh(), (change, seconds)
        finally:
            world.history.close()


def test_at_rest_they_stand_until_time_changes_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.status.warnings.clear()
    kept, found = 0, list[tuple[str, ...]]()
    for second in range(0, 3 * int(HOUR), 5):
        world.clock.at = START + HOUR + second
        kept += world.look()
        told = world.made["backup", "b"]
        assert told == world.fresh()["backup", "b"], second
        found += [] if found[-1:] == [told] else [told]
    world.history.close()
    assert kept > 0.9 * 3 * HOUR / 5
    assert len(found) > 1, "it became late meanwhile"


def test_they_do_not_stand_while_a_vault_moves_is_up_or_shared(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert [world.look(), world.look()] == [False, True]
    assert not world.standing.hold(world.vaults, moving=True)
    up: VaultDocument = {**SEEN, "state": "up", "health": "ONLINE"}
    shared: VaultDocument = {**SEEN, "hosts": ["a", "b"]}
    for document in (up, shared):
        world.vaults = [document]
        assert [world.look(), world.look()] == [False, False]
    world.history.close()


def test_they_do_not_stand_when_the_clock_is_set_or_the_host_slept(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert [world.look(), world.look()] == [False, True]
    world.clock.monotonic = lambda: world.clock.at - START - 2
    assert not world.look()
    world.history.close()
