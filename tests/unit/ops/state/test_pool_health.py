"""What is known of a vault's scrubs and damage, and what of it outlasts the daemon."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.integrity.damage import DamagedFile, HealTarget, LoggedBlock
from zvault.core.policy.scrub import PoolScan
from zvault.ops.state.pool_health import PoolCondition, PoolConditions
from zvault.ops.vaults import examine_pool
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.scrub import PoolErrors

HURT = DamagedFile("cold/a", "s1", "/f")


def store(path: Path) -> RecordStore:
    return RecordStore(path, boot_id="boot", clock=lambda: 5.0)


def test_what_decides_outlasts_the_daemon(tmp_path: Path):
    seen = PoolCondition(
        7.0, PoolScan("paused", total=9, done=4), 2, 100.0, 50.0, held=True, damages=(HURT,), named=2
    )
    PoolConditions(store(tmp_path)).put("cold", seen)
    again = PoolConditions(store(tmp_path)).get("cold")
    assert again is not None
    assert (again.scan.state, again.errors, again.last, again.born) == ("paused", 2, 100.0, 50.0)
    assert again.held
    assert again.damages == (HURT,)


def test_a_vault_never_seen_is_not_known(tmp_path: Path):
    assert PoolConditions(store(tmp_path)).get("cold") is None


def test_what_is_no_condition_is_not_known_either(tmp_path: Path):
    store(tmp_path).put("cold", {"state": "paused"})
    assert PoolConditions(store(tmp_path)).get("cold") is None


def test_names_stay_as_long_as_there_are_errors():
    before = PoolCondition(1.0, errors=2, damages=(HURT,), named=2)
    sick = PoolCondition.of(PoolErrors(PoolScan("finished"), 3), 2.0, 0.0, before)
    assert (sick.damages, sick.named, sick.errors) == ((HURT,), 2, 3)
    assert PoolCondition.of(PoolErrors(PoolScan("finished"), 0), 3.0, 0.0, sick).damages == ()


def test_what_zfs_listed_of_a_pool_that_was_given_up_is_not_known_to_be_damage(tmp_path: Path):
    for wounds, left in (((), (0, ())), ((WOUND,), (1, (HURT,)))):
        seen = PoolCondition(7.0, errors=9, last=100.0, damages=(HURT,), named=9, wounds=wounds, checksums=3)
        conditions = PoolConditions(store(tmp_path))
        conditions.put("cold", seen)
        conditions.given_up("cold")
        for now in (conditions.get("cold"), PoolConditions(store(tmp_path)).get("cold")):
            assert now is not None
            assert (now.errors, now.damages) == left
            assert now.named in (0, now.errors)
            assert (now.last, now.checksums) == (100.0, 0)
    conditions.given_up("never seen")


WOUND = HealTarget("cold/a", "/f", ("s1",), LoggedBlock("cold/a", 8, 0, 3, 17), exact=True)


def test_blocks_count_as_damaged_until_a_whole_scrub_has_ended(tmp_path: Path):
    """Whatever ZFS counts by then: who has the errors listed makes it forget some."""
    sick = PoolCondition(20.0, errors=1, last=10.0).hurt([HURT], [WOUND, WOUND])
    assert (sick.errors, sick.named, sick.wounds) == (2, 2, (WOUND, WOUND))
    forgotten = PoolCondition.of(PoolErrors(PoolScan("finished"), 0, last=10.0), 30.0, 0.0, sick)
    assert (forgotten.errors, forgotten.damages, forgotten.wounds) == (2, (HURT,), (WOUND, WOUND))
    PoolConditions(store(tmp_path)).put("cold", forgotten)
    kept = PoolConditions(store(tmp_path)).get("cold")
    assert kept is not None
    assert (kept.wounds, kept.noted) == ((WOUND, WOUND), 20.0)
    well = PoolCondition.of(PoolErrors(PoolScan("finished"), 0, last=25.0), 40.0, 0.0, kept)
    assert (well.errors, well.damages, well.wounds) == (0, (), ())
    healed = PoolCondition.of(PoolErrors(PoolScan("finished"), 0, last=10.0), 50.0, 0.0, sick).hurt([], [])
    assert healed.wounds == ()


def test_a_doubt_lasts_until_a_whole_scrub_has_ended_that_began_later(tmp_path: Path):
    conditions = PoolConditions(store(tmp_path))
    conditions.doubt("cold", 100.0)
    again = PoolConditions(store(tmp_path)).get("cold")
    assert again is not None
    assert again.doubted == 100.0
    for scan in (
        PoolScan("finished", started=90.0, ended=110.0),
        PoolScan("scanning", started=120.0),
        PoolScan("canceled", started=120.0),
        PoolScan("finished", started=120.0, ended=130.0, resilver=True),
    ):
        assert PoolCondition.of(PoolErrors(scan, 0), 140.0, 0.0, again).doubted == 100.0
    scan = PoolScan("finished", started=120.0, ended=130.0)
    assert PoolCondition.of(PoolErrors(scan, 0), 140.0, 0.0, again).doubted is None


def test_errors_of_what_is_half_received_are_no_damage(tmp_path: Path):
    """From the first look on, also before anything is named, and over a restart; blocks of the rest still are."""
    before = PoolCondition(1.0)
    seen = PoolCondition.of(PoolErrors(PoolScan("finished"), 3), 2.0, 0.0, before, ["cold/a"])
    assert (seen.errors, seen.damaging, seen.half_received) == (3, 0, ("cold/a",))
    named = seen.hurt([HURT], [WOUND], ["cold/a"])
    assert (named.excused, named.damaging, named.damages) == (2, 1, (HURT,))
    PoolConditions(store(tmp_path)).put("cold", named)
    kept = PoolConditions(store(tmp_path)).get("cold")
    assert kept is not None
    assert (kept.excused, kept.half_received) == (2, ("cold/a",))
    more = PoolCondition.of(PoolErrors(PoolScan("finished"), 5), 3.0, 0.0, kept)
    assert more.damaging == 3, "what is new and nobody asked about is not excused"
    assert PoolCondition.of(PoolErrors(PoolScan("finished"), 5), 3.0, 0.0, kept, []).damaging == 5
    assert (
        PoolCondition.of(
            PoolErrors(PoolScan("finished"), 0), 3.0, 0.0, replace(kept, wounds=())
        ).half_received
        == ()
    )
    rest = kept.accuse()
    assert (rest.damaging, rest.named, rest.half_received) == (3, 0, ())
    assert (rest.document()["errors"], named.document()["unexplained"]) == (3, 2)


def test_a_new_pool_counts_as_scrubbed():
    assert PoolCondition(9.0, born=3.0).since == 3.0
    assert PoolCondition(9.0, born=3.0, last=5.0).since == 5.0


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_look_that_began_before_the_pool_was_given_up_is_not_noted(
    given_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    conditions = PoolConditions(store(tmp_path))
    conditions.put("cold", PoolCondition(1.0, born=1.0))

    class Looking:
        def __init__(self, *_: object) -> None:
            pass

        async def health(self, *_: object) -> PoolErrors:
            if given_up:
                conditions.given_up("cold")
            return PoolErrors(PoolScan("finished"), 44)

    async def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(examine_pool, "Scrubber", Looking)
    monkeypatch.setattr(examine_pool, "list_half_received", nothing)
    context: Any = SimpleNamespace(
        env=SimpleNamespace(
            vault=lambda _: SimpleNamespace(pool="cold", device=[]), clock=SimpleNamespace(time=lambda: 9.0)
        ),
        clients=SimpleNamespace(
            zpool_of=lambda _: SimpleNamespace(runner=None), vault_zfs=lambda _: SimpleNamespace(host=None)
        ),
        records=SimpleNamespace(conditions=conditions, pools=SimpleNamespace(last=lambda _: None)),
    )
    await examine_pool.examine_pool(context, "cold")
    seen = conditions.get("cold")
    assert seen is not None
    assert seen.errors == (0 if given_up else 44)
