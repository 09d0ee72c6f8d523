"""What a prune plan says of every snapshot, and what it must never select."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    TANK,
    context,
    dataset,
    names,
    sides,
    snap,
    snapname,
    tree,
    vaulted,
)
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.ops.replication.listing import BothListings
from zvault.ops.retention.prune_plan import plan_prune

PRUNE_HARD = {"keep": {"source": {"last": 1}, "vault": {"last": 1}}}


def pruned(source: Dataset, vault: Dataset | None, **keep: Any) -> Any:
    where = context(START + 100 * HOUR, **(keep or PRUNE_HARD))
    on_source, on_vault = plan_prune(where, where.env.backup("b"), sides(source, vault))
    return on_source, on_vault


def reasons(plan: Any) -> dict[str, str]:
    return {verdict.snapshot.snapname: verdict.reason for verdict in plan.verdicts}


def test_a_prune_plan_says_of_every_snapshot_why() -> None:
    source = dataset("tank", snap(1), snap(2), snap(3, name="by-hand"), snap(4), snap(5), snap(6))
    vault = dataset("cold/host/tank", snap(2, "cold/host/tank"), snap(4, "cold/host/tank"))
    on_source, on_vault = pruned(source, vault)
    assert reasons(on_source) == {
        snapname(1): "no rule keeps it",
        snapname(2): "no rule keeps it",
        "by-hand": "not made by zvault",
        snapname(4): "the base of the next incremental",
        snapname(5): "not on the vault yet",
        snapname(6): "not on the vault yet",
    }
    assert reasons(on_vault) == {
        snapname(2): "no rule keeps it",
        snapname(4): "the base of the next incremental",
    }
    assert names(on_source.selected) == [snapname(1), snapname(2)]
    assert names(on_vault.selected) == [snapname(2)]


def test_without_a_common_base_nothing_is_pruned_anywhere() -> None:
    source = dataset("tank", snap(11), snap(12))
    vault = dataset("cold/host/tank", snap(1, "cold/host/tank"), snap(2, "cold/host/tank"))
    on_source, on_vault = pruned(source, vault)
    assert on_source.selected == on_vault.selected == []
    assert set(reasons(on_source).values()) == {"not on the vault yet"}
    assert set(reasons(on_vault).values()) == {"no base is shared with the source any more"}


def test_while_the_vault_is_unseen_the_source_keeps_all() -> None:
    on_source, on_vault = pruned(dataset("tank", snap(1), snap(2)), None)
    assert on_source.selected == on_vault.selected == []


def test_a_base_that_is_a_bookmark_protects_the_vaults_snapshot() -> None:
    mark = Bookmark(TANK, "zvault_1f_66", 102, 2, 0)
    vault = dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in (1, 2)))
    on_source, on_vault = pruned(dataset("tank", mark, snap(1), snap(3)), vault)
    assert names(on_source.selected) == names(on_vault.selected) == [snapname(1)]


NUMBERS = st.sets(st.integers(1, 12), max_size=9)


@settings(max_examples=cases(150))
@given(
    on_source=NUMBERS,
    on_vault=NUMBERS,
    marks=NUMBERS,
    foreign=NUMBERS,
    keep=st.fixed_dictionaries(
        {"last": st.integers(0, 2), "hourly": st.integers(0, 2), "daily": st.integers(0, 1)}
    ),
)
def test_no_prune_takes_a_base_what_was_not_sent_or_what_is_not_ours(
    on_source: set[int],
    on_vault: set[int],
    marks: set[int],
    foreign: set[int],
    keep: dict[str, int],
) -> None:
    def side(name: str, numbers: set[int]) -> list[Snapshot]:
        return [
            snap(number, name, name=f"by-hand-{number}" if number in foreign else None)
            for number in sorted(numbers)
        ]

    bookmarks = [Bookmark(TANK, f"b{number}", 100 + number, number, 0) for number in sorted(marks)]
    source = dataset("tank", *side("tank", on_source), *bookmarks)
    vault = dataset("cold/host/tank", *side("cold/host/tank", on_vault))
    plans = pruned(source, vault, keep={"source": keep, "vault": keep})
    base = max((number for number in on_vault if number in on_source | marks), default=None)
    for plan in plans:
        gone = {one.createtxg for one in plan.selected}
        assert not gone & foreign
        assert base not in gone
        if plan.side == "source":
            assert all(base is not None and number < base for number in gone)
        if base is None:
            assert not gone
        assert len(plan.verdicts) == len(on_source if plan.side == "source" else on_vault)
        assert all(verdict.reason for verdict in plan.verdicts)


def both(source: Tree, vault: Tree, *left_out: str, apart: tuple[str, ...] = ()) -> BothListings:
    placed = [(one, f"cold/host/{one.name}") for one in source]
    pairs = tuple(one for one in placed if one[0].name not in left_out)
    rest = tuple(one for one in placed if one[0].name in left_out)
    return BothListings(source, vault, pairs, left_out=rest, apart=apart)


def pruned_on_vault(keep: dict[str, Any], found: BothListings) -> list[str]:
    where = context(START + 100 * HOUR, keep=keep, prune_limit="100%")
    return [
        one.name.removeprefix("cold/host/")
        for one in plan_prune(where, where.env.backup("b"), found)[1].selected
    ]


GONE_HARD = {"source": {}, "vault": {}, "gone": {"within": "1s"}}


def test_what_is_gone_from_the_source_has_rules_of_its_own() -> None:
    source = tree(dataset("tank", snap(7)), dataset("tank/x", snap(27, "tank/x")))
    aside = "cold/host/tank/a_zvault-conflict-20261121T090000Z"
    by_hand = snap(4, "cold/host/tank/gone", name="by-hand")
    vault = tree(
        vaulted("cold/host/tank", 6, 7),
        dataset("cold/host/tank/gone", *(snap(n, "cold/host/tank/gone") for n in (1, 2, 3)), by_hand),
        vaulted(aside, 11, 12),
        vaulted("cold/host/tank/held", 14, 15),
        dataset("cold/host/tank/clone", origin=f"cold/host/tank/held@{snapname(14)}"),
        vaulted("cold/host/tank/other", 21, 22, 23),
        vaulted("cold/host/tank/x", 25, 26, 27),
    )
    found = both(source, vault, "tank/x", apart=("cold/host/tank/other",))
    assert pruned_on_vault({}, found) == []
    # The newest stays, what zvault did not make, what was set aside, what is excluded, and what is another backup's.
    assert pruned_on_vault(GONE_HARD, found) == [f"tank/gone@{snapname(1)}", f"tank/gone@{snapname(2)}"]


def test_what_was_only_renamed_is_not_gone() -> None:
    """Also where it cannot simply be renamed on the vault: its history is still to be built upon."""
    source = tree(dataset("tank"), dataset("tank/new", snap(3, "tank/new"), snap(4, "tank/new")))
    for fields in ({}, {"written": 4096}):
        vault = tree(vaulted("cold/host/tank/old", 1, 2, 3, **fields))
        found = both(source, vault)
        assert found.pairing.gone == ()
        assert pruned_on_vault(GONE_HARD, found) == []
        assert ("tank/new" in found.counterparts) == (not fields)
