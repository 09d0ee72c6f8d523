"""What a prune would free, against a pool of blocks that knows which snapshots refer to each; and who is in the way."""

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap, with_source, with_vault
from zvault.api.events import RunEvent, WarningEvent
from zvault.core.errors import DeadlineExceeded, NotFound
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepDecision
from zvault.ops.replication.snapshot_holders import describe_clones, describe_holds
from zvault.ops.retention import prune_report
from zvault.ops.retention.prune import HoldExplainer, apply_prune, drop_stuck
from zvault.ops.retention.prune_plan import PrunePlan, plan_prune
from zvault.ops.retention.prune_report import make_prune_part
from zvault.system.process.runner import HostRunner
from zvault.system.snapshot_users import list_snapshot_users, users_argv
from zvault.zfs.host import LocalHost

KEEP_ONE = {"keep": {"source": {"last": 1}, "vault": {"last": 1}}}


class Blocks:
    """Each block is referred to by the snapshots from its birth to its death."""

    def __init__(self, names: Sequence[str], blocks: Sequence[tuple[int, int, int]]) -> None:
        self.names = list(names)
        self.blocks = blocks
        self.asked = 0

    def freed(self, gone: set[int]) -> int:
        return sum(size for first, last, size in self.blocks if set(range(first, last + 1)) <= gone)

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        self.asked += len(ranges)
        at = self.names.index
        return [self.freed(set(range(at(first), at(last) + 1))) for first, last in ranges]


class FakeZfs:
    host = LocalHost(HostRunner())

    def __init__(self, lzc: Any, clones: dict[str, list[str]] | None = None) -> None:
        self.lzc = lzc
        self.cloned = {name: [DatasetName(one) for one in of_it] for name, of_it in (clones or {}).items()}
        self.held: dict[str, set[str]] = {}

    async def clones(self, names: Sequence[str]) -> dict[str, list[DatasetName]]:
        return {name: self.cloned[name] for name in names if name in self.cloned}

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: self.held[name] for name in names if name in self.held}


@given(
    keep=st.lists(st.booleans(), min_size=1, max_size=12),
    blocks=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(1, 100)), max_size=30),
    apiece=st.integers(1, 12),
)
async def test_the_bytes_are_exact_and_add_up(
    keep: list[bool], blocks: list[tuple[int, int, int]], apiece: int
) -> None:
    points = [snap(number) for number in range(len(keep))]
    living = [
        block for block in blocks if block[0] <= block[1]
    ]  # to the last snapshot, or to what came after
    pool = Blocks([point.name for point in points], living)
    plan = PrunePlan(
        "source", tuple(KeepDecision(point, kept, "") for point, kept in zip(points, keep, strict=True))
    )
    before, prune_report.APIECE = prune_report.APIECE, apiece
    try:
        sizes, total = await prune_report._sizes(FakeZfs(pool), plan)  # type: ignore[arg-type]
    finally:
        prune_report.APIECE = before
    selected = {number for number, kept in enumerate(keep) if not kept}
    assert total == pool.freed(selected)
    if apiece == 12:
        assert sum(sizes.values()) == total
        assert set(sizes) == {point.name for point in plan.selected}
    assert all(size >= 0 for size in sizes.values())


async def test_a_size_that_cannot_be_told_is_not_nothing() -> None:
    class Gone:
        async def range_space(self, _: Any) -> list[int]:
            raise NotFound("gone")

    plan = PrunePlan("source", (KeepDecision(snap(1), False, ""),))
    assert await prune_report._sizes(FakeZfs(Gone()), plan) == ({}, None)  # type: ignore[arg-type]


def many(count: int, name: str = "tank") -> list[Any]:
    return [snap(number, name) for number in range(count)]


async def test_the_document_says_what_is_held_back_and_frees_only_what_goes() -> None:
    where = context(START + 100 * HOUR, **KEEP_ONE)
    source, vault = many(10), many(10, "cold/host/tank")
    both = sides(dataset("tank", *source), dataset("cold/host/tank", *vault))
    with_source(where, FakeZfs(Blocks([s.name for s in source], [(0, 4, 7), (5, 6, 1)])))
    with_vault(where, FakeZfs(Blocks([s.name for s in vault], [(0, 8, 5), (2, 3, 2)])))
    document = await make_prune_part(where, where.env.backup("b"), both)
    assert document["over_limit"] == [
        {"side": "source", "dataset": "tank", "selected": 9, "snapshots": 10, "allowed": 5},
        {"side": "vault", "dataset": "cold/host/tank", "selected": 9, "snapshots": 10, "allowed": 5},
    ]
    gone = [row["snapshot"] for row in document["prune"] if not row["keep"]]
    assert gone == [one.name for one in (*source[:5], *vault[:5])]
    assert document["freed"] == {"source": 7, "vault": 2}
    document = await make_prune_part(where, where.env.backup("b"), both, over_limit=True)
    assert document["over_limit"] == []
    assert document["freed"] == {"source": 8, "vault": 7}
    assert sum(not row["keep"] for row in document["prune"]) == 18


