"""A vault whose store was put back: told from the import on, kept from pruning, until somebody accepts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap, tree, vaulted
from zvault.core.errors import NotFound, Refused
from zvault.core.health.vault import judge_vault
from zvault.core.integrity.put_back import PoolProgress, PoolTxgs
from zvault.core.policy.scrub import PoolScan
from zvault.devices.device_record import mark_throw_away
from zvault.devices.device_state import DeviceState
from zvault.ops.context import Context
from zvault.ops.retention.prune_plan import OLDER_VAULT_REASON, plan_prune
from zvault.ops.state.older_vault import find_older_vault
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.state.put_back_book import PutBackBook
from zvault.ops.vault_documents import make_unknown_document
from zvault.ops.vault_facts import make_vault_facts
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.ops.vaults.put_back import note_progress
from zvault.ops.vaults.vault import ManagedVault
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.pool import Zpool
from zvault.zfs.pool.scrub import PoolErrors, Scrubber

GUID = 0xC01D


class Pool:
    """A pool that is at a transaction group, and what is in it."""

    runner = None

    def __init__(self, txg: int) -> None:
        self.txg: int | None = txg

    async def read_txgs(self, _: str) -> PoolTxgs | None:
        return None if self.txg is None else PoolTxgs(self.txg, self.txg)

    async def number(self, *_: object) -> int:
        return 1

    async def tree(self, *_: object, **__: object) -> Any:
        return tree(vaulted("cold/host/tank", 1, 2))


@pytest.fixture
def pool() -> Pool:
    return Pool(500)


@pytest.fixture
def where(pool: Pool, tmp_path: Path) -> Context:
    it = context(START + 100 * HOUR, folder=tmp_path, keep={"source": {"last": 1}, "vault": {"last": 1}})
    it.clients.zpool_of = lambda _: pool  # type: ignore[assignment,method-assign,return-value]
    it.clients.vault_zfs = lambda _: pool  # type: ignore[assignment,method-assign,return-value]
    it.records.pools.note(GUID, SeenPool.of(it.env.vault("cold")))
    return it


async def imported(where: Context) -> str:
    return await note_progress(where, where.env.vault("cold"), GUID, imported=True)


def findings(where: Context) -> list[str]:
    """What the status of a vault that is down says of it."""
    facts = make_vault_facts(where, make_unknown_document(ManagedVault(where, "cold")))
    return [one.why for one in judge_vault(facts).findings if one.condition.key == "put-back"]


def select_pruned(where: Context) -> list[str]:
    on_vault = vaulted("cold/host/tank", 1, 2, 3)
    source = dataset("tank", snap(1), snap(2), snap(3))
    plans = plan_prune(where, where.env.backup("b"), sides(source, on_vault))
    return [snapshot.name for plan in plans for snapshot in plan.selected]


async def test_it_is_told_and_nothing_is_pruned_until_somebody_accepts_it(where: Context, pool: Pool) -> None:
    assert await imported(where) == ""
    assert len(select_pruned(where)) == 4
    pool.txg = 303
    told = await imported(where)
    assert "its store was put back" in told
    assert "the newest snapshot in it was made 2026-11-18 13:06" in told
    assert findings(where) == [find_older_vault(where.env, where.records, "cold")]
    assert select_pruned(where) == []
    (on_source, _) = plan_prune(
        where,
        where.env.backup("b"),
        sides(dataset("tank", snap(1), snap(2)), vaulted("cold/host/tank", 1, 2)),
    )
    assert OLDER_VAULT_REASON in {verdict.reason for verdict in on_source.verdicts}

    vault, said = ManagedVault(where, "cold"), list[str]()
    with pytest.raises(Refused):
        vault.accept_older("another state", said.append)
    assert findings(where)
    vault.accept_older(find_older_vault(where.env, where.records, "cold"), said.append)
    assert findings(where) == []
    assert len(select_pruned(where)) == 4
    assert "goes on from what it has" in said[0]
    with pytest.raises(NotFound):
        vault.accept_older("", said.append)


async def test_the_store_as_it_was_is_told_too(where: Context, pool: Pool) -> None:
    await imported(where)
    pool.txg = 303
    await imported(where)
    pool.txg = 504
    assert "has again what it had" in await imported(where)
    assert findings(where) == []


async def test_a_pool_that_tells_no_transaction_groups_is_not_older(where: Context, pool: Pool) -> None:
    await imported(where)
    pool.txg = None
    assert await imported(where) == ""
    assert findings(where) == []


def test_the_book_outlives_the_daemon(tmp_path: Path) -> None:
    older = PoolProgress(500, 1.5, 2.5, 303, None)
    PutBackBook(RecordStore(tmp_path / "progress")).put(GUID, older)
    book = PutBackBook(RecordStore(tmp_path / "progress"))
    assert book.get(GUID) == older
    assert book.get(1) is None
    (tmp_path / "progress" / f"{GUID:x}").write_text("{")
    assert PutBackBook(RecordStore(tmp_path / "progress")).get(GUID) is None


async def test_the_kernels_statistics_tell_the_newest_and_the_newest_on_disk(tmp_path: Path) -> None:
    # From OpenZFS 2.3.9, shortened.
    (tmp_path / "spl/kstat/zfs/cold").mkdir(parents=True)
    (tmp_path / "spl/kstat/zfs/cold/txgs").write_text(
        "txg      birth            state ndirty       nread        nwritten     reads    writes\n"
        "299      71440018283      C     102400       0            204800       0        11\n"
        "300      71540018283      C     0            0            20480        0        5\n"
        "301      71640018283      C     0            0            0            0        0\n"
        "302      71640018283      S     0            0            0            0        0\n"
        "303      71740018283      O     0            0            0            0        0\n"
    )
    here = Zpool(SimpleNamespace(), tmp_path)  # type: ignore[arg-type]
    assert await here.read_txgs("cold") == PoolTxgs(303, 300), "one that had nothing to write is on no device"
    assert await here.read_txgs("none") is None
    (tmp_path / "spl/kstat/zfs/cold/txgs").write_text("txg      birth            state\n")
    assert await here.read_txgs("cold") is None
    assert await Zpool(SimpleNamespace()).read_txgs("cold") is None  # type: ignore[arg-type]


@pytest.mark.parametrize("copy", [True, False])
async def test_what_is_written_to_a_copy_that_is_thrown_away_is_no_progress(
    where: Context, pool: Pool, monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    """Another host has the pool then, and its store ends with less than this host wrote to the copy."""

    async def devices(_: object) -> list[DeviceState]:
        spec = mark_throw_away("tcp:nas") if copy else "tcp:nas"
        return [DeviceState("cold-0", spec, "/dev/nbd0", "up", "", 1 << 30)]

    monkeypatch.setattr(VaultAssembly, "devices", devices)

    async def health(*_: object) -> PoolErrors:
        return PoolErrors(PoolScan(), 0)

    monkeypatch.setattr(Scrubber, "health", health)
    await imported(where)
    pool.txg = 700
    await examine_pool(where, "cold")
    known = where.records.progress.get(GUID)
    assert known is not None
    assert known.txg == (500 if copy else 700)
