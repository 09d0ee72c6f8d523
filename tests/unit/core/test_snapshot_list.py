"""A list of snapshots is what a tuple of the same is, in less memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core import snapshot_list
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.snapshot_list import SnapshotList, append_snapshots, list_guids, list_newer_snapshots

NAME = DatasetName("tank/a")
ROWS = st.lists(
    st.tuples(
        st.text("abc_:", min_size=1, max_size=5),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.integers(-(2**40), 2**40),
    ),
    max_size=8,
    unique_by=lambda row: row[2],
)


@given(ROWS)
def test_sorted_in_parts_it_is_the_same(rows: list[tuple[str, int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_list, "SORTED_AT_ONCE", 2)
        assert SnapshotList.of(NAME, rows) == tuple(
            Snapshot(NAME, *row) for row in sorted(rows, key=lambda row: row[2])
        )


@given(ROWS, st.integers(0, 2**64 - 1), st.slices(8))
def test_it_is_as_a_tuple_of_the_same(
    rows: list[tuple[str, int, int, int]], createtxg: int, some: slice
) -> None:
    expected = tuple(Snapshot(NAME, *row) for row in sorted(rows, key=lambda row: row[2]))
    found = SnapshotList.of(NAME, rows)
    assert found == expected
    assert expected == found
    assert (len(found), hash(found), repr(found)) == (len(expected), hash(expected), repr(expected))
    assert (tuple(found), tuple(reversed(found)), found[some]) == (expected, expected[::-1], expected[some])
    assert [found.index(one) for one in expected] == [expected.index(one) for one in expected]
    assert list(list_guids(found)) == list_guids(expected)
    assert list(list_newer_snapshots(found, createtxg)) == [
        one for one in expected if one.createtxg > createtxg
    ]
    assert found == SnapshotList.of(NAME, rows)
    if rows:
        assert (found[-1], found[0]) == (expected[-1], expected[0])
        assert found != expected[1:]
        assert found != SnapshotList.of(DatasetName("tank/b"), rows)
        assert found != SnapshotList.of(NAME, rows[1:])


def test_lists_with_the_same_names_and_dates_share_them() -> None:
    one = SnapshotList.of(NAME, [("a", 1, 1, 5), ("b", 2, 2, 6)])
    other = SnapshotList.of(DatasetName("tank/b"), [("b", 9, 8, 6), ("a", 7, 7, 5)])
    assert one.column is other.column
    assert one.column is not SnapshotList.of(NAME, [("a", 1, 1, 5), ("b", 2, 2, 7)]).column


@given(ROWS, st.integers(1, 3), st.booleans(), st.booleans())
def test_what_comes_behind_them_is_as_in_a_tuple(
    rows: list[tuple[str, int, int, int]], count: int, imagined: bool, packed: bool
) -> None:
    """Also a snapshot that is only imagined, whose GUID is below zero, and one behind that."""
    rows = [(name, guid, txg >> 1, made) for name, guid, txg, made in rows]
    before = SnapshotList.of(NAME, rows)
    more = [
        Snapshot(NAME, f"new{place}", -place if imagined else place, 2**63 + place, place)
        for place in range(1, count + 1)
    ]
    found = append_snapshots(before if packed else tuple(before), more[:-1])
    found = append_snapshots(found, more[-1:])
    assert tuple(found) == (*before, *more)
    assert list(list_guids(found)) == [snap.guid for snap in (*before, *more)]
    assert list(list_newer_snapshots(found, 2**63)) == more
    assert found == append_snapshots(before, more)
    assert isinstance(found, SnapshotList) or (not packed and before)