def test_each_dataset_has_a_limit_of_its_own() -> None:
    """One that lags far behind must not keep the others from being pruned."""
    where = context(START + 100 * HOUR, **KEEP_ONE)
    pairs = sides(dataset("tank", *many(10)), dataset("cold/host/tank", *many(3, "cold/host/tank")))
    on_source, on_vault = plan_prune(where, where.env.backup("b"), pairs)
    assert (len(on_source.selected), on_source.over) == (2, ())
    assert (len(on_vault.selected), on_vault.over) == (2, ())


async def test_a_run_says_what_the_limit_holds_back_and_how_to_allow_it() -> None:
    where = context(START + 100 * HOUR, **KEEP_ONE)
    both = sides(dataset("tank", *many(10)), dataset("cold/host/tank", *many(10, "cold/host/tank")))
    told: list[str] = []

    def emit(event: RunEvent) -> None:
        told.extend([f"{event.name}: {event.text}"] if isinstance(event, WarningEvent) else [])

    class Destroyer:
        async def destroy(self, names: Sequence[str]) -> None:
            destroyed.extend(names)

    destroyed: list[str] = []
    side: Any = FakeZfs(Destroyer())
    assert await apply_prune(side, side, plan_prune(where, where.env.backup("b"), both), emit) == 10
    assert destroyed == [point.name for point in (*many(10)[:5], *many(10, "cold/host/tank")[:5])]
    assert told == [
        f"warning: prune_limit holds back pruning on the {side}: {name}: 9 of 10 snapshots would go, one run may "
        "prune 5. The next runs prune the rest, oldest first: 'zvaultctl prune b -n --over-limit' shows them. If that "
        "is too much, make 'keep' longer before the next run; '--yes --over-limit' prunes them now"
        for side, name in (("source", "tank"), ("vault", "cold/host/tank"))
    ]


async def test_what_somebody_holds_does_not_count_for_the_limit() -> None:
    # 9 of 10 are unwanted, 5 may go; 4 are held, and would not go anyway.
    where = context(START + 100 * HOUR, **KEEP_ONE)
    points = many(10)
    on_source, _ = plan_prune(
        where,
        where.env.backup("b"),
        sides(dataset("tank", *points), dataset("cold/host/tank", points[9])),
    )
    assert (len(on_source.over), on_source.selected) == (1, points[:5])
    zfs = FakeZfs(None)
    zfs.held = {point.name: {"mine"} for point in points[:4]}
    found = await drop_stuck(zfs, on_source)  # type: ignore[arg-type]
    assert (found.over, found.selected) == ((), points[4:9])
    assert [verdict.reason for verdict in found.verdicts[:4]] == [
        f"held by mine ('zfs release mine {point.name}' releases it)" for point in points[:4]
    ]


async def test_what_is_held_and_dated_wrongly_keeps_what_shows_that() -> None:
    """Else it would stand for its period in the next run, and displace the genuine one."""
    where = context(START + 100 * HOUR, keep={"vault": {"last": 1}}, prune_limit="100%")
    target = "cold/host/tank"
    late = replace(snap(1, target), guid=999, createtxg=5, snapname="zvault_2026-11-18T12:06:41Z")
    vault = [snap(number, target) for number in (1, 2, 3, 4)] + [late, snap(9, target)]
    _, on_vault = plan_prune(
        where, where.env.backup("b"), sides(dataset("tank", snap(9)), dataset(target, *vault))
    )
    assert on_vault.selected == [late, *vault[:4]], "the worst dated first"
    zfs = FakeZfs(None)
    zfs.held = {late.name: {"mine"}}
    found = await drop_stuck(zfs, on_vault)  # type: ignore[arg-type]
    assert found.selected == vault[:3]
    assert found.verdicts[3].reason == f"shows that @{late.snapname} is dated wrongly, as it came later"


