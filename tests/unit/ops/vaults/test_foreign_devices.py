"""A device in the vault's pool that is not the vault's: noted at each look, told while it is down, looked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.health.vault import judge_vault
from zvault.ops.context import Context
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vault_documents import make_unknown_document
from zvault.ops.vault_facts import make_vault_facts
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.ops.vaults.undo_record import VaultUndoRecord
from zvault.ops.vaults.vault import ManagedVault
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool.label import PartMissing

LOCAL = "/srv/local.img"


class Host:
    """A host whose pool lies on these paths."""

    address = None
    vdevs: tuple[str, ...] = ("/dev/nbd0",)

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        vdevs = {path: {"class": "normal"} for path in self.vdevs}
        pool = {"error_count": 0, "vdevs": {"cold": {"vdevs": vdevs}}}
        out = json.dumps({"pools": {"cold": pool}}) if "status" in argv else ""
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


async def _born(*_: object) -> int:
    return 1


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def where(host: Host, tmp_path: Path) -> Context:
    it = context(folder=tmp_path, vault={"pool": "cold", "device": [{"nbd": "tcp:nas"}]})
    it.clients.zpool_of = lambda _: SimpleNamespace(runner=host)  # type: ignore[assignment,method-assign,return-value]
    it.clients.vault_zfs = lambda _: SimpleNamespace(host=host, number=_born)  # type: ignore[assignment,method-assign,return-value]
    lease = VaultUndoRecord(it.records.undo, "cold")
    lease.put("cold", ["/dev/nbd0"], pinned=True, exported=False)
    return it


def told(where: Context) -> list[str]:
    """What the status of a vault that is down says of it."""
    facts = make_vault_facts(where, make_unknown_document(ManagedVault(where, "cold")))
    return [one.why for one in judge_vault(facts).findings if one.condition.key == "foreign-device"]


async def test_it_is_told_from_the_next_look_on_until_it_is_gone(where: Context, host: Host) -> None:
    assert (await examine_pool(where, "cold")).foreign == ()
    host.vdevs = ("/dev/nbd0", LOCAL)
    assert (await examine_pool(where, "cold")).foreign == (LOCAL,)
    VaultUndoRecord(where.records.undo, "cold").drop()
    assert told(where) == [f"its pool cold lies on {LOCAL} too"], "also while it is down"
    assert (await examine_pool(where, "cold")).foreign == (LOCAL,), "what are its own is not known now"
    VaultUndoRecord(where.records.undo, "cold").put("cold", ["/dev/nbd0"], pinned=True, exported=False)
    host.vdevs = ("/dev/nbd0",)
    await examine_pool(where, "cold")
    assert told(where) == []


class Pool:
    """An import that lacks a device."""

    def __init__(self, lacks: str) -> None:
        self.lacks = lacks
        self.asked: list[str] = []

    async def import_(self, pool: str, paths: Sequence[str], **_: object) -> bool:
        self.asked = list(paths)
        if self.lacks not in paths:
            raise PartMissing("the pool cannot be imported", "it consists of 2 top-level devices", "bring it")
        return True


@pytest.mark.parametrize("there", [True, False])
async def test_an_import_looks_for_it_and_says_which_is_missing(
    where: Context, tmp_path: Path, there: bool
) -> None:
    local = tmp_path / "local.img"
    if there:
        local.touch()
    pool = Pool(str(local))
    where.clients.zpool_of = lambda _: pool  # type: ignore[assignment,method-assign,return-value]
    where.records.conditions.put("cold", replace(PoolCondition(1.0), foreign=(str(local),)))
    vault: Any = VaultAssembly(where, "cold", where.env.vault("cold"))
    if there:
        assert await vault._import(None, ["/dev/nbd0"], print)
        assert pool.asked == ["/dev/nbd0", str(local)]
        return
    with pytest.raises(PartMissing) as missing:
        await vault._import(None, ["/dev/nbd0"], print)
    assert f"it needed {local} too" in missing.value.why
    assert missing.value.next == f"bring {local} back: without it nothing can be restored"
