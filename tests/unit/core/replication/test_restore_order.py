"""A restore brings parents before what is below them and origins before their clones, whatever the names."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.restore_order import (
    list_restore_needs,
    pick_at,
    pick_named,
    pick_newest,
    plan_restorations,
)

C, NEW = DatasetName("c"), DatasetName("new")


def dataset(name: str, *snapnames: str, origin: str | None = None) -> Dataset:
    snaps = tuple(
        Snapshot(DatasetName(name), one, hash((name, one)), int(one[1:]), int(one[1:])) for one in snapnames
    )
    return Dataset(
        DatasetName(name), 1, "filesystem", snapshots=snaps, origin=SnapshotName(origin) if origin else None
    )


def tree(*datasets: Dataset) -> Tree:
    return Tree({one.name: one for one in datasets})


def streams(found):
    return [
        (one.target, [(s.snapshot.snapname, s.base.name if s.base else None, s.origin) for s in one.streams])
        for one in found
    ]


def test_one_dataset_comes_alone_unless_all_below_is_asked_for():
    cold = tree(dataset("c", "s1", "s2"), dataset("c/a", "s2"), dataset("c/b"))
    assert streams(plan_restorations(cold, C, NEW, pick_newest, recursive=False)) == [
        ("new", [("s2", None, None)])
    ]
    assert [one.target for one in plan_restorations(cold, C, NEW, pick_newest, recursive=True)] == [
        "new",
        "new/a",
    ]
    assert streams(plan_restorations(cold, C, NEW, pick_at(1), recursive=True)) == [
        ("new", [("s1", None, None)])
    ]
    assert plan_restorations(cold, C, NEW, pick_named("s9"), recursive=False) == []


def test_the_origin_of_a_clone_comes_first_and_up_to_where_it_branches():
    cold = tree(
        dataset("c", "s9"), dataset("c/ark", "s5", origin="c/zoo@s2"), dataset("c/zoo", "s1", "s2", "s9")
    )
    assert streams(plan_restorations(cold, C, NEW, pick_newest, recursive=True)) == [
        ("new", [("s9", None, None)]),
        ("new/zoo", [("s2", None, None), ("s9", "c/zoo@s2", None)]),
        ("new/ark", [("s5", "c/zoo@s2", "new/zoo@s2")]),
    ]
    # Restored alone, or to before it branched, it is no clone any more.
    alone = plan_restorations(cold, DatasetName("c/ark"), DatasetName("new"), pick_newest, recursive=False)
    assert streams(alone) == [("new", [("s5", None, None)])]


def test_a_parent_that_is_a_clone_of_what_is_below_it_comes_first_and_in_full():
    cold = tree(dataset("c", "s5", origin="c/a@s1"), dataset("c/a", "s1", "s6"))
    assert streams(plan_restorations(cold, C, NEW, pick_newest, recursive=True)) == [
        ("new", [("s5", None, None)]),
        ("new/a", [("s6", None, None)]),
    ]


def test_what_is_there_already_is_not_sent_again():
    cold = tree(dataset("c", "s9"), dataset("c/ark", "s5", origin="c/zoo@s2"), dataset("c/zoo", "s2", "s9"))
    zoo = plan_restorations(cold, C, NEW, pick_newest, recursive=True)[1]
    first, second = zoo.streams
    assert zoo.left({first.snapshot.guid}).streams == (second,)
    assert zoo.left({second.snapshot.guid}).streams == ()
    assert zoo.left({1234}).streams == zoo.streams


@st.composite
def trees(draw):
    names = [
        "c",
        *[
            f"c/{name}"
            for name in draw(st.lists(st.sampled_from(["a", "b", "d", "a/x", "b/y"]), unique=True))
        ],
    ]
    names = [one for one in names if "/" not in one[2:] or one.rpartition("/")[0] in names]
    made = []
    for name in names:
        origin = draw(st.none() | st.sampled_from(names))
        at_ = f"{origin}@s{draw(st.integers(1, 3))}" if origin and origin != name else None
        made.append(dataset(name, "s1", "s2", "s3", origin=at_))
    return tree(*made)


@given(trees())
def test_whatever_is_a_clone_of_what_nothing_is_restored_before_what_it_needs(cold):
    found = plan_restorations(cold, C, NEW, pick_newest, recursive=True)
    assert sorted(one.dataset.name for one in found) == sorted(cold.datasets)
    there: set[str] = set()
    for one in found:
        parent = one.target.rpartition("/")[0]
        assert not parent or parent in {name.partition("@")[0] for name in there}
        for stream in one.streams:
            if stream.origin is not None:
                assert stream.origin in there
            elif stream.base is not None:
                assert f"{one.target}@{stream.base.snapname}" in there
            there.add(f"{one.target}@{stream.snapshot.snapname}")
        assert one.snapshot.snapname == "s3"


def test_what_lies_in_another_or_is_its_clone_waits_for_it_and_nothing_else_does():
    cold = tree(
        dataset("c/zoo", "s1", "s2"),
        dataset("c/ark", "s5", origin="c/zoo@s2"),
        dataset("c", "s9"),
        dataset("c/a/x/y", "s1"),
        dataset("c/a", "s1"),
    )
    assert list_restore_needs(plan_restorations(cold, C, NEW, pick_newest, recursive=True)) == {
        "new": set(),
        "new/zoo": {"new"},
        "new/ark": {"new", "new/zoo"},
        "new/a": {"new"},
        # What lies between holds only others, and is made on the way.
        "new/a/x/y": {"new/a"},
    }


@given(trees(), st.data())
def test_in_whatever_order_they_go_at_once_each_has_what_it_needs(cold, data):
    found = {one.target: one for one in plan_restorations(cold, C, NEW, pick_newest, recursive=True)}
    needs = list_restore_needs(found.values())
    whole: set[str] = set()
    while ready := sorted(name for name, wanted in needs.items() if wanted <= whole and name not in whole):
        name = data.draw(st.sampled_from(ready))
        parent = name.rpartition("/")[0]
        assert not parent or parent in whole
        for stream in found[name].streams:
            assert stream.origin is None or stream.origin.partition("@")[0] in whole
        whole.add(name)
    assert whole == found.keys(), "none waits for ever"
