"""New errors of a pool are named before it goes down: what is to be done about them goes by their names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, with_vault
from zvault.core.errors import ToolFailed
from zvault.core.integrity.damage import METADATA_NAME
from zvault.ops.context import Context
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.ops.vaults.name_damage import name_new_damage
from zvault.ops.vaults.vault import ManagedVault
from zvault.system.process.runner import ProcessResult

OUTAGE = (f"{METADATA_NAME}:<0x34>", f"{METADATA_NAME}:<0x3c>")
"""What an outage leaves: reads and writes of the pool's own that had no answer."""


class Host:
    """A host with a pool that has errors; it counts how often it was asked for their names."""

    address = None

    def __init__(self) -> None:
        self.names, self.asked, self.refuses = OUTAGE, 0, False

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        line, found = " ".join(argv), {"error_count": len(self.names)}
        out = ""
        if line.startswith("zpool status"):
            if "-v" in argv:
                self.asked += 1
                if self.refuses:
                    raise ToolFailed("cannot examine the pool")
                found |= {"errlist": list(self.names)}
            out = json.dumps({"pools": {"cold": found}})
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def where(host: Host, tmp_path: Path) -> Context:
    """A vault on another host: its names are all that is asked for."""

    async def nothing(*_: object) -> int:
        return 1

    it = context(folder=tmp_path, vault={"pool": "cold", "host": "ssh://root@peer"})
    zpool: Any = SimpleNamespace(runner=host, sync=nothing)
    zfs: Any = SimpleNamespace(host=host, number=nothing)
    it.clients.zpool_of = lambda _: zpool  # type: ignore[method-assign]
    it.clients.vault_zfs = lambda _: zfs  # type: ignore[method-assign]
    return with_vault(it, None)


class Healthy(ManagedVault):
    """A vault with nothing between it and its pool."""

    async def trouble(self) -> None:
        return None


def told(where: Context) -> list[str]:
    known = where.records.conditions.get("cold")
    assert known is not None
    return [str(one) for one in known.damages]


async def test_the_last_look_before_it_goes_down_names_them(where: Context) -> None:
    """A run may be too short for anybody else to look."""
    await Healthy(where, "cold")._look()
    assert told(where) == list(OUTAGE)


async def test_they_are_named_once_and_more_of_them_again(where: Context, host: Host) -> None:
    await examine_pool(where, "cold")
    assert [await name_new_damage(where, where.env.vault("cold")) for _ in range(2)] == [True, False]
    host.names = (*OUTAGE, "cold/host/tank:/file")
    await examine_pool(where, "cold")
    assert await name_new_damage(where, where.env.vault("cold"))
    assert (host.asked, told(where)) == (2, sorted(host.names))


async def test_a_shutdown_does_not_wait_for_names(where: Context, host: Host) -> None:
    where.activity.going_down = True
    await Healthy(where, "cold")._look()
    assert (host.asked, told(where)) == (0, [])


async def test_it_goes_down_also_where_they_cannot_be_told(where: Context, host: Host) -> None:
    host.refuses = True
    await Healthy(where, "cold")._look()
    assert (host.asked, told(where)) == (1, [])
