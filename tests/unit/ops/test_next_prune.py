"""What the next run would prune of one dataset: the same as of all, and of no side of which it is not known."""

from dataclasses import replace

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap, snapname, tree
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.forecast import add_snapshot, apply_plans
from zvault.core.replication.planner import plan_tree
from zvault.ops.next_prune import NextPrune, predict_prune
from zvault.ops.replication.listing import BothListings, make_sent_filter
from zvault.ops.retention.arrivals import list_arrivals
from zvault.ops.retention.prune_plan import plan_prune

KEEP = {"keep": {"source": {"last": 3}, "vault": {"last": 4}}}
ON_VAULT = "cold/host/tank"


def both() -> BothListings:
    """The vault has hours 0 to 5, the source 2 to 7."""
    return sides(
        dataset("tank", *(snap(hour) for hour in range(2, 8))),
        dataset(ON_VAULT, *(snap(hour, ON_VAULT) for hour in range(6))),
    )


def gone(found: NextPrune, side: str) -> set[int]:
    return {guid - 100 for guid, one in found.decided[side].items() if not one.keep and guid > 0}  # type: ignore[index]


def test_it_is_told_as_after_the_run_that_makes_a_snapshot_and_sends_what_the_vault_lacks():
    where = context(START + 8 * HOUR, **KEEP)
    found = predict_prune(where, where.env.backup("b"), both(), "tank")
    assert found is not None
    # With the new one of hour 8 the rules keep two on the source, three on the vault; half may go.
    assert gone(found, "source") == {2, 3, 4}
    assert gone(found, "vault") == {0, 1, 2}
    assert "prune_limit" in found.decided["source"][105].reason
    assert "last" in found.decided["vault"][105].reason
    assert found.base == 105
    assert {guid - 100 for guid in found.waiting} == {6, 7}
    assert found.vault == ON_VAULT


def test_of_one_dataset_it_is_the_same_as_of_all():
    where = context(START + 8 * HOUR, **KEEP)
    backup, one = where.env.backup("b"), both()
    other = dataset("tank/a", *(replace(snap(hour, "tank/a"), guid=200 + hour) for hour in range(5)))
    there = dataset(
        f"{ON_VAULT}/a", *(replace(snap(hour, f"{ON_VAULT}/a"), guid=200 + hour) for hour in range(4))
    )
    seen = BothListings(
        Tree(one.source.datasets | tree(other).datasets),
        Tree(one.vault.datasets | tree(there).datasets),
        (*one.pairs, (other, DatasetName(f"{ON_VAULT}/a"))),
    )
    source = add_snapshot(seen.source, ["tank", "tank/a"], snapname(8), START + 8 * HOUR)
    made = seen.with_trees(source, seen.vault)
    plans = plan_tree(made.pairing, made.vault, wanted=make_sent_filter(backup))
    sent = [(plan, made.counterparts.get(plan.dataset)) for plan in plans]
    after = made.with_trees(made.source, apply_plans(made.vault, made.source, sent))
    judged = plan_prune(where, backup, after, arrived=list_arrivals(seen, after))
    for name in ("tank", "tank/a"):
        found = predict_prune(where, backup, seen, name)
        assert found is not None
        for plan in judged:
            at = name if plan.side == "source" else f"{ON_VAULT}{name.removeprefix('tank')}"
            wanted = {
                verdict.snapshot.guid: (verdict.keep, verdict.reason)
                for verdict in plan.verdicts
                if verdict.snapshot.dataset == at and verdict.snapshot.guid > 0
            }
            told = found.decided[plan.side].items()
            assert {guid: (it.keep, it.reason) for guid, it in told if guid > 0} == wanted


def test_a_snapshot_with_a_clone_stays():
    where = context(START + 8 * HOUR, **KEEP)
    one = both()
    clone = dataset("tank/clone", origin=snap(3).name)
    seen = replace(one, source=Tree(one.source.datasets | tree(clone).datasets))
    found = predict_prune(where, where.env.backup("b"), seen, "tank")
    assert found is not None
    assert 3 not in gone(found, "source")
    assert found.decided["source"][103].reason == "tank/clone is a clone of it"


def test_where_nobody_has_seen_the_vault_nothing_is_said_to_be_pruned():
    where = context(START + 8 * HOUR, **KEEP)
    seen = replace(sides(both().pairs[0][0], None), vault_seen=False)
    found = predict_prune(where, where.env.backup("b"), seen, "tank")
    assert found is not None
    assert (found.decided, found.base, found.waiting) == ({}, None, frozenset())
    assert predict_prune(where, where.env.backup("b"), seen, "tank/none") is None


def test_where_a_run_would_change_the_vault_first_its_side_is_not_known():
    where = context(START + 8 * HOUR, on_conflict="rollback", **KEEP)
    there = dataset(ON_VAULT, *(snap(hour, ON_VAULT) for hour in range(6)), snap(50, ON_VAULT, name="theirs"))
    found = predict_prune(where, where.env.backup("b"), sides(both().pairs[0][0], there), "tank")
    assert found is not None
    assert set(found.decided) == {"source"}
