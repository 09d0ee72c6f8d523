"""Names that a backup makes of a dataset's: none that ZFS would not take is ever tried."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.names import DatasetName
from zvault.core.replication.base_names import LARGEST_GUID, make_mark_name
from zvault.core.replication.name_length import find_name_conflict

ZFS = 255
"""Characters in the longest full name of anything."""


def dataset(length: int) -> DatasetName:
    return DatasetName("tank/".ljust(length, "d"))


@given(length=st.integers(6, 255), above=st.integers(0, 60), prefix=st.integers(1, 64))
def test_what_is_planned_fits_and_what_does_not_fit_is_told(length: int, above: int, prefix: int):
    source = dataset(length)
    target = DatasetName(f"{'c' * above}/{source}" if above else source)
    snapname = f"{'p' * prefix}_2026-11-21T09:00:00Z"
    names = [
        source.snapshot(snapname),
        source.bookmark(make_mark_name(LARGEST_GUID, LARGEST_GUID)),
        target.snapshot(snapname),
        target.child("%recv"),
    ]
    found = find_name_conflict(source, target, len(snapname))
    assert (found is None) is all(len(name) <= ZFS for name in names)
    assert found is None or (source in found.problem and "'exclude'" in found.advice)


def test_the_longest_name_that_has_room_for_a_bookmark():
    snapname = len("zvault_2026-11-21T09:00:00Z")
    assert find_name_conflict(dataset(214), dataset(214), snapname) is None
    found = find_name_conflict(dataset(215), dataset(215), snapname)
    assert found is not None
    assert "it has 215 characters" in found.problem
    assert "room for 214" in found.problem
    assert "zfs rename" in found.advice


def test_a_name_on_the_vault_that_is_too_long():
    found = find_name_conflict(
        dataset(200),
        DatasetName("cold/host/more/and/more").child(dataset(212)),
        len("zvault_2026-11-21T09:00:00Z"),
    )
    assert found is not None
    assert "on the vault" in found.problem
    assert "'into'" in found.advice
