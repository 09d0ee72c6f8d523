"""A whole run after a month's absence, under the watchdog: the loop has its turns from the first event to the last.

The size is that of a host that was told of: 20 datasets, snapshots each 15 minutes and another tool's hourly ones, a
vault that was away for 30 days. Only ``zfs`` and the streams are stood in for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.daemon.large_world import POOL, CpuLag, LargeWorld, ListedSide
from tests.unit.daemon.test_loop_is_free import DATASETS, MONTH, scraped, sides_of
from tests.unit.loop_turns import MOST, measured_turns
from zvault.config.profile import VaultProfile
from zvault.ops.replication import transfer
from zvault.ops.stream.run_stream import StreamResult
from zvault.system.process.runner import HostRunner
from zvault.zfs.lzc_stream import StreamHelpers


class UpVault:
    """The vault, which is up. What it has after the streams is ``full``."""

    def __init__(self, world: LargeWorld, full: ListedSide) -> None:
        self.world, self.full = world, full

    def __getitem__(self, _: str) -> UpVault:
        return self

    @contextlib.asynccontextmanager
    async def use(self, *_: object, **__: object) -> AsyncIterator[Any]:
        context = self.world.context

        async def no_trouble() -> None: ...

        yield SimpleNamespace(
            name="cold",
            pool="cold",
            guid=POOL,
            zfs=context.clients.vault_of(self.world.backup),
            profile=VaultProfile(),
            readonly=False,
            refuse_read_only=lambda _: None,
            trouble=no_trouble,
            managed=SimpleNamespace(
                config=context.env.vault("cold"), awake=SimpleNamespace(refused=(), held=True, problem=None)
            ),
        )


def test_a_months_catch_up_lets_the_loop_have_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag = CpuLag()
    sent: list[int] = []

    async def live() -> dict[str, Any]:
        world = LargeWorld(tmp_path, *sides_of(tmp_path, MONTH, 1))
        (tmp_path / "after").mkdir()
        full = ListedSide(tmp_path / "after", "cold/host/tank", DATASETS, range(1, MONTH + 1))
        vaults: Any = UpVault(world, full)

        async def begin(*_: object, **__: object) -> object:
            return object()

        async def arrive(*_: object) -> StreamResult:
            world.vault.points = full.points
            sent.append(1)
            await asyncio.sleep(0)  # so nothing but zvaultd itself does anything in between
            return StreamResult(1024, 0.0)

        monkeypatch.setattr(HostRunner, "pipeline", begin)
        monkeypatch.setattr(StreamHelpers, "start", begin)
        monkeypatch.setattr(transfer, "attend_stream", arrive)
        runs = world.daemon.runs
        runs.vaults = vaults
        watching = asyncio.create_task(lag.watch(), name="watch")
        async with scraped(world):
            run = runs.start("large", "catch-up")
            await runs.runner.current[run].task
        watching.cancel()
        found: Any = runs.history.run(run)
        return dict(found)

    with measured_turns(monkeypatch, tests_too=False) as turns:
        ended = asyncio.run(live())
    print(ended, len(sent), turns, lag.worst, lag.when, *lag.where, sep="\n")
    assert ended["result"] == "ok", ended["error"]
    assert len(sent) > DATASETS * MONTH // 10
    assert turns.worst < MOST, f"the loop computed:\n{turns}"
    assert lag.worst < MOST, f"{lag.worst:.3f} s of computing kept the loop waiting"
