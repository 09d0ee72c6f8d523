"""The types of names: what is put together comes apart again, and what is below another is so by its components."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.names import BookmarkName, DatasetName, SnapshotName, parse_name, split_snapshot

parts = st.text("ab-_.: 1", min_size=1, max_size=4)
datasets = st.lists(parts, min_size=1, max_size=5).map("/".join).map(DatasetName)
paths = st.lists(parts, max_size=3).map("/".join)
shortnames = st.text("ab-_.: 1", min_size=1, max_size=6)


@given(datasets, shortnames)
def test_a_name_comes_apart_as_it_was_put_together(dataset: DatasetName, short: str) -> None:
    snapshot, mark = dataset.snapshot(short), dataset.bookmark(short)
    assert (snapshot, mark) == (f"{dataset}@{short}", f"{dataset}#{short}")
    assert (snapshot.dataset, snapshot.snapname) == (dataset, short)
    assert (mark.dataset, mark.markname) == (dataset, short)
    assert snapshot.pool == mark.pool == dataset.pool == dataset.parts[0]
    for name in (dataset, snapshot, mark):
        assert (parse_name(name), type(parse_name(str(name)))) == (name, type(name))
    assert split_snapshot(snapshot) == (dataset, short)
    assert split_snapshot(dataset) == (dataset, None)


@given(datasets)
def test_the_chain_of_parents_ends_at_the_pool(dataset: DatasetName) -> None:
    chain, name = [dataset], dataset
    while (above := name.parent) is not None:
        assert above.child(name.name) == name
        assert name.is_below(above)
        chain.append(above)
        name = above
    assert name == dataset.pool
    assert list(dataset.ancestors) == chain[:0:-1]
    assert len(chain) == len(dataset.parts)


@given(datasets, paths)
def test_a_path_below_a_dataset_is_the_inverse_of_the_child(root: DatasetName, path: str) -> None:
    there = root.child(path)
    assert there.relative_to(root) == path
    assert there.is_within(root)
    assert there.is_below(root) == bool(path)


@given(datasets, paths, datasets)
def test_what_moved_there_moves_back(old: DatasetName, path: str, new: DatasetName) -> None:
    name = old.child(path)
    moved = name.moved(old, new)
    assert moved.relative_to(new) == path
    assert moved.moved(new, old) == name


@given(datasets, datasets)
def test_below_is_by_components(one: DatasetName, other: DatasetName) -> None:
    assert one.is_within(other) == (one.parts[: len(other.parts)] == other.parts)
    assert one.is_below(other) == (other in one.ancestors)
    if not one.is_within(other):
        with pytest.raises(ValueError, match="does not lie within"):
            one.relative_to(other)
        with pytest.raises(ValueError, match="does not lie within"):
            one.moved(other, one)


def test_a_name_that_only_begins_alike_is_not_below() -> None:
    tank = DatasetName("tank/a")
    assert not DatasetName("tank/ab").is_within(tank)
    assert not tank.add_suffix("_old").is_within(tank)
    assert tank.add_suffix("_old") == "tank/a_old"
    assert not DatasetName("tank").is_within(tank)


def test_parents_sort_right_before_what_is_below_them() -> None:
    names = [DatasetName(name) for name in ("tank/a-b", "tank/a/c", "tank", "tank/a")]
    assert sorted(names, key=lambda name: name.parts) == ["tank", "tank/a", "tank/a/c", "tank/a-b"]


def test_a_name_is_text_to_everybody_else() -> None:
    name = DatasetName("tank/a")
    assert {name: 1}["tank/a"] == 1
    assert json.dumps([name, name.snapshot("s")]) == '["tank/a", "tank/a@s"]'
    assert not hasattr(name, "__dict__"), "it takes no more room than text"
    assert isinstance(parse_name("a@b#c"), SnapshotName)
    assert isinstance(parse_name("a#c"), BookmarkName)
