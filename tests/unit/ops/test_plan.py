"""What a look at both sides makes of them, and what prune plans must never doom."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_world import HOUR, START, context, dataset, sides, snap, tag, tree

from zvault.core.errors import NotFound
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.replication import Action, Interrupted, TransferPlan
from zvault.ops.plan import look, moves, ours_of, plan_all, plan_prune, selected

PRUNE_HARD = {"keep": {"source": {"last": 1}, "vault": {"last": 1}}}


def names(snapshots: Any) -> list[str]:
    return [snap.tag for snap in snapshots]


# Looking


class FakeZfs:
    def __init__(self, tree: Tree | None, holds: dict[str, set[str]] | None = None) -> None:
        self.there = tree
        self.known = holds or {}
        self.asked: list[Any] = []

    async def tree(self, root: str) -> Tree:
        self.asked.append(root)
        assert self.there is not None
        return self.there

    async def tree_or_none(self, root: str) -> Tree:
        self.asked.append(root)
        return self.there or Tree()

    async def holds(self, snapshots: list[str]) -> dict[str, set[str]]:
        self.asked.append(snapshots)
        return {name: self.known[name] for name in snapshots if name in self.known}

    async def interrupted(self, token: str) -> Interrupted:
        self.asked.append(token)
        return Interrupted(token, 102)


async def test_one_look_lists_each_side_once_and_asks_only_for_holds_there_are() -> None:
    held = snap(1, held=1)
    source = FakeZfs(tree(dataset("tank", held, snap(2)), dataset("tank/a")), {held.name: {"zvault:1f"}})
    vault = FakeZfs(tree(dataset("cold/host/tank")))
    where = context()
    where.source = source  # type: ignore[assignment]
    found = await look(where, where.backup("b"), vault)  # type: ignore[arg-type]
    assert [(pair[0].name, pair[1]) for pair in found.pairs] == [
        ("tank", "cold/host/tank"),
        ("tank/a", "cold/host/tank/a"),
    ]
    assert source.asked == ["tank", [held.name]]
    assert vault.asked == ["cold/host/tank"]
    assert found.holds == {held.name: {"zvault:1f"}}
    assert found.vault_seen


async def test_a_vault_that_is_down_was_not_seen_rather_than_empty() -> None:
    where = context()
    where.source = FakeZfs(tree(dataset("tank")))  # type: ignore[assignment]
    found = await look(where, where.backup("b"), None)
    assert not found.vault_seen
    assert len(found.vault) == 0


def test_excludes_leave_out_what_they_name() -> None:
    source = tree(dataset("tank"), dataset("tank/a"), dataset("tank/a/tmp"), dataset("tank/b"))
    backup = context(exclude=["tank/a", "tank/b"]).backup("b")
    assert [dataset.name for dataset in selected(backup, source)] == ["tank", "tank/a/tmp"]


def test_a_backup_of_nothing_is_an_error() -> None:
    backup = context(exclude=["tank", "tank/**"]).backup("b")
    with pytest.raises(NotFound, match="nothing is left of 'tank'"):
        selected(backup, tree(dataset("tank"), dataset("tank/a")))


def test_ours_is_what_has_exactly_our_form() -> None:
    ours = ours_of(context(snapshot={"prefix": "nightly"}).backup("b"))
    yes = "nightly_2026-11-21T09:00:00Z"
    no = [
        "zvault_2026-11-21T09:00:00Z",
        "nightly_2026-11-21",
        "nightly_2026-02-30T09:00:00Z",
        f"{yes}x",
        "nightly_",
    ]
    assert [ours(Snapshot("tank", tag, 1, 1, 1)) for tag in [yes, *no]] == [True] + [False] * 5


async def test_tokens_are_asked_of_the_source_only_where_there_are_any() -> None:
    where = context()
    source = FakeZfs(None)
    where.source = source  # type: ignore[assignment]
    with_token = sides(
        dataset("tank", snap(1), snap(2)), dataset("cold/host/tank", snap(1), resume_token="1-abc")
    )
    (plan,) = await plan_all(where, where.backup("b"), with_token)
    assert plan.action is Action.RESUME
    assert source.asked == ["1-abc"]
    (plan,) = await plan_all(where, where.backup("b"), sides(dataset("tank", snap(1)), None))
    assert plan.action is Action.FULL
    assert source.asked == ["1-abc"]


@pytest.mark.parametrize("action", list(Action))
def test_only_streams_move_bytes(action: Action) -> None:
    streams = {Action.FULL, Action.INCREMENTAL, Action.RESUME}
    assert moves(TransferPlan("tank", "cold/tank", action, "")) == (action in streams)


# Pruning


def pruned(
    source: Dataset, vault: Dataset | None, holds: dict[str, set[str]] | None = None, **keep: Any
) -> Any:
    where = context(START + 100 * HOUR, **(keep or PRUNE_HARD))
    on_source, on_vault = plan_prune(where, where.backup("b"), sides(source, vault, holds))
    return on_source, on_vault


def reasons(plan: Any) -> dict[str, str]:
    return {verdict.snapshot.tag: verdict.reason for verdict in plan.verdicts}


def test_a_prune_plan_says_of_every_snapshot_why() -> None:
    held = snap(1, held=1)
    source = dataset("tank", held, snap(2), snap(3, name="by-hand"), snap(4), snap(5), snap(6))
    vault = dataset("cold/host/tank", snap(2, "cold/host/tank"), snap(4, "cold/host/tank"))
    on_source, on_vault = pruned(source, vault, {held.name: {"zvault:2e", "mine"}})
    assert reasons(on_source) == {
        tag(1): "held by mine, zvault:2e",
        tag(2): "no rule keeps it",
        "by-hand": "not made by zvault",
        tag(4): "the base of the next incremental",
        tag(5): "not on the vault yet",
        tag(6): "not on the vault yet",
    }
    assert reasons(on_vault) == {tag(2): "no rule keeps it", tag(4): "the base of the next incremental"}
    assert names(on_source.doomed) == names(on_vault.doomed) == [tag(2)]


def test_without_a_common_base_nothing_is_pruned_anywhere() -> None:
    source = dataset("tank", snap(11), snap(12))
    vault = dataset("cold/host/tank", snap(1, "cold/host/tank"), snap(2, "cold/host/tank"))
    on_source, on_vault = pruned(source, vault)
    assert on_source.doomed == on_vault.doomed == []
    assert set(reasons(on_source).values()) == {"not on the vault yet"}
    assert set(reasons(on_vault).values()) == {"no base is shared with the source any more"}


def test_while_the_vault_is_unseen_the_source_keeps_all() -> None:
    on_source, on_vault = pruned(dataset("tank", snap(1), snap(2)), None)
    assert on_source.doomed == on_vault.doomed == []


def test_a_base_that_is_a_bookmark_protects_the_vaults_snapshot() -> None:
    mark = Bookmark("tank", "zvault_1f_66", 102, 2, 0)
    vault = dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in (1, 2)))
    on_source, on_vault = pruned(dataset("tank", mark, snap(1), snap(3)), vault)
    assert names(on_source.doomed) == names(on_vault.doomed) == [tag(1)]


NUMBERS = st.sets(st.integers(1, 12), max_size=9)


@settings(max_examples=150)
@given(
    on_source=NUMBERS,
    on_vault=NUMBERS,
    marks=NUMBERS,
    held=NUMBERS,
    foreign=NUMBERS,
    keep=st.fixed_dictionaries(
        {"last": st.integers(0, 2), "hourly": st.integers(0, 2), "daily": st.integers(0, 1)}
    ),
)
def test_no_prune_takes_a_base_a_hold_what_was_not_sent_or_what_is_not_ours(
    on_source: set[int],
    on_vault: set[int],
    marks: set[int],
    held: set[int],
    foreign: set[int],
    keep: dict[str, int],
) -> None:
    def side(name: str, numbers: set[int]) -> list[Snapshot]:
        return [
            snap(number, name, name=f"by-hand-{number}" if number in foreign else None, held=number in held)
            for number in sorted(numbers)
        ]

    bookmarks = [Bookmark("tank", f"b{number}", 100 + number, number, 0) for number in sorted(marks)]
    source = dataset("tank", *side("tank", on_source), *bookmarks)
    vault = dataset("cold/host/tank", *side("cold/host/tank", on_vault))
    plans = pruned(source, vault, keep={"source": keep, "vault": keep})
    base = max((number for number in on_vault if number in on_source | marks), default=None)
    for plan in plans:
        gone = {doomed.createtxg for doomed in plan.doomed}
        assert not gone & (held | foreign)
        assert base not in gone
        if plan.side == "source":
            assert all(base is not None and number < base for number in gone)
        if base is None:
            assert not gone
        assert len(plan.verdicts) == len(on_source if plan.side == "source" else on_vault)
        assert all(verdict.reason for verdict in plan.verdicts)
