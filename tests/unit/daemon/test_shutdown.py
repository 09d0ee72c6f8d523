"""What a daemon does that stops alone, and one that stops with its host."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.errors import DeadlineExceeded, DeviceGone
from zvault.daemon import shutdown
from zvault.daemon.shutdown import (
    DRAIN_SECONDS,
    STREAMS_END_TIME,
    call_off_shutdown,
    end_runs,
    prepare_shutdown,
    release_vaults,
)
from zvault.ops.state.activity import Activity


class Host:
    """systemd, runs and two vaults that are up: what is asked of them, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stops: bool | DeadlineExceeded = True
        self.pool: str | None = "ACTIVE"
        self.problem: Exception | None = None
        self.leases = {"vault/cold": {"pinned": True}}
        self.context: Any = SimpleNamespace(
            env=SimpleNamespace(runner=None), records=SimpleNamespace(undo=self.leases), activity=Activity()
        )
        self.moves = asyncio.Lock()
        managed = [self.vault("cold"), self.vault("spare")]
        self.vaults: Any = SimpleNamespace(all=lambda: managed)
        self.runs: Any = SimpleNamespace(drain=self.drain, put_down=self.put_down, reopen=self.reopen)

    def vault(self, name: str) -> Any:
        async def down(say: object) -> None:
            self.log.append(f"{name} goes down")
            if self.problem is not None:
                raise self.problem

        async def kernel_state(pool: str) -> str | None:
            return self.pool

        async def settled() -> None:
            async with self.moves:
                return

        return SimpleNamespace(
            name=name,
            users={},
            lease=SimpleNamespace(exists=f"vault/{name}" in self.leases),
            settled=settled,
            config=SimpleNamespace(device=["nbd"], pool=name, is_imported_by_zvault=True),
            assembly=lambda: SimpleNamespace(zpool=SimpleNamespace(kernel_state=kernel_state)),
            down=down,
        )

    async def put_down(self, why: str, within: float) -> set[str]:
        assert within == STREAMS_END_TIME, "one that hangs must not keep the vaults up"
        self.log.append(f"puts down: {why}")
        return {"home"}

    def reopen(self) -> None:
        self.log.append("reopens")

    async def drain(self, why: str, within: float) -> None:
        self.log.append(f"{why}: {within:g} s")

    async def host_goes_down(self) -> bool:
        if isinstance(self.stops, DeadlineExceeded):
            raise self.stops
        return self.stops

    async def stop(self) -> list[str]:
        await end_runs(self.context, self.runs)
        await release_vaults(self.context, self.vaults)
        return self.log


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    it = Host()
    monkeypatch.setattr(shutdown, "SystemdUnits", lambda _: it)
    return it


async def test_with_the_host_runs_end_at_once_and_every_vault_that_is_up_goes_down(host: Host):
    assert await host.stop() == ["the host is going down: 0 s", "cold goes down"]
    assert host.context.activity.going_down
    assert host.context.activity.awake.is_set()


@pytest.mark.parametrize("stops", [False, DeadlineExceeded("systemctl did not answer", "", "")])
async def test_alone_it_has_patience_and_leaves_vaults_up(host: Host, stops: bool | DeadlineExceeded):
    host.stops = stops
    assert await host.stop() == [f"the daemon is stopping: {DRAIN_SECONDS:g} s"]
    assert not host.context.activity.going_down


async def test_a_suspended_pool_is_left_and_what_cannot_go_down_keeps_nothing_up(
    host: Host, caplog: pytest.LogCaptureFixture
):
    host.pool = "SUSPENDED"
    assert await host.stop() == ["the host is going down: 0 s"]
    host.pool, host.problem = "ACTIVE", DeviceGone("its device is gone")
    host.log.clear()
    assert (await host.stop())[1:] == ["cold goes down"]
    assert "its device is gone" in caplog.text
    host.problem = OSError(errno.EMFILE, "nobody foresaw it")
    host.log.clear()
    assert (await host.stop())[1:] == ["cold goes down"]
    assert "nobody foresaw it" in caplog.text


async def test_it_waits_for_what_moves_a_vault(host: Host):
    host.stops = False
    async with host.moves:
        stopping = asyncio.create_task(host.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
    await asyncio.wait_for(stopping, PATIENCE)


async def test_what_is_announced_is_done_at_once_and_the_stop_goes_on_with_the_rest(host: Host) -> None:
    cold = host.vaults.all()[0]
    cold.users["a restore"] = 1
    assert await prepare_shutdown(host.context, host.runs, host.vaults) == {"home"}
    assert host.log == ["puts down: the host is going down"], "who uses a vault keeps it until it is stopped"
    del cold.users["a restore"]
    # Its own word counts even if systemd does not say so (yet).
    host.stops = False
    assert (await host.stop())[1:] == ["the host is going down: 0 s", "cold goes down"]


async def test_a_shutdown_that_was_announced_takes_down_what_nobody_uses(host: Host) -> None:
    await prepare_shutdown(host.context, host.runs, host.vaults)
    assert host.log == ["puts down: the host is going down", "cold goes down"]
    host.log.clear()
    call_off_shutdown(host.context, host.runs)
    assert (host.log, host.context.activity.going_down) == (["reopens"], False)