async def test_many_verdicts_are_never_there_at_once() -> None:
    """They are made one by one, so nothing of a million is left to be freed in one go, in the event loop."""
    count = 3000
    where = context(START + 10_000 * HOUR, **KEEP_ONE)
    source, vault = many(count), many(count, "cold/host/tank")
    both = sides(dataset("tank", *source), dataset("cold/host/tank", *vault))
    held = FakeZfs(Blocks([one.name for one in source], []))
    held.held = {source[7].name: {"mine"}}
    with_source(where, held)
    with_vault(where, FakeZfs(Blocks([one.name for one in vault], [])))
    plans = plan_prune(where, where.env.backup("b"), both)
    left = [await drop_stuck(held, plan) for plan in plans]  # type: ignore[arg-type]
    assert [sum(not one.keep for one in plan.verdicts) for plan in left] == [count // 2] * 2
    assert next(iter(left[0].groups))[7].reason.startswith("held by mine")
    document = await make_prune_part(where, where.env.backup("b"), both)
    assert len(document["prune"]) == 2 * count
    gc.collect()
    assert sum(isinstance(one, KeepDecision) for one in gc.get_objects()) < count // 10


# Who is in the way


async def test_what_is_held_or_cloned_by_now_is_not_selected() -> None:
    plan = PrunePlan(
        "vault", tuple(KeepDecision(snap(number), number == 4, "kept") for number in (1, 2, 3, 4))
    )
    zfs = FakeZfs(None, {snap(1).name: ["cold/work"], snap(4).name: ["cold/too"]})
    zfs.held = {snap(3).name: {"mine"}}
    found = await drop_stuck(zfs, plan)  # type: ignore[arg-type]
    assert found.selected == [snap(2)]
    assert found.verdicts[0].reason.startswith("cloned as cold/work ")
    assert found.verdicts[2].reason.startswith("held by mine ")
    assert found.verdicts[3] == plan.verdicts[3]


async def test_everyone_in_the_way_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def users(*_: object) -> list[str]:
        return ["mounted at /mnt"]

    monkeypatch.setattr(HoldExplainer, "_users", users)
    zfs = FakeZfs(None, {"a@1": ["a/x", "a/y", "b/%recv"]})
    zfs.held = {"a@1": {"mine"}, "a@2": set()}
    assert await HoldExplainer(zfs)(["a@1", "a@2"]) == {  # type: ignore[arg-type]
        "a@1": "held by mine ('zfs release mine a@1' releases it); a receive into b is under way, or waits to be "
        "resumed; cloned as a/x, a/y ('zfs promote a/x' or destroying it frees it); it is mounted at /mnt",
        "a@2": "it is mounted at /mnt",
    }


async def test_an_explanation_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hung:
        host = FakeZfs.host

        async def holds(self, _: Any) -> None:
            raise DeadlineExceeded("hangs")

    async def users(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(HoldExplainer, "_users", users)
    assert await HoldExplainer(Hung())(["a@1"]) == {"a@1": ""}  # type: ignore[arg-type]


def test_what_zvault_holds_itself_is_not_for_people_to_release() -> None:
    assert describe_holds("a@1", {"zvault:2e"}) == "held by zvault:2e"
    assert describe_holds("a@1", {"zvault:2e", "mine"}) == "held by mine, zvault:2e"
    mounted = describe_holds("a@1", {"zvault:mount-1f"})
    assert (
        mounted == "held by zvault:mount-1f, while it is looked into ('zvaultctl mount', 'browse' or 'diff')"
    )


def test_nothing_in_the_way_says_nothing() -> None:
    assert describe_holds("a@1", set()) == describe_clones([]) == ""


def test_mounts_and_senders_are_found_in_proc(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mounts").write_text(
        "tank/my\\040files@s1 /mnt/a\\040b zfs ro 0 0\ntank@s1 /mnt/c zfs ro 0 0\n/dev/sda / ext4 rw 0 0\n"
    )
    for pid, argv in (
        (1, "/sbin/init\0"),
        (22, "zfs\0send\0-i\0#b\0tank/my files@s1\0"),
        (23, "vi\0tank@s1\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text(argv)
    (tmp_path / "99").mkdir()  # has just ended
    assert list_snapshot_users("tank/my files@s1", tmp_path) == [
        "mounted at /mnt/a b",
        "'zfs send' reads it (process 22)",
    ]
    assert list_snapshot_users("tank@s1", tmp_path) == ["mounted at /mnt/c"]
    assert list_snapshot_users("tank@s2", tmp_path) == []


async def test_the_processes_of_this_host_are_asked_by_a_program_of_its_own() -> None:
    told = await HostRunner().run(users_argv("no/such@snapshot"), deadline=30)
    assert told.stdout == ""
