"""A pool that another host has now: exported over copies of its devices, and never over the devices themselves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import DeviceGone, TakenOver, ToolFailed, ZvaultError
from zvault.ops.vaults.abandon import abandon
from zvault.ops.vaults.assembly import Assembly


class Pool:
    """A suspended pool on a stack of one device; what is done to it, in order."""

    def __init__(self, *, on: str = "/dev/nbd0", fails: str = "") -> None:
        self.done: list[str] = []
        self.on, self.fails = on, fails
        self.throw_away = False

    async def up(self, _: object) -> list[Any]:
        self.done.append("copy up" if self.throw_away else "up")
        return [SimpleNamespace(path="/dev/nbd0")]

    async def down(self, _: object) -> None:
        self.done.append("down")

    async def devices(self, _: str) -> list[str]:
        return [self.on]

    async def clear(self, pool: str, *_: object) -> None:
        self._do("clear")

    async def sync(self, pool: str, _: float) -> None:
        self._do("sync")

    async def export(self, pool: str, _: float) -> None:
        self._do("export")

    def _do(self, what: str) -> None:
        assert self.throw_away, "done on the store itself"
        self.done.append(what)
        if what == self.fails:
            raise ToolFailed(f"zpool {what} failed", "I/O error")


async def given_up(pool: Pool) -> list[str]:
    it: Any = pool
    said: list[str] = []
    await abandon("cold", it, it, said.append)
    return said


async def test_what_it_has_in_memory_goes_to_a_copy_and_then_it_is_exported():
    pool = Pool()
    said = await given_up(pool)
    assert pool.done == ["copy up", "clear", "sync", "export"]
    assert "nothing of it was written to the store" in said[-1]


async def test_a_copy_that_is_not_where_the_pool_looks_is_not_used():
    pool = Pool(on="/dev/nbd7")
    with pytest.raises(DeviceGone, match="cannot be given up") as told:
        await given_up(pool)
    assert "needs /dev/nbd7" in told.value.why
    assert pool.done == ["copy up"]


@pytest.mark.parametrize("fails", ["clear", "sync", "export"])
async def test_where_zfs_cannot_a_reboot_is_told(fails: str):
    with pytest.raises(DeviceGone, match="cannot be given up") as told:
        await given_up(Pool(fails=fails))
    assert "reboot this host" in told.value.next
    assert told.value.retryable


@pytest.mark.parametrize("shared", [True, False])
async def test_only_where_hosts_share_the_vault(monkeypatch: pytest.MonkeyPatch, shared: bool):
    pool, config = Pool(), SimpleNamespace(hosts=["a", "b"] if shared else [], pool="cold")
    lost, left = TakenOver("the device was another's meanwhile"), None
    it: Any = SimpleNamespace(config=config, name="cold", pool="cold", zpool=pool)
    stack: Any = pool
    try:
        await Assembly._abandon(it, lost, stack, lambda _: None)
    except ZvaultError as error:
        left = error
    assert (left is None, "export" in pool.done) == (shared, shared)
    assert shared or left is lost
