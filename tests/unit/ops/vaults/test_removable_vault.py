"""A vault on a disk that is plugged in now and then: a disk that is away is no fault of the vault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.errors import DiskAway, NotFound
from zvault.core.policy.vault_life import VaultLife
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.vault import ManagedVault
from zvault.zfs.pool.pool import PoolState

STATE = PoolState("usb", 7, 1, 0, 1, "ONLINE")


class Pools:
    """The pools of a host to which the disk may be plugged."""

    def __init__(self) -> None:
        self.plugged = self.imported = False
        self.done: list[str] = []

    async def state(self, pool: str) -> PoolState | None:
        return STATE if self.imported else None

    async def kernel_state(self, pool: str) -> str | None:
        return "ONLINE" if self.imported else None

    async def import_(self, pool: str, devices: list[str], **_: bool) -> bool:
        assert (pool, list(devices)) == ("usb", []), "by its name, wherever its disk is"
        self.imported = self.plugged
        return self.plugged

    async def sync(self, pool: str, deadline: float) -> None:
        self.done.append("synced")

    async def export(self, pool: str, deadline: float) -> None:
        self.done.append("exported")
        self.imported = False


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Pools:
    it: Any = Pools()
    monkeypatch.setattr(VaultAssembly, "zpool", it)
    return it


def vault(folder: Path, *, removable: bool) -> ManagedVault:
    (folder / "local.toml").touch()
    it = ManagedVault(context(folder=folder, vault={"pool": "usb", "removable": removable}), "cold")
    it.life = VaultLife.DOWN
    return it


async def test_a_disk_that_is_away_is_told_and_is_no_error_of_the_vault(pools: Pools, tmp_path: Path) -> None:
    it, said = vault(tmp_path, removable=True), list[str]()
    with pytest.raises(DiskAway, match="the disk of vault 'cold' is not there"):
        await it.up(said.append)
    assert (it.error, it.lease.exists, it.pinned) == (None, False, False)
    plain = vault(tmp_path, removable=False)
    with pytest.raises(NotFound) as caught:
        await plain.up(said.append)
    assert not isinstance(caught.value, DiskAway)
    assert plain.error is caught.value


async def test_it_is_exported_after_use_and_another_pool_of_the_host_is_not(
    pools: Pools, tmp_path: Path
) -> None:
    pools.plugged, said = True, list[str]()
    for removable, left in ((True, False), (False, True)):
        it = vault(tmp_path, removable=removable)
        async with it.use("a run", said.append, writes=False):
            assert pools.imported
        assert pools.imported is left, removable
    assert pools.done == ["synced", "exported"]


async def test_a_disk_without_a_link_of_udevs_counts_as_there_once_it_was(
    pools: Pools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it was away for ever: no verification and no scrub of it began, and nothing told that they are overdue."""
    links = set[str]()
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", links.__contains__)
    it = vault(tmp_path, removable=True)
    assert it.is_away()
    pools.plugged = True
    for link, away in ((False, False), (True, True)):
        if link:
            links.add("usb")
        async with it.use("a run", lambda _: None, writes=False):
            pass
        links.clear()
        assert it.is_away() == away, "that its link went tells that the disk did"
