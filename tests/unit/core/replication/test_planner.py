"""Whatever befalls two pools, a plan is one that zfs carries out, loses nothing untold, and ends with both alike."""

from random import Random

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from tests.unit.core.replication.pools_model import Clock, Data, Illegal, Pool, Pools, Stop
from tests.unit.examples import cases, same_cases
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import ASIDE, Pairing, is_aside
from zvault.core.replication.matching import match
from zvault.core.replication.name_length import NameConflict
from zvault.core.replication.plan_model import Action, OnConflict, Policy, TransferPlan
from zvault.core.replication.planner import PoolAnswers, plan_tree
from zvault.core.replication.vault_changes import Branch, Rename, Rollback

CASES = {
    "any history": 2500,
    "any order": 1500,
    "power fails": 1500,
    "renamed, cloned": 1000,
    "promoted": 1000,
    "one thing": 500,
    "written since": 500,
}

OURS = "zvault_"
SOURCE, VAULT = DatasetName("tank/s"), DatasetName("cold/s")


def ours(snap: Snapshot) -> bool:
    return snap.snapname.startswith(OURS)


def pools() -> Pools:
    clock = Clock()
    found = Pools(Pool(clock, {"tank": Data(clock.tick())}), Pool(clock, {"cold": Data(clock.tick())}))
    found.source.create(SOURCE)
    return found


def excluded(name: str, all_in: bool) -> bool:
    return not all_in and name.rpartition("/")[2] == "x"


def listing(two: Pools) -> Tree:
    """What a look at the vault shows: the root, and what was set aside beside it."""
    beside = [DatasetName(name) for name in two.vault.data if name.startswith(VAULT + ASIDE)]
    beside = [name for name in beside if name.parent == VAULT.parent]
    trees = [two.vault.tree(name) for name in (VAULT, *beside)]
    return Tree({name: one for tree in trees for name, one in tree.datasets.items()})


def pairing(two: Pools, all_in: bool = False) -> Pairing:
    source = two.source.tree(SOURCE)
    placed = [(dataset, dataset.name.moved(SOURCE, VAULT)) for dataset in source]
    wanted = [one for one in placed if not excluded(one[0].name, all_in)]
    return match(source, wanted, listing(two), left_out=[one for one in placed if one not in wanted])


STAMPS = iter(range(10**9))


def planned(
    two: Pools, on_conflict: OnConflict, all_in: bool = False, *, is_now: Pools | None = None
) -> list[TransferPlan]:
    """The plan. Where ``two`` is what was listed earlier, ``is_now`` answers what the pools are asked."""
    found = pairing(two, all_in)
    unchanged = set()
    for pair in found.pairs:
        if pair.vault is not None and pair.base is not None and not pair.vault.written:
            if is_now is not None and is_now.vault.data[pair.vault.name].written:
                continue
            snaps = two.vault.data[pair.vault.name].snaps
            place = next(i for i, snap in enumerate(snaps) if snap.guid == pair.base[1].guid)
            if all(snap.quiet for snap in snaps[place + 1 :]):
                unchanged.add(pair.vault.name)
    held = {
        f"{name}@{snap.snapname}" for name, data in two.vault.data.items() for snap in data.snaps if snap.held
    }
    number = next(STAMPS)
    stamp = f"{20000000 + number // 1000000:08d}T{number % 1000000:06d}Z"
    return plan_tree(
        found,
        listing(two),
        wanted=ours,
        policy=Policy(on_conflict=on_conflict, stamp=stamp),
        answers=PoolAnswers(two.interrupted(), unchanged, held),
    )


# What may befall the pools; numbers choose what it befalls.

NAMES = ("a", "b", "c", "x")


def _pick(pool: Pool, number: int) -> str:
    names = sorted(name for name in pool.data if "/" in name)
    if not names:
        raise Illegal("none yet")
    return names[number % len(names)]


