"""The event loop computes nothing: not while a large listing is read, matched, planned, pruned, and shown.

``ZVAULT_LOOP_LINES=2000000`` is the largest listing that is accepted; an ordinary run takes a part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.daemon.large_world import POOL, CpuLag, LargeWorld, ListedSide
from tests.unit.loop_turns import MOST, measured_turns
from zvault.api.events import RunEvent
from zvault.ops.forecast import make_forecast_document
from zvault.ops.list_documents import DatasetPagePart, make_list_document
from zvault.ops.replication.disproved_bookmarks import correct_disproved
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.retention.make_room import prune_full_source
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.prune_source import prune_source
from zvault.ops.retention.vault_holds import move_holds
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.snapshot_run import SnapshotRun

LINES = int(os.environ.get("ZVAULT_LOOP_LINES", "72000"))
DATASETS = 20
MONTH = 30 * 96 * 5 // 4
"""Snapshots of a dataset in 30 days: zvault's each 15 minutes, and another tool's hourly ones."""


@contextlib.asynccontextmanager
async def scraped(world: LargeWorld) -> AsyncIterator[None]:
    """Somebody scrapes each second, and looks at the page."""

    async def scrape() -> None:
        while True:
            world.daemon.metrics.text()
            await world.daemon.page.overview()
            await world.daemon.page.backup("1:large")
            await world.daemon.page.dataset("1\0large\0tank/d00001")
            await asyncio.sleep(1.0)

    task = asyncio.create_task(scrape(), name="scrape")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def look_and_plan(world: LargeWorld) -> int:
    backup, context = world.backup, world.context
    vault = context.clients.vault_of(backup)
    sides = await list_both_sides(context, backup, vault, sizes="vault")
    plans = await plan_all(context, backup, sides)
    pruned = await sides.compute(plan_prune, context, backup, sides)
    await move_holds(context, backup, {"vault": vault}, pruned, lambda _: None)
    return len(plans)


async def pages(world: LargeWorld) -> int:
    found = await make_list_document(world.context, world.daemon.vaults, "large", page=DatasetPagePart(100))
    return len(found["datasets"])


async def forecast(world: LargeWorld) -> int:
    return len((await make_forecast_document(world.context, world.backup))["prune"])


async def read_lag(world: LargeWorld) -> int:
    await world.daemon.runs.findings.refresh_lag(world.backup)
    return len(world.daemon.runs.lags["large"])


def no_emit(_: RunEvent) -> None: ...


async def prune_the_source(world: LargeWorld) -> int:
    return 1 + await prune_source(world.context, world.backup, no_emit)


async def make_room(world: LargeWorld) -> int:
    vault = world.context.clients.vault_of(world.backup)
    return 1 + await prune_full_source(world.context, world.backup, vault, no_emit)


async def make_snapshots(world: LargeWorld) -> int:
    outcome = RunOutcome()
    await SnapshotRun(world.context, "large", no_emit, outcome, "r").execute()
    assert outcome.result == "ok", outcome.error
    return outcome.datasets


async def last_snapshot(world: LargeWorld) -> float:
    last = await world.daemon.runs.findings.last_snapshot(world.backup)
    assert last is not None
    return last.timestamp()


async def look_in_a_run(world: LargeWorld) -> int:
    """A run tells what it saw: the lag is doubted, and nothing is known of these datasets."""
    runs, context, backup = world.daemon.runs, world.context, world.backup
    runs.findings.doubt_lag("large")
    sides = await list_both_sides(context, backup, context.clients.vault_of(backup), sizes="none")
    await runs.findings.note_looked("large", runs.lags.way("large"), replace(sides, known=None))
    assert not runs.readings.is_doubted("large")
    return len(runs.lags["large"])


async def find_disproved(world: LargeWorld) -> int:
    context, backup = world.context, world.backup
    target = context.env.target_of(backup, backup.source.dataset)
    context.records.places.note(POOL, str(backup.source.whole), target)
    sides = await list_both_sides(context, backup, context.clients.vault_of(backup), sizes="none")
    return 1 + len(await correct_disproved(context, backup, replace(sides, known=None)))


Work = Callable[[LargeWorld], Awaitable[float]]

WORK: dict[str, Work] = {
    "lag": read_lag,
    "lag again": read_lag,
    "plan": look_and_plan,
    "plan again": look_and_plan,
    "pages": pages,
    "forecast": forecast,
    "prune the source": prune_the_source,
    "make room": make_room,
    "snapshots": make_snapshots,
    "last snapshot": last_snapshot,
    "look in a run": look_in_a_run,
    "disproved": find_disproved,
}


def sides_of(
    folder: Path, source: int, vault: int, datasets: int = DATASETS
) -> tuple[ListedSide, ListedSide]:
    """Both sides, with so many snapshots of each dataset."""
    return (
        ListedSide(folder, "tank", datasets, range(1, source + 1)),
        ListedSide(folder, "cold/host/tank", datasets, range(1, vault + 1)),
    )


def live(
    folder: Path,
    sides: tuple[ListedSide, ListedSide],
    work: Mapping[str, Work],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Do the work one after another while somebody scrapes, and let the loop be free all the time."""
    lag = CpuLag()

    async def all_of_it() -> None:
        world = LargeWorld(folder, *sides)
        watching = asyncio.create_task(lag.watch(), name="watch")
        async with scraped(world):
            for what, one in work.items():
                lag.doing = what
                began = asyncio.get_running_loop().time()
                assert await one(world) > 0
                took = asyncio.get_running_loop().time() - began
                print(f"{what}: {took:.2f} s; lag so far {lag.worst:.3f} s in {lag.when}", flush=True)
        watching.cancel()

    # What thousands of other tests left for the collector is not the daemon's: the first thread that computes would go
    # through it with the interpreter's lock (0.3 s, once).
    gc.collect()
    with measured_turns(monkeypatch) as turns:
        asyncio.run(all_of_it())
    print(turns, *lag.where, sep="\n")
    assert turns.worst < MOST, f"the loop computed:\n{turns}"
    assert lag.worst < MOST, f"{lag.worst:.3f} s of computing kept the loop waiting at: {lag.when}"


def test_nothing_large_is_worked_through_in_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = LINES // DATASETS
    live(tmp_path, sides_of(tmp_path, each, each // 2), WORK, monkeypatch)


def test_after_a_months_absence_the_watchdog_is_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the month is on the vault. To plan that took 70 s in one turn: zvaultd was killed, started, and killed
    over the same plan again.
    """
    live(tmp_path, sides_of(tmp_path, MONTH, 1), {"lag": read_lag, "plan": look_and_plan}, monkeypatch)
