"""Of two trees that were matched before only what changed is visited, and the rest is as matching all gives it."""

from dataclasses import replace
from zlib import crc32

import pytest

from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import Pairing
from zvault.core.replication.pair_datasets import CachedPairs, pair_datasets


def dataset(name: str, *numbers: int) -> Dataset:
    at = DatasetName(name)
    snaps = tuple(Snapshot(at, f"s{number}", 100 + number, number, number) for number in numbers)
    return Dataset(at, crc32(name.encode()), "filesystem", snapshots=snaps)


def tree(*datasets: Dataset) -> Tree:
    return Tree({one.name: one for one in datasets})


def look(source: Tree, vault: Tree, known: CachedPairs) -> Pairing:
    """As matched with what is known, which matching all must equal."""
    wanted = [(one, DatasetName(f"cold/{one.name}")) for one in source]
    found = pair_datasets(source, wanted, vault, known=known)
    assert found == pair_datasets(source, wanted, vault)
    return found


def test_what_another_dataset_shares_counts_though_each_that_changed_goes_on() -> None:
    """What lay on the vault was a's, as far as a told; once a has lost that snapshot it may be b's."""
    top, known = dataset("tank", 1), CachedPairs()
    b = replace(dataset("tank/b"), bookmarks=(Bookmark(DatasetName("tank/b"), "s3", 103, 3, 3),))
    vault = tree(dataset("cold/tank", 1), dataset("cold/tank/a", 5, 6), old := dataset("cold/tank/old", 3, 5))
    assert look(tree(top, dataset("tank/a", 5, 6), b), vault, known).gone == (old,)
    assert look(tree(top, dataset("tank/a", 6), b), vault, known).gone == ()
    assert look(tree(top, dataset("tank/a", 5, 6), b), vault, known).gone == (old,)


def copied(name: str, of: Dataset, txg: int) -> Dataset:
    """As a restore leaves it: the same snapshots by GUID, which its pool got later, and no bookmark."""
    at = DatasetName(name)
    snaps = tuple(replace(snap, dataset=at, createtxg=txg) for snap in of.snapshots[-1:])
    return replace(of, name=at, guid=of.guid + 1, snapshots=snaps)


@pytest.mark.parametrize("copy", ["tank/a-copy", "tank/z-copy"])
def test_the_backup_of_what_was_renamed_stays_its_own_beside_a_restored_copy(copy: str) -> None:
    """The copy's snapshot is the same, and would take the whole history with it when it is destroyed."""
    original = dataset("tank/renamed", 1, 2, 3)
    vault = tree(dataset("cold/tank", 1), old := dataset("cold/tank/home", 1, 2, 3))
    pairing = look(
        tree(dataset("tank", 1), *sorted((original, copied(copy, original, 9)), key=lambda one: one.name)),
        vault,
        CachedPairs(),
    )
    followed = {pair.source.name: pair.vault for pair in pairing.pairs}
    assert (followed["tank/renamed"], followed[copy]) == (old, None)


@pytest.mark.parametrize("selected", ["tank/renamed", "tank/copy"])
def test_the_backup_is_that_of_what_had_it_first_whichever_of_both_is_selected(selected: str) -> None:
    """Who selects the copy only has not given the history of the other to it."""
    original = dataset("tank/renamed", 1, 2, 3)
    source = tree(dataset("tank", 1), copied("tank/copy", original, 9), original)
    vault = tree(dataset("cold/tank", 1), old := dataset("cold/tank/home", 1, 2, 3))
    each = [(one, DatasetName(f"cold/{one.name}")) for one in source]
    wanted = [pair for pair in each if pair[0].name in {"tank", selected}]
    pairing = pair_datasets(source, wanted, vault, left_out=[pair for pair in each if pair not in wanted])
    followed = {pair.source.name: pair.vault for pair in (*pairing.pairs, *pairing.unselected)}
    assert (followed["tank/renamed"], followed["tank/copy"]) == (old, None)


def test_of_two_that_had_it_at_the_same_time_the_selected_one_has_the_backup() -> None:
    one, other = dataset("tank/a", 1, 2), dataset("tank/b", 1, 2)
    source, vault = tree(dataset("tank", 1), one, other), tree(old := dataset("cold/old", 1, 2))
    for taken, left in ((one, other), (other, one)):
        pairing = pair_datasets(
            source, [(taken, DatasetName("cold/x"))], vault, left_out=[(left, DatasetName("cold/y"))]
        )
        assert (pairing.pairs[0].vault, pairing.unselected[0].vault) == (old, None)


def test_of_several_backups_the_one_that_goes_furthest_is_taken_all_the_same() -> None:
    original = dataset("tank/renamed", 1, 2, 3)
    vault = tree(
        dataset("cold/tank", 1), dataset("cold/tank/a", 1, 2), further := dataset("cold/tank/b", 1, 2, 3)
    )
    pairing = look(tree(dataset("tank", 1), original), vault, CachedPairs())
    assert {pair.source.name: pair.vault for pair in pairing.pairs}["tank/renamed"] == further


def test_only_what_changed_is_paired_anew() -> None:
    sources = [dataset("tank", 1), *(dataset(f"tank/d{number:02}", 1, 2) for number in range(40))]
    there = [dataset("cold/tank", 1), *(dataset(f"cold/tank/d{number:02}", 1, 2) for number in range(40))]
    known, vault = CachedPairs(), tree(*there)
    wanted = [(one, DatasetName(f"cold/{one.name}")) for one in sources]
    before = pair_datasets(tree(*sources), wanted, vault, known=known)
    sources[7] = dataset("tank/d06", 1, 2, 3)
    wanted[7] = sources[7], wanted[7][1]
    there[9] = dataset("cold/tank/d08", 2)
    after = pair_datasets(tree(*sources), wanted, tree(*there), known=known)
    different = [place for place, pair in enumerate(after.pairs) if pair is not before.pairs[place]]
    assert different == [7, 9]
    assert after == pair_datasets(tree(*sources), wanted, tree(*there))
    assert pair_datasets(tree(*sources), wanted, tree(*there), known=known).pairs == after.pairs
