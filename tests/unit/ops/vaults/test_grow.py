"""A pool that is to use all of its devices: only where they are larger than it knows."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.vaults import vault_world
from zvault.core.errors import PoolReadOnly, Refused
from zvault.core.policy.vault_life import VaultLife
from zvault.zfs.pool.pool import PoolState, format_expand


class Pool:
    """A pool whose devices have more bytes than it uses."""

    def __init__(self, more: int) -> None:
        self.more, self.size = more, 1 << 30
        self.asked: list[Sequence[str]] = []

    async def state(self, _: str) -> PoolState:
        return PoolState("cold", 1, self.size, 0, 0, "ONLINE", expandable=self.more)

    async def expand(self, pool: str, devices: Sequence[str]) -> None:
        self.asked.append(format_expand(pool, devices))
        self.size, self.more = self.size + self.more, 0


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    it = Pool(1 << 30)
    asked: Any = property(
        lambda storage: SimpleNamespace(
            state=it.state, expand=it.expand, kernel_state=storage.kernel_state, sync=storage.sync
        )
    )
    monkeypatch.setattr(vault_world.Storage, "zpool", asked)
    return it


async def test_it_grows_once_and_the_vault_is_down_again(monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
    world = vault_world.played(monkeypatch)
    await world.vault.adopt(world.said.append, needed=False)
    await world.vault.grow(world.said.append)
    assert pool.asked == [["zpool", "online", "-e", "cold", "/dev/nbd0"]]
    assert "pool cold has grown from 1G to 2G" in world.said
    assert world.vault.life is VaultLife.DOWN
    with pytest.raises(Refused, match="there is nothing to give"):
        await world.vault.grow(world.said.append)
    assert len(pool.asked) == 1


async def test_one_that_is_read_only_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, pool: Pool) -> None:
    world = vault_world.played(monkeypatch)
    up = vault_world.Storage.up

    async def read_only(self: vault_world.Storage, say: object) -> Any:
        state, paths = await up(self, say)
        return SimpleNamespace(**{**vars(state), "readonly": True}), paths

    monkeypatch.setattr(vault_world.Storage, "up", read_only)
    await world.vault.adopt(world.said.append, needed=False)
    with pytest.raises(PoolReadOnly, match="cannot be made larger"):
        await world.vault.grow(world.said.append)
    assert pool.asked == []
