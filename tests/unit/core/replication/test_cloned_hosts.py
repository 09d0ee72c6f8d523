"""Two machines made from one disk image back up into one vault: neither costs the other what it has sent."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.pool_histories import OURS, after, histories, planned, take_ours
from tests.unit.core.replication.pool_model import Pool
from tests.unit.core.replication.pools_model import Pools, Stop
from tests.unit.examples import cases
from zvault.core.replication.plan_model import OnConflict, TransferAction

FEW_STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["snapshot", "write", "run", "break"])), max_size=12
)


def fork(first: Pools) -> Pools:
    """The second machine: a copy of the first one's source, and the same vault."""
    source = Pool(first.source.clock, {name: data.copy() for name, data in first.source.data.items()})
    return Pools(source, first.vault)


def list_sent(pools: Pools) -> set[int]:
    return {
        snap.guid
        for data in pools.vault.data.values()
        for snap in data.snaps
        if snap.snapname.startswith(OURS)
    }


def step(host: Pools, what: str, number: int, on_conflict: OnConflict) -> None:
    match what:
        case "snapshot":
            take_ours(host, number)
        case "write":
            for data in host.source.data.values():
                data.written = 4096
        case "break":
            host.fuel = number % 5
            try:
                host.carry_out(planned(host, on_conflict, keep_newest=True))
            except Stop:
                pass
            finally:
                host.fuel = None
        case "run":
            take_ours(host, number)
            plans = planned(host, on_conflict, keep_newest=True)
            failed = host.carry_out(plans)
            for plan in plans:
                event(f"{on_conflict}: {plan.action}")
                newest = [s for s in host.source.data[plan.dataset].snaps if s.snapname.startswith(OURS)][-1]
                there = host.vault.data.get(plan.target)
                has = there is not None and newest.guid in {snap.guid for snap in there.snaps}
                told = plan.action is TransferAction.CONFLICT and bool(plan.reason and plan.next)
                assert has or told or plan.dataset in failed, "what is not there is told"


@settings(max_examples=cases(600))
@given(histories(12), FEW_STEPS, st.sampled_from(["stop", "rollback", "new-dataset"]))
def test_nothing_that_either_sent_is_destroyed_and_what_cannot_be_sent_is_told(
    history: bytes, steps: list[tuple[int, str]], on_conflict: OnConflict
) -> None:
    first = after(history)
    hosts = (first, fork(first))
    for number, (who, what) in enumerate([*steps, (0, "run"), (1, "run"), (0, "run")]):
        host = hosts[who]
        hosts[1 - who].vault = host.vault
        before = list_sent(host)
        step(host, what, number, on_conflict)
        assert before <= list_sent(host), "what either sent stays"


def test_the_second_is_stopped_and_told_of_a_clone() -> None:
    first = after(b"")
    first.carry_out(planned(first, "stop", keep_newest=True))
    second = fork(first)
    for host in (first, second):
        take_ours(host, 0)
    first.carry_out(planned(first, "rollback", keep_newest=True))
    (plan,) = planned(second, "rollback", keep_newest=True)
    assert plan.action is TransferAction.CONFLICT
    assert "a clone of this one, sends there too" in plan.next
    assert replace(plan, changes=()) == plan
