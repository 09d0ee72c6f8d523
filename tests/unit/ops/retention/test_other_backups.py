"""Backups of one source that share their snapshots: none prunes what another has still to send. And what arrived."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import HOUR, START, StoppedClock, dataset, sides, snap
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.model import Bookmark, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_disproved_mark_name
from zvault.ops.context import Context
from zvault.ops.replication.base_guard import make_mark_name
from zvault.ops.retention.arrivals import Arrivals, list_arrivals
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.state.environment import Environment
from zvault.ops.state.pool_book import SeenPool
from zvault.system.process.runner import HostRunner

COLD, USB, REPLACED = 0xC01D, 0x05B, 0x01D
KEEP = {"source": {"last": 1}}


def shared(folder: Path, *, known: bool = True, **usb: Any) -> Context:
    """Two backups of ``tank``, into the vaults ``cold`` and ``usb``, whose pools were seen if they are ``known``."""
    config = Config.model_validate(
        {
            "daemon": {"timezone": "UTC"},
            "vault": {"cold": {"pool": "cold"}, "usb": {"pool": "usb"}},
            "backup": {
                "b": {"source": "tank", "vault": "cold", "keep": KEEP},
                "usb": {"source": "tank", "vault": "usb", "keep": KEEP, **usb},
            },
        }
    )
    clock = StoppedClock(START + 100 * HOUR)
    paths = Paths(folder, folder, folder, folder)
    where = Context.of(Environment(config, paths, HostRunner(), "host", clock))
    for guid, name in ((COLD, "cold"), (USB, "usb")) if known else ():
        where.records.pools.note(guid, SeenPool(name, name))
    return where


def mark(pool: int, number: int) -> Bookmark:
    base = snap(number)
    return Bookmark(DatasetName("tank"), make_mark_name(pool, base.guid), base.guid, number, base.creation)


def reasons(where: Context, *points: Snapshot | Bookmark) -> dict[int, str]:
    """Of each of six snapshots, all of which the vault cold has, what becomes of it on the source, and why."""
    source = dataset("tank", *(snap(number) for number in range(1, 7)), *points)
    vault = dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in range(1, 7)))
    on_source, _ = plan_prune(where, where.env.backup("b"), sides(source, vault), over_limit=True)
    return {one.snapshot.createtxg: one.reason if one.keep else "" for one in on_source.verdicts}


UNSENT = "backup usb has not sent it yet"
BASE = "the base of the next incremental"


def test_what_another_backup_has_still_to_send_stays(tmp_path: Path) -> None:
    found = reasons(shared(tmp_path), mark(COLD, 6), mark(USB, 3))
    assert found == {1: "", 2: "", 3: "", 4: UNSENT, 5: UNSENT, 6: BASE}


def test_once_the_other_has_it_too_it_goes(tmp_path: Path) -> None:
    assert reasons(shared(tmp_path), mark(COLD, 6), mark(USB, 6)) == {
        **dict.fromkeys(range(1, 6), ""),
        6: BASE,
    }


def test_one_that_never_ran_has_everything_to_send(tmp_path: Path) -> None:
    everything = {**dict.fromkeys(range(1, 6), UNSENT), 6: BASE}
    assert reasons(shared(tmp_path), mark(COLD, 6)) == everything
    # A mark that may be that of another pool proves nothing.
    assert reasons(shared(tmp_path / "unknown", known=False), mark(USB, 5)) == everything


def test_what_was_taken_back_of_the_other_proves_nothing(tmp_path: Path) -> None:
    """Its vault was seen without what the bookmark told: it has to be sent again, from wherever the vault is now."""
    gone = replace(mark(USB, 6), markname=make_disproved_mark_name(USB, snap(6).guid))
    found = reasons(shared(tmp_path), mark(COLD, 6), mark(USB, 3), gone)
    assert found == {1: "", 2: "", 3: "", 4: UNSENT, 5: UNSENT, 6: BASE}
    found = reasons(shared(tmp_path / "all"), mark(COLD, 6), gone)
    assert found == {**dict.fromkeys(range(1, 6), UNSENT), 6: BASE}


@pytest.mark.parametrize("begins_anew", [False, True])
def test_what_a_disk_had_that_another_replaced_proves_nothing(tmp_path: Path, begins_anew: bool) -> None:
    """Another disk took the place, and the name, of the one that had the most; or is to take it."""
    where, vault = shared(tmp_path), SeenPool("usb", "usb")
    where.records.pools.note(REPLACED, vault)
    if begins_anew:
        where.records.pools.give_up(REPLACED, vault)
        found = reasons(where, mark(COLD, 6), mark(REPLACED, 6))
        assert found == {**dict.fromkeys(range(1, 6), UNSENT), 6: BASE}
    where.records.pools.note(USB, vault)
    found = reasons(where, mark(COLD, 6), mark(USB, 3), mark(REPLACED, 6))
    assert found == {1: "", 2: "", 3: "", 4: UNSENT, 5: UNSENT, 6: BASE}


def test_what_the_other_does_not_take_it_does_not_need(tmp_path: Path) -> None:
    nothing = {**dict.fromkeys(range(1, 6), ""), 6: BASE}
    for number, usb in enumerate(
        (
            {"snapshot": {"prefix": "usb"}},
            {"backlog": "newest"},
            {"exclude": ["tank"]},
            {"source": "tank/home"},
            {"source": "ssh://root@filer/tank"},
        )
    ):
        assert reasons(shared(tmp_path / str(number), **usb), mark(COLD, 6)) == nothing, usb
    # By `also` it sends snapshots of another prefix.
    found = reasons(shared(tmp_path / "also", snapshot={"prefix": "usb"}, also=["zvault_*"]), mark(COLD, 6))
    assert found[1] == UNSENT


@given(base=st.integers(0, 6), other=st.integers(0, 6))
def test_nothing_newer_than_any_base_is_ever_selected(base: int, other: int, tmp_path_factory: Any) -> None:
    where = shared(tmp_path_factory.mktemp("pools"))
    marks = [mark(pool, number) for pool, number in ((COLD, base), (USB, other)) if number]
    source = dataset("tank", *(snap(number) for number in range(1, 7)), *marks)
    there = [snap(number, "cold/host/tank") for number in range(1, base + 1)]
    vault = dataset("cold/host/tank", *there) if there else None
    on_source, _ = plan_prune(where, where.env.backup("b"), sides(source, vault), over_limit=True)
    assert all(one.createtxg < base and one.createtxg <= other for one in on_source.selected)


# What arrived in a run


def test_what_a_run_sent_arrived_on_both_sides() -> None:
    source = dataset("tank", *(snap(number) for number in range(1, 7)))
    vault = [snap(number, "cold/host/tank") for number in range(1, 7)]
    before = sides(source, dataset("cold/host/tank", *vault[:3]))
    after = sides(source, dataset("cold/host/tank", *vault))
    new = frozenset(100 + number for number in (4, 5, 6))
    assert list_arrivals(before, after) == Arrivals(new, new)
    assert list_arrivals(after, after) == Arrivals()


def test_a_new_vault_makes_no_arrivals_of_the_sources_history() -> None:
    source = dataset("tank", *(snap(number) for number in range(1, 7)))
    after = sides(source, dataset("cold/host/tank", *(snap(n, "cold/host/tank") for n in range(1, 7))))
    found = list_arrivals(sides(source, None), after)
    assert found == Arrivals(frozenset(), frozenset(100 + number for number in range(1, 7)))


def test_prune_limit_counts_what_was_there_before_the_run(tmp_path: Path) -> None:
    where = shared(tmp_path, source="tank/home")
    source = dataset("tank", *(snap(number) for number in range(1, 31)))
    vault = [snap(number, "cold/host/tank") for number in range(1, 31)]
    before = sides(source, dataset("cold/host/tank", *vault[:10]))
    after = sides(source, dataset("cold/host/tank", *vault))
    arrived = list_arrivals(before, after)
    on_source, _ = plan_prune(where, where.env.backup("b"), after, arrived=arrived)
    # Half of the ten that were on the vault before, and of those that came none is kept by a rule but the last.
    assert [one.createtxg for one in on_source.selected] == [1, 2, 3, 4, 5, *range(11, 30)]
    (over,) = on_source.over
    assert (over.count, over.selected, over.allowed) == (10, 10, 5)
