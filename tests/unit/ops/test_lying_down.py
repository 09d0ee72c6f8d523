"""In which order a vault comes to rest before a sleep, and gets up after it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.ops import bedtime
from zvault.ops.bedtime import Rest, get_up, lie_down


class Vault:
    """A vault that is up: what is asked of it, in order."""

    def __init__(self, on_sleep: str = "sync") -> None:
        self.log: list[str] = []
        self.name, self.lease, self.users = "cold", "vault/cold", set[str]()
        self.turn = asyncio.Lock()
        self.pinned = True
        self.config: Any = SimpleNamespace(device=["nbd"], pool="cold", on_sleep=on_sleep, up="on-demand")
        self.context: Any = SimpleNamespace(
            leases={self.lease: {}}, runner=None, clock=SimpleNamespace(time=time.time)
        )

    @property
    def moving(self) -> bool:
        return self.turn.locked()

    def assembly(self) -> Any:
        return SimpleNamespace(stack=lambda: self, zpool=self)

    async def rest(self, *, resting: bool) -> None:
        self.log.append("rests" if resting else "goes on")

    async def kernel_state(self, _: str) -> str:
        return "ACTIVE"

    async def sync(self, _: str, within: float) -> None:
        assert within > 0
        self.log.append("syncs")

    async def export(self, _: str, within: float) -> None:
        assert within > 0
        self.log.append("exports")

    async def up(self, _: object) -> None:
        self.log.append("comes up")


@pytest.fixture(autouse=True)
def no_scrub(monkeypatch: pytest.MonkeyPatch) -> None:
    async def health(*_: object) -> Any:
        return SimpleNamespace(scan=SimpleNamespace(state="none"))

    monkeypatch.setattr(bedtime, "Scrubber", lambda _: SimpleNamespace(health=health))


async def lies_down(vault: Any, seconds: float) -> tuple[Rest, str]:
    told: list[str] = []
    rest = await lie_down(vault, time.monotonic() + seconds, told.append)
    return rest, "\n".join(told)


async def test_the_cache_rests_before_the_pool_is_synced():
    vault: Any = Vault()
    assert await lies_down(vault, 5) == (Rest(), "pool cold has written out what it had, in 0.0 s")
    assert vault.log == ["rests", "syncs"]


@pytest.mark.parametrize(("seconds", "exported"), [(5, True), (1.5, False)])
async def test_it_is_exported_where_there_is_time_and_comes_back(seconds: float, exported: bool):
    vault: Any = Vault("export")
    rest, told = await lies_down(vault, seconds)
    assert rest.exported is ("exported pool cold" in told) is exported
    vault.log.clear()
    await get_up(vault, rest, print, needed=False)
    assert vault.log == ["goes on", *(["comes up"] if exported else [])]


async def test_one_that_is_being_taken_down_has_its_cache_rest_at_least():
    vault: Any = Vault()
    async with vault.turn:
        rest, told = await lies_down(vault, 0.05)
        assert "has not come to rest in time" in told
        await get_up(vault, rest, print, needed=False)
    assert vault.log == ["rests", "goes on"]