def _new_name(pool: Pool, number: int) -> str:
    return f"{_pick(pool, number // 4)}/{NAMES[number % 4]}"


def _snap_of(pool: Pool, number: int) -> tuple[str, str]:
    found = [(name, snap.snapname) for name, data in sorted(pool.data.items()) for snap in data.snaps]
    if not found:
        raise Illegal("none yet")
    return found[number % len(found)]


def _create(two: Pools, number: int) -> None:
    two.source.create(_new_name(two.source, number), encrypted=number % 5 == 0)


def _take_ours(two: Pools, number: int) -> None:
    snapname = f"{OURS}{two.source.clock.tick()}"
    for name in list(two.source.data):
        if "/" in name:
            two.source.snapshot(name, snapname)


def _take_foreign(two: Pools, number: int) -> None:
    two.source.snapshot(_pick(two.source, number), f"by-hand-{number % 7}")


def _clone(two: Pools, number: int) -> None:
    two.source.clone(*_snap_of(two.source, number // 16), _new_name(two.source, number))


def _promote(two: Pools, number: int) -> None:
    clones = sorted(name for name, data in two.source.data.items() if data.origin is not None)
    if clones:
        two.source.promote(clones[number % len(clones)])


def _rename(two: Pools, number: int) -> None:
    old = _pick(two.source, number // 7)
    if old != SOURCE:
        two.source.rename(old, _new_name(two.source, number))


def _swap(two: Pools, number: int) -> None:
    one, other = _pick(two.source, number), _pick(two.source, number // 7)
    if SOURCE in (one, other) or one == other or f"{one}/".startswith(f"{other}/"):
        return
    two.source.rename(one, f"{SOURCE}/swapping")
    two.source.rename(other, one)
    two.source.rename(f"{SOURCE}/swapping", other)


def _destroy_snapshot(two: Pools, number: int) -> None:
    two.source.destroy_snapshot(*_snap_of(two.source, number))


def _destroy(two: Pools, number: int) -> None:
    if (name := _pick(two.source, number)) != SOURCE:
        two.source.destroy(name)


def _bookmark(two: Pools, number: int) -> None:
    name, snapname = _snap_of(two.source, number)
    snap = two.source.data[name].named(snapname)
    two.source.data[name].marks.append(type(snap)(snap.guid, f"mark{two.source.clock.tick()}", snap.txg))


def _run(two: Pools, number: int) -> None:
    two.carry_out(planned(two, "stop"))


def _broken_run(two: Pools, number: int) -> None:
    two.fuel = number % 9
    try:
        two.carry_out(planned(two, "stop"))
    except Stop:
        pass
    finally:
        two.fuel = None


def _vault_pick(two: Pools, number: int) -> str:
    names = sorted(name for name, data in two.vault.data.items() if data.snaps)
    if not names:
        raise Illegal("none yet")
    return names[number % len(names)]


def _vault_snapshot(two: Pools, number: int) -> None:
    two.vault.snapshot(_vault_pick(two, number // 4), f"by-hand-{number % 7}")
    if number % 3 == 0:
        two.vault.data[_vault_pick(two, number // 4)].snaps[-1].held = True


def _vault_write(two: Pools, number: int) -> None:
    if number % 2:
        two.vault.data[_vault_pick(two, number // 4)].written = 4096


def _vault_clone(two: Pools, number: int) -> None:
    two.vault.clone(*_snap_of(two.vault, number), f"{_vault_pick(two, number // 4)}/mine")


def _vault_create(two: Pools, number: int) -> None:
    if number % 3 == 0:
        two.vault.create(_new_name(two.vault, number))


ON_SOURCE = [
    *[_take_ours] * 4,
    *[_create] * 2,
    *[_run] * 3,
    *[_rename] * 2,
    _swap,
    *[_clone] * 2,
    *[_promote] * 2,
    _bookmark,
    _take_foreign,
]
EVENTS = [
    *ON_SOURCE,
    *[_broken_run] * 2,
    *[_destroy_snapshot] * 2,
    _destroy,
    _vault_snapshot,
    _vault_write,
    _vault_clone,
    _vault_create,
]


def histories(longest: int) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=10), st.binary(min_size=longest, max_size=2 * longest))


def after(history: bytes, events: list = EVENTS) -> Pools:
    two = pools()
    _take_ours(two, 0)
    for which, number in zip(history[::2], history[1::2], strict=False):
        before = two.copy()
        try:
            events[which % len(events)](two, number)
        except Illegal:
            if events[which % len(events)] in (_run, _broken_run):
                raise
            two = before
    _take_ours(two, 0)
    return two


# What must hold, whatever befell them


def has_all(two: Pools, plan: TransferPlan) -> bool:
    """Whether the vault has, at its place, the newest snapshot that is to be sent."""
    newest = [snap for snap in two.source.data[plan.dataset].snaps if snap.snapname.startswith(OURS)][-1]
    there = two.vault.data.get(plan.target)
    return there is not None and newest.guid in {snap.guid for snap in there.snaps}


def assert_nothing_lost(before: Pools, now: Pools) -> None:
    """Every dataset and snapshot of the vault is still there, but what a rollback said that it gives up."""
    born = {name for name, data in before.vault.data.items() if data.partial and data.partial.newborn}
    was = {data.guid for name, data in before.vault.data.items() if name not in born}
    assert was <= {data.guid for data in now.vault.data.values()}
    snaps = {snap.guid for data in before.vault.data.values() for snap in data.snaps}
    assert snaps - {snap.guid for data in now.vault.data.values() for snap in data.snaps} <= now.given_up


TAKEN_TWICE = bytes.fromhex(
    "00000600060006003c003c003c007800000000000400040004003a017200c94018050cac0000cb6e"
)
"""Two promotions in one run, of which the first takes a snapshot from a dataset that the second takes others from."""


GIVEN_ON = bytes.fromhex("00002700ae010400040006001f0029003a000000120b4e01")
"""A dataset that is set aside and branched anew, of which a clone that was begun before is promoted then."""

RECEIVED_TWICE = bytes.fromhex(
    "060006000600060014003c000000720093010600000006000401ef047001c6089b010400b0002100d10100000000bbb6"
)
"""A snapshot that the vault has in two datasets, of which one has it cloned and the other is rolled back over it."""


@settings(max_examples=cases(CASES["any history"]))
@example(TAKEN_TWICE, "new-dataset", False)
@example(GIVEN_ON, "new-dataset", False)
@example(RECEIVED_TWICE, "rollback", False)
@given(histories(24), st.sampled_from(["stop", "rollback", "new-dataset"]), st.booleans())
def test_a_plan_is_legal_loses_nothing_untold_and_leaves_both_sides_alike(
    history: bytes, on_conflict: OnConflict, all_in: bool
) -> None:
    before = after(history)
    plans = planned(before, on_conflict, all_in)
    for plan in plans:
        event(f"{on_conflict}: {plan.action}")
        for change in plan.changes:
            event(type(change).__name__)
        assert plan.reason
        assert (plan.action is Action.CONFLICT) <= bool(plan.next)
        assert plan.action is not Action.CONFLICT or all(isinstance(one, Rename) for one in plan.changes)
        assert on_conflict == "rollback" or not any(isinstance(one, Rollback) for one in plan.changes)
    two = before.copy()
    failed = two.carry_out(plans)
    assert_nothing_lost(before, two)
    assert on_conflict != "new-dataset" or not failed
    for plan in plans:
        assert plan.dataset in failed or has_all(two, plan)
    for plan in planned(two, on_conflict, all_in):
        if plan.dataset not in failed:
            assert (plan.action, plan.steps, plan.changes) == (Action.NOTHING, (), ())


@settings(max_examples=cases(CASES["written since"]))
@given(histories(20), st.sampled_from(["stop", "rollback", "new-dataset"]), st.integers(0), st.integers(0))
def test_where_nothing_is_left_to_do_it_does_not_matter_what_was_written_on_the_vault(
    history: bytes, on_conflict: OnConflict, seen: int, is_now: int
) -> None:
    two = after(history)
    two.carry_out(planned(two, on_conflict))
    listed = two.copy()
    for place, name in enumerate(sorted(two.vault.data)):
        listed.vault.data[name].written = 4096 * (seen >> place & 1)
        two.vault.data[name].written = 4096 * (is_now >> place & 1)
    plans = planned(listed, on_conflict, is_now=two)
    idle = all(plan.action is Action.NOTHING and not plan.changes for plan in plans)
    event(f"nothing left to do: {idle}")
    if idle:
        assert plans == planned(two, on_conflict)


def in_some_order(plans: list[TransferPlan], chance: Random) -> list[TransferPlan]:
    """The plans as several that go at once may be carried out: each after those it needs, and else in any order."""
    left, ordered = list(plans), []
    while left:
        done = {plan.dataset for plan in ordered}
        able = [plan for plan in left if set(plan.after) <= done]
        ordered.append(chance.choice(able))
        left.remove(ordered[-1])
    return ordered


@settings(max_examples=cases(CASES["any order"]))
@given(histories(24), st.sampled_from(["stop", "rollback", "new-dataset"]), st.randoms(use_true_random=False))
@example(
    # What another's rename brings below it must not come before it.
    b"\x00\x00\x04\x00\x04\x00\x04\x00\x04\x00\x04\x00\xa6\x01e\x00\x00\x00\x04\x00\x04\x00\x04\x00\xfc\xdb\x04\x00"
    b"\x04\x00\x06\x00]'\x00\x00\x00\x00\x00\x00\x00\x00D\x00",
    "stop",
    Random(4),
)
@example(
    # It is to go below its own name, where an excluded one is now.
    b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00B\x03W\x00w\xfa\x00\x00"
    b"\x00\x00\x00\x00\xa8\x00\x00\x00\xe4\xdc\x00\x00&w\xad\xf5",
    "stop",
    Random(0),
)
@example(
    # One is renamed out of another that is renamed as well: after that its old name is gone.
    b"\x00\x00\x00\x00\x00\x00\xf7\x01<\x00\x00\x00x\x03\x00\x00\x00\x00\x00\x00\xdc\xdc\xf0\x01\x04\x00"
    b"\x00\x00W\x00\x00\x00\x00\x00\xc6~",
    "new-dataset",
    Random(0),
)
def test_in_whatever_order_plans_are_carried_out_that_need_not_wait_all_end_the_same(
    history: bytes, on_conflict: OnConflict, chance: Random
) -> None:
    before = after(history)
    plans = planned(before, on_conflict)
    two, other = before.copy(), before.copy()
    failed = two.carry_out(plans)
    assert other.carry_out(in_some_order(plans, chance)).keys() == failed.keys()
    assert_nothing_lost(before, other)
    for plan in plans:
        assert plan.dataset in failed or has_all(other, plan)


@settings(max_examples=cases(CASES["power fails"]))
@given(histories(20), st.sampled_from(["stop", "rollback", "new-dataset"]), st.integers(0, 12))
# The vault has a snapshot twice, and a clone of one of them: it is promoted over that, and over no other.
@example(bytes.fromhex("060006002700040004003a005f000000b4009f0100000000b4040401000042404401"), "stop", 4)
@example(bytes.fromhex("060006002700040004003a005f00000004009f0100000000b4030401000042404401"), "stop", 4)
def test_wherever_the_power_fails_the_next_run_ends_as_the_first_would_have(
    history: bytes, on_conflict: OnConflict, fuel: int
) -> None:
    before = after(history)
    whole = before.copy()
    failed = whole.carry_out(planned(whole, on_conflict))
    two = before.copy()
    two.fuel = fuel
    try:
        two.carry_out(planned(two, on_conflict))
    except Stop:
        event("cut short")
    two.fuel = None
    plans = planned(two, on_conflict)
    later = two.carry_out(plans)
    assert_nothing_lost(before, two)
    assert later.keys() <= failed.keys()
    for plan in plans:
        assert plan.dataset in later or has_all(two, plan)


# How little is sent is no promise for whatever history one may think of, so these are the same cases every time.


@settings(max_examples=same_cases(CASES["renamed, cloned"]), derandomize=True)
@given(histories(20))
def test_what_was_renamed_or_cloned_is_not_sent_again(history: bytes) -> None:
    """As long as nobody touches the vault, and no snapshot goes, whatever the vault has is built upon."""
    two = after(history, [what for what in ON_SOURCE if what is not _promote])
    had = {snap.guid for data in two.vault.data.values() for snap in data.snaps}
    for plan in planned(two, "stop"):
        event(str(plan.action))
        assert plan.action is not Action.CONFLICT
        there = two.vault.data.get(plan.target)
        shared = any(snap.guid in had for _, snap in two.source.lineage(plan.dataset))
        if shared and not (there and there.placeholder):
            assert plan.action is not Action.FULL


@settings(max_examples=same_cases(CASES["promoted"]), derandomize=True)
@given(histories(20))
def test_what_was_sent_is_not_sent_again_whoever_is_promoted(history: bytes) -> None:
    """Renames apart: to promote one and give its name to another, several times within a run, may be too much."""
    two = after(history, [what for what in ON_SOURCE if what not in {_rename, _swap}])
    for plan in planned(two, "stop"):
        assert plan.action is not Action.CONFLICT
        there = two.vault.data.get(plan.target)
        if not (there and there.placeholder) and two.source.data[plan.dataset].guid in two.sent:
            event(f"{plan.action}, borrowed" if plan.borrowed else str(plan.action))
            assert plan.action is not Action.FULL
    two.carry_out(planned(two, "stop"))


@settings(max_examples=cases(CASES["one thing"]))
@given(histories(20), st.booleans())
def test_every_dataset_of_the_vault_is_one_thing(history: bytes, all_in: bool) -> None:
    two = after(history)
    found = pairing(two, all_in)
    paired = [pair.vault.name for pair in found.pairs if pair.vault is not None]
    gone = [dataset.name for dataset in found.gone]
    aside = [dataset.name for dataset in found.aside]
    assert len({*paired, *gone, *aside}) == len(paired) + len(gone) + len(aside)
    assert not any(is_aside(name) for name in gone)
    for dataset in found.gone:
        assert dataset.snapshots
        name = SOURCE + dataset.name[len(VAULT) :]
        assert name not in two.source.data


# Single cases, in the words a person sees


def story(*events: tuple[str, ...]) -> Pools:
    two = pools()
    for what, *words in events:
        if what == "run":
            snapname = f"{OURS}{two.source.clock.tick()}"
            for name in list(two.source.data):
                if "/" in name:
                    two.source.snapshot(name, snapname)
            two.carry_out(planned(two, "stop"))
        else:
            getattr(two.source, what)(*words)
    return two


def next_run(two: Pools, on_conflict: OnConflict = "stop") -> dict[str, TransferPlan]:
    _take_ours(two, 0)
    plans = planned(two, on_conflict)
    two.copy().carry_out(plans)
    return {plan.dataset: plan for plan in plans}


def told(plan: TransferPlan) -> list[str]:
    return [str(change) for change in plan.changes]


def test_a_renamed_dataset_is_renamed_on_the_vault_and_its_children_come_along() -> None:
    two = story(
        ("create", "tank/s/a"), ("create", "tank/s/a/b"), ("run",), ("rename", "tank/s/a", "tank/s/c")
    )
    plans = next_run(two)
    assert told(plans["tank/s/c"]) == ["rename cold/s/a to cold/s/c: it follows tank/s/c"]
    assert told(plans["tank/s/c/b"]) == []
    assert plans["tank/s/c/b"].after == ("tank/s/c",)
    assert {plan.action for plan in plans.values()} == {Action.INCREMENTAL}


def test_a_dataset_whose_name_is_too_long_is_told_and_the_others_go_on() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/b"))
    found = pairing(two)
    conflict = NameConflict("it is too long", "rename it")
    plans = plan_tree(found, listing(two), wanted=ours, conflicts={"tank/s/a": conflict})
    made = {plan.dataset: plan for plan in plans}
    assert (made["tank/s/a"].action, made["tank/s/a"].reason) == (Action.CONFLICT, "it is too long")
    assert (made["tank/s/a"].next, made["tank/s/a"].changes) == ("rename it", ())
    assert made["tank/s/b"].action is not Action.CONFLICT


def test_a_clone_waits_for_what_it_branched_off_from_to_be_renamed() -> None:
    two = story(
        ("create", "tank/s/a"),
        ("run",),
        ("rename", "tank/s/a", "tank/s/c"),
        ("clone", "tank/s/c", f"{OURS}5", "tank/s/b"),
    )
    plans = next_run(two)
    assert plans["tank/s/b"].steps[0].origin == f"cold/s/c@{OURS}5"
    assert plans["tank/s/b"].after == ("tank/s/c",)


def test_a_child_waits_for_its_parent_only_until_that_is_there() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/a/b"))
    assert {name: plan.after for name, plan in next_run(two).items()} == {
        "tank/s": (),
        "tank/s/a": ("tank/s",),
        "tank/s/a/b": ("tank/s", "tank/s/a"),
    }
    two = story(("create", "tank/s/a"), ("run",), ("create", "tank/s/a/b"))
    assert {name: plan.after for name, plan in next_run(two).items()} == dict.fromkeys(
        ("tank/s", "tank/s/a", "tank/s/a/b"), ()
    )


def test_two_that_swapped_their_names_do_so_on_the_vault() -> None:
    two = story(
        ("create", "tank/s/a"),
        ("create", "tank/s/b"),
        ("run",),
        ("rename", "tank/s/a", "tank/s/t"),
        ("rename", "tank/s/b", "tank/s/a"),
        ("rename", "tank/s/t", "tank/s/b"),
    )
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == [
        "rename cold/s/a to cold/s/a_zvault-moving: it follows tank/s/b",
        "rename cold/s/b to cold/s/a: it follows tank/s/a",
    ]
    assert told(plans["tank/s/b"]) == ["rename cold/s/a_zvault-moving to cold/s/b: it follows tank/s/b"]
    assert plans["tank/s/b"].after == ("tank/s/a",)


def test_what_is_taken_out_of_a_dataset_goes_before_that_dataset_is_renamed() -> None:
    two = story(
        ("create", "tank/s/b"),
        ("create", "tank/s/b/low"),
        ("create", "tank/s/b/stays"),
        ("run",),
        ("rename", "tank/s/b/low", "tank/s/a"),
        ("rename", "tank/s/b", "tank/s/c"),
    )
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == ["rename cold/s/b/low to cold/s/a: it follows tank/s/a"]
    assert told(plans["tank/s/c"]) == ["rename cold/s/b to cold/s/c: it follows tank/s/c"]
    assert plans["tank/s/a"].after == ()
    assert plans["tank/s/c"].after == ("tank/s/a",)


def test_a_clone_begins_at_its_origin() -> None:
    two = story(("create", "tank/s/b"), ("run",))
    snapname = two.source.data["tank/s/b"].snaps[-1].snapname
    two.source.clone("tank/s/b", snapname, "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.action is Action.INCREMENTAL
    assert plan.steps[0].origin == f"cold/s/b@{snapname}"
    assert (
        plan.reason
        == f"tank/s/a is a clone of tank/s/b@{snapname}, which the vault has as cold/s/b@{snapname}"
    )


def test_a_clone_made_since_the_last_run_waits_for_its_origin() -> None:
    two = story(("create", "tank/s/b"))
    two.source.snapshot("tank/s/b", f"{OURS}x")
    two.source.clone("tank/s/b", f"{OURS}x", "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.steps[0].origin == f"cold/s/b@{OURS}x"
    assert "tank/s/b" in plan.after


def test_a_clone_of_what_the_vault_lacks_goes_in_full() -> None:
    two = story(("create", "tank/s/b"), ("snapshot", "tank/s/b", "by-hand"))
    two.source.clone("tank/s/b", "by-hand", "tank/s/a")
    plan = next_run(two)["tank/s/a"]
    assert plan.action is Action.FULL
    assert plan.reason.endswith("and not tank/s/b@by-hand either, of which tank/s/a is a clone")


def test_a_dataset_replaced_by_its_promoted_clone() -> None:
    """The way that zfs-promote(8) shows: clone, promote, rename both."""
    two = story(("create", "tank/s/a"), ("run",), ("run",))
    first = two.source.data["tank/s/a"].snaps[0].snapname
    for step in (
        ("clone", "tank/s/a", first, "tank/s/b"),
        ("promote", "tank/s/b"),
        ("rename", "tank/s/a", "tank/s/c"),
        ("rename", "tank/s/b", "tank/s/a"),
    ):
        getattr(two.source, step[0])(*step[1:])
    plans = next_run(two)
    assert told(plans["tank/s/a"]) == [
        "rename cold/s/a to cold/s/c: it follows tank/s/c",
        f"make cold/s/a from cold/s/c@{first}, and promote it: the history of tank/s/a up to there is in cold/s/c",
    ]
    assert plans["tank/s/c"].action is plans["tank/s/a"].action is Action.INCREMENTAL
    assert plans["tank/s/c"].after == ("tank/s/a",)


def test_a_base_that_another_dataset_owns_now_is_borrowed() -> None:
    two = story(("create", "tank/s/a"), ("run",))
    snapname = two.source.data["tank/s/a"].snaps[-1].snapname
    two.source.clone("tank/s/a", snapname, "tank/s/b")
    _take_ours(two, 0)
    two.carry_out(planned(two, "stop"))
    two.source.data["tank/s/a"].snaps.pop()
    two.vault.data["cold/s/a"].snaps.pop()
    two.source.promote("tank/s/b")
    plan = next_run(two)["tank/s/a"]
    assert plan.borrowed is not None
    assert plan.borrowed.name == f"tank/s/b@{snapname}"
    assert plan.reason == f"the newest snapshot both sides share is {snapname}, which tank/s/b owns now"


def diverged() -> Pools:
    two = story(("create", "tank/s/a"), ("create", "tank/s/a/b"), ("run",))
    two.vault.data["cold/s/a"].written = 4096
    two.vault.snapshot("cold/s/a", "mine")
    two.vault.data["cold/s/a"].written = 8192
    return two


def test_a_changed_dataset_is_left_as_it_is_unless_told_otherwise() -> None:
    plan = next_run(diverged())["tank/s/a"]
    assert plan.action is Action.CONFLICT
    assert "cold/s/a has mine, newer than the base" in plan.reason


def test_a_rollback_tells_what_is_lost() -> None:
    (change,) = next_run(diverged(), "rollback")["tank/s/a"].changes
    assert str(change).startswith("roll cold/s/a back to @zvault_")
    assert str(change).endswith(", giving up @mine and 8K written since")


@pytest.mark.parametrize("why", ["held", "cloned"])
def test_nothing_that_somebody_needs_is_rolled_back(why: str) -> None:
    two = diverged()
    if why == "held":
        two.vault.data["cold/s/a"].snaps[-1].held = True
    else:
        two.vault.clone("cold/s/a", "mine", "cold/s/mine")
    plan = next_run(two, "rollback")["tank/s/a"]
    assert plan.action is Action.CONFLICT
    expected = "@mine is held" if why == "held" else "cold/s/mine is a clone of @mine"
    assert plan.reason.endswith(f"it is not rolled back: {expected}")


def test_a_changed_dataset_is_set_aside_and_nothing_is_sent_twice() -> None:
    two = diverged()
    plans = next_run(two, "new-dataset")
    rename, branch = plans["tank/s/a"].changes
    assert isinstance(rename, Rename)
    assert is_aside(rename.new)
    assert isinstance(branch, Branch)
    assert branch.origin.startswith(f"{rename.new}@zvault_")
    assert plans["tank/s/a"].action is Action.INCREMENTAL
    # What lies below it comes back.
    assert told(plans["tank/s/a/b"]) == [f"rename {rename.new}/b to cold/s/a/b: it follows tank/s/a/b"]
    assert plans["tank/s/a/b"].after == ("tank/s/a",)


def test_what_shares_nothing_is_set_aside_and_sent_in_full() -> None:
    two = story(("create", "tank/s/a"))
    two.vault.create("cold/s")
    two.vault.create("cold/s/a")
    two.vault.snapshot("cold/s", "other")
    two.vault.snapshot("cold/s/a", "other")
    assert next_run(two)["tank/s/a"].action is Action.CONFLICT
    assert next_run(two, "rollback")["tank/s/a"].action is Action.CONFLICT
    plans = next_run(two, "new-dataset")
    assert [plans[name].action for name in ("tank/s", "tank/s/a")] == [Action.FULL] * 2


def test_a_placeholder_becomes_the_real_dataset() -> None:
    two = story(("create", "tank/s/x"), ("create", "tank/s/x/a"), ("run",))
    assert two.vault.data["cold/s/x"].placeholder
    _take_ours(two, 0)
    plans = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    assert plans["tank/s/x"].steps[0].over
    assert plans["tank/s/x"].reason == "cold/s/x is only a placeholder so far"
    assert plans["tank/s/x/a"].action is Action.INCREMENTAL


def test_what_vanished_is_gone_but_not_what_is_only_excluded() -> None:
    two = story(("create", "tank/s/a"), ("create", "tank/s/b"), ("create", "tank/s/c"), ("run",))
    two.source.destroy("tank/s/a")
    two.source.rename("tank/s/b", "tank/s/x")
    assert [dataset.name for dataset in pairing(two).gone] == ["cold/s/a"]


def test_an_encrypted_dataset_cannot_go_over_a_placeholder_nor_over_foreign_snapshots() -> None:
    two = story()
    two.source.create("tank/s/x", encrypted=True)
    two.source.create("tank/s/x/a")
    _run_all(two)
    plans = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    (rename,) = plans["tank/s/x"].changes
    assert isinstance(rename, Rename)
    assert rename.reason == "cold/s/x is only a placeholder, which tank/s/x cannot replace"
    two.copy().carry_out(list(plans.values()))
    two.carry_out(list(plans.values()))
    two.vault.snapshot("cold/s/x", "mine")
    _take_ours(two, 0)
    again = {plan.dataset: plan for plan in planned(two, "stop", all_in=True)}
    assert again["tank/s/x"].action is Action.CONFLICT
    two.vault.snapshot("cold/s/x/a", "mine")
    assert {p.dataset: p for p in planned(two, "stop", all_in=True)}[
        "tank/s/x/a"
    ].action is Action.INCREMENTAL


def _run_all(two: Pools) -> None:
    _take_ours(two, 0)
    two.carry_out(planned(two, "stop"))


def test_the_numbers_of_cases_are_what_they_are_said_to_be() -> None:
    from tests.unit.core.replication.test_dataset_plan import CASES as SINGLE

    numbers = [*CASES.values(), *SINGLE.values()]
    assert sum(numbers) >= 10_000
    assert sum(map(cases, numbers)) >= 5_000
