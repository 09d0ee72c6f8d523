"""What is explained is what planner, retention and selection decide, whatever the two sides hold."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.ops.explain.explain_world import POOL, explained, reason, world
from tests.unit.ops.ops_world import (
    dataset,
    snap,
    tree,
)
from zvault.core.model import Snapshot, Tree
from zvault.core.replication.base_names import KEEP_HOLD, make_hold_tag
from zvault.core.replication.plan_model import list_sent_by
from zvault.core.replication.sent_reason import find_blocking_plan
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.retention.prune import drop_stuck
from zvault.ops.retention.prune_plan import plan_prune

NAMES = ("tank", "tank/a", "tank/b")
POINTS = st.lists(
    st.tuples(st.integers(1, 25), st.sampled_from(["", "", "", "by-hand-"])),
    max_size=9,
    unique_by=lambda one: one[0],
)
KEEP = st.fixed_dictionaries(
    {}, optional={"last": st.integers(1, 3), "hourly": st.integers(1, 4), "daily": st.integers(1, 2)}
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, Tree, dict[str, set[str]]]:
    """Two sides that share some snapshots, with holds on some of them."""
    sources, vaults, held = [], [], {}
    for name in NAMES:
        there = f"cold/host/{name}"
        points = [
            snap(number, name, name=f"{foreign}{number}" if foreign else None)
            for number, foreign in sorted(draw(POINTS))
        ]
        came = [one for one in points if draw(st.booleans())]
        left = [one for one in points if one not in came or draw(st.booleans())]
        sources.append(dataset(name, *left, written=draw(st.sampled_from([0, 4096]))))
        copies = [snap(one.guid - 100, there, name=one.snapname) for one in came]
        if draw(st.integers(0, 4)) == 0:
            copies.append(snap(28, there, name="local"))
        if copies or draw(st.booleans()):
            vaults.append(dataset(there, *copies, written=draw(st.sampled_from([0, 0, 4096]))))
        for one in (*left, *copies):
            if draw(st.integers(0, 5)) == 0:
                held[one.name] = {draw(st.sampled_from(["mine", make_hold_tag(POOL), KEEP_HOLD]))}
    return tree(*sources), tree(*vaults), held


@settings(max_examples=cases(150))
@given(
    trees(),
    KEEP,
    KEEP,
    st.sampled_from(["all", "newest"]),
    st.sampled_from(["stop", "rollback", "new-dataset"]),
    st.sampled_from([[], ["tank/a"], ["tank/**"]]),
    st.sampled_from([[], ["by-hand-*"]]),
    st.sampled_from(["50%", "100%"]),
)
async def test_what_is_explained_is_what_is_decided(  # noqa: PLR0917
    sides: tuple[Tree, Tree, dict[str, set[str]]],
    here: dict[str, int],
    there: dict[str, int],
    backlog: str,
    on_conflict: str,
    exclude: list[str],
    also: list[str],
    limit: str,
) -> None:
    source, vault, held = sides
    where = world(
        source, vault, held,
        keep={"source": here, "vault": there},
        **{"backlog": backlog, "on_conflict": on_conflict, "exclude": exclude, "also": also, "prune_limit": limit},
    )  # fmt: skip
    backup = where.env.backup("b")
    seen = await list_both_sides(where, backup, where.clients.vault_of(backup))
    plans = {plan.dataset: plan for plan in await plan_all(where, backup, seen)}
    waiting = {name for name, plan in plans.items() if find_blocking_plan(plan, plans) is not None}
    verdicts = {}
    for plan in plan_prune(where, backup, seen):
        side = where.clients.source_of(backup) if plan.side == "source" else where.clients.vault_of(backup)
        verdicts |= {one.snapshot.name: one for one in (await drop_stuck(side, plan)).verdicts}
    for one in source:
        (account,) = (await explained(where, one.name))["accounts"]
        assert (account["takes"], reason(account, "selected")[0] == "yes") == ((one.name in plans),) * 2
        if (planned := plans.get(one.name)) is not None:
            state, why = reason(account, "sent")
            assert state == planned.action
            assert why.startswith(planned.reason)
            event(state)
        for point in one.snapshots:
            _agrees(
                (await explained(where, point.name))["accounts"][0],
                point,
                planned,
                seen,
                verdicts,
                one,
                waiting,
            )
    for one in vault:
        for point in one.snapshots:
            (account,) = (await explained(where, point.name))["accounts"]
            assert reason(account, "there", "vault")[0] == "yes"
            _judged(account, verdicts.get(point.name), "vault")


def _agrees(
    account: Any, point: Snapshot, planned: Any, seen: Any, verdicts: Any, of: Any, waiting: Any
) -> None:
    _judged(account, verdicts.get(point.name), "source")
    if planned is None:
        return
    copy = seen.counterparts.get(of.name)
    there = copy is not None and any(one.guid == point.guid for one in copy.snapshots)
    goes = any(one.guid == point.guid for step in planned.steps for one in list_sent_by(step, of.snapshots))
    state, _ = reason(account, "sent")
    assert (state == "there") == there
    assert there or (state == "to be sent") == (goes and of.name not in waiting)
    event(state)


def _judged(account: Any, verdict: Any, side: str) -> None:
    told = [one for one in account["reasons"] if (one["topic"], one["side"]) == ("kept", side)]
    assert [(one["state"] == "kept", one["why"]) for one in told] == (
        [(verdict.keep, verdict.reason)] if verdict is not None else []
    )
    if told:
        event(f"{side}: {told[0]['state']}")
