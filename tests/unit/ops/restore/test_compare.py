"""Two folders as two sides, with the real tools: what differs in contents or traits, and what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zvault.api.events import WarningEvent
from zvault.core.integrity.verification import HASHED_PIECE, KeyRange, VerificationFindings
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_elsewhere import StrayBackup
from zvault.core.replication.base_names import make_disproved_mark_name, make_mark_name, make_unsent_mark_name
from zvault.core.replication.lineage import DatasetPair
from zvault.ops.replication.listing import BothListings
from zvault.ops.restore.compare import SnapshotComparison
from zvault.ops.restore.snapshot_reader import OpenSnapshot
from zvault.ops.verification.proofs import (
    compare_guids,
    find_common_snapshot,
    is_in_conflict,
    is_not_sent_yet,
)
from zvault.system.process.runner import HostRunner
from zvault.zfs.host import LocalHost

POOL = 0xC01D


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotComparison:
    # Of two folders beside each other the numbers are not the same: so they are listed in one go.
    monkeypatch.setattr("zvault.ops.restore.compare.FILES_PER_LISTING", 1 << 62)
    source, vault = tmp_path / "source", tmp_path / "vault"
    (source / "sub").mkdir(parents=True)
    for number in range(30):
        (source / "sub" / f"file\n{number}").write_text(f"text {number}")
    shutil.copytree(source, vault, copy_function=shutil.copy2)
    host, told = LocalHost(HostRunner()), []
    comparison = SnapshotComparison(
        "tank",
        12345,
        OpenSnapshot(host, str(source)),
        OpenSnapshot(host, str(vault)),
        VerificationFindings(),
        told.append,
    )
    comparison.told = told  # type: ignore[attr-defined]
    return comparison


def vault_of(sides: SnapshotComparison) -> Path:
    return Path(sides.vault.root)


async def test_what_is_the_same_is_counted(sides: SnapshotComparison) -> None:
    assert await sides.compare(7, 1.0, None, everything=True) == KeyRange(7)
    assert sides.found.differences == []
    assert (sides.found.files, sides.found.bytes) == (30, sum(len(f"text {n}") for n in range(30)))


async def test_contents_traits_and_absence(sides: SnapshotComparison) -> None:
    (vault_of(sides) / "sub" / "file\n3").write_text("TEXT 3")
    (vault_of(sides) / "sub" / "file\n4").chmod(0o600)
    (vault_of(sides) / "sub" / "file\n5").unlink()
    (vault_of(sides) / "extra").mkdir()
    await sides.compare(0, 1.0, None, everything=True)
    found = {one.path: one for one in sides.found.differences}
    assert set(found) == {r"sub/file\n3", r"sub/file\n4", r"sub/file\n5", "extra"}
    assert len(str(found[r"sub/file\n3"].source)) == len(str(found[r"sub/file\n3"].vault)) == 64
    assert "mode 600" in str(found[r"sub/file\n4"].vault)
    assert found[r"sub/file\n5"].vault == found["extra"].source == "nothing"


async def test_a_sample_names_what_it_cannot_read_on_the_other_side(sides: SnapshotComparison) -> None:
    (vault_of(sides) / "sub" / "file\n5").unlink()
    await sides.compare(0, 1.0, None, everything=False)
    assert [(one.path, one.vault) for one in sides.found.differences] == [(r"sub/file\n5", None)]
    told = [event.text for event in sides.told if isinstance(event, WarningEvent)]  # type: ignore[attr-defined]
    assert any("No such file" in text for text in told)


async def test_volumes_by_pieces(sides: SnapshotComparison, tmp_path: Path) -> None:
    images = [tmp_path / "one", tmp_path / "other"]
    for image in images:
        with image.open("wb") as file:
            file.truncate(2 * HASHED_PIECE + 4096)
    with images[1].open("r+b") as file:
        file.seek(HASHED_PIECE + 5)
        file.write(b"x")
    host = sides.source.host
    sides.source, sides.vault = (OpenSnapshot(host, str(image), image.stat().st_size) for image in images)
    await sides.compare(0, 1.0, None, everything=True)
    assert [one.path for one in sides.found.differences] == [f"bytes {HASHED_PIECE} to {2 * HASHED_PIECE}"]
    images[1].unlink()
    await sides.compare(0, 1.0, None, everything=True)
    assert len(sides.found.differences) == 4


def snaps(name: str, *guids: int) -> tuple[Snapshot, ...]:
    return tuple(Snapshot(DatasetName(name), f"s{n}", guid, n, n) for n, guid in enumerate(guids, 1))


def trees_of(*sides: tuple[Dataset, ...]) -> tuple[Tree, ...]:
    return tuple(Tree({one.name: one for one in side}) for side in sides)


def test_listings_that_contradict_each_other() -> None:
    source = Dataset(DatasetName("tank"), 1, "filesystem", snapshots=snaps("tank", 11, 12, 13))
    gone = Bookmark(DatasetName("tank/a"), make_mark_name(POOL, 20), 20, 1, 1)
    child = Dataset(DatasetName("tank/a"), 2, "filesystem", snapshots=snaps("tank/a", 21), bookmarks=(gone,))
    sent = Bookmark(DatasetName("tank/b"), make_mark_name(POOL, 31), 31, 1, 1)
    lost = Dataset(DatasetName("tank/b"), 3, "filesystem", snapshots=snaps("tank/b", 31), bookmarks=(sent,))
    vault = Dataset(
        DatasetName("cold/tank"), 4, "filesystem", snapshots=snaps("cold/tank", 11, 99, 13), written=512
    )
    other = Dataset(DatasetName("cold/tank/a"), 5, "filesystem", snapshots=snaps("cold/tank/a", 77))
    pairs = ((source, "cold/tank"), (child, "cold/tank/a"), (lost, "cold/tank/b"))
    sides = BothListings(*trees_of((source, child, lost), (vault, other)), pairs)
    found = [(one.dataset, one.path) for one in compare_guids(sides, POOL, lambda _: True)]
    assert found == [
        ("tank", "bytes written on the vault"),
        ("tank", "@s2"),
        ("tank/a", "the base"),
        ("tank/a", "@s1"),
        ("tank/b", "the dataset"),
    ]
    others = [(one.dataset, one.path) for one in compare_guids(sides, POOL, lambda _: False)]
    assert others == [one for one in found if "@" not in one[1]], (
        "others use a name again, and nothing is damaged"
    )


def test_a_dataset_that_was_made_anew_is_a_conflict_and_no_difference() -> None:
    """Nothing of it was ever sent to this pool, so nothing of it can be damaged there."""
    anew = Dataset(DatasetName("tank"), 1, "filesystem", snapshots=snaps("tank", 21, 22))
    vault = Dataset(DatasetName("cold/tank"), 4, "filesystem", snapshots=snaps("cold/tank", 11, 12))
    sides = BothListings(
        Tree({"tank": anew}), Tree({"cold/tank": vault}), ((anew, DatasetName("cold/tank")),)
    )
    assert compare_guids(sides, POOL, lambda _: True) == []
    (pair,) = sides.pairing.pairs
    assert is_in_conflict(pair, POOL)


def test_a_dataset_that_was_never_sent_is_no_difference() -> None:
    begun = Bookmark(DatasetName("tank/c"), make_unsent_mark_name(POOL, 31), 31, 1, 1)
    elsewhere = Bookmark(DatasetName("tank/c"), make_mark_name(POOL + 1, 31), 31, 1, 1)
    new = Dataset(
        DatasetName("tank/c"), 3, "filesystem", snapshots=snaps("tank/c", 31), bookmarks=(begun, elsewhere)
    )
    place = DatasetName("cold/tank/c")
    half = Dataset(place, 4, "filesystem", resume_token="1-2")
    stranger = Dataset(place, 4, "filesystem")
    holder = Dataset(place, 4, "filesystem", placeholder=True)
    for there, conflict in ((None, False), (half, False), (holder, False), (stranger, True)):
        vault = Tree({place: there}) if there is not None else Tree()
        sides = BothListings(Tree({new.name: new}), vault, ((new, place),))
        assert compare_guids(sides, POOL, lambda _: True) == []
        (pair,) = sides.pairing.pairs
        assert (is_in_conflict(pair, POOL) and not is_not_sent_yet(pair, POOL)) is conflict


@pytest.mark.parametrize("form", [make_mark_name, make_disproved_mark_name])
def test_what_a_look_has_taken_back_is_missing_all_the_same(form: Callable[[int, int], str]) -> None:
    """zvaultd corrects a bookmark seconds after a vault lost what it tells. The loss is one nevertheless."""
    mark = Bookmark(DatasetName("tank/c"), form(POOL, 31), 31, 1, 1)
    lost = Dataset(
        DatasetName("tank/c"), 3, "filesystem", snapshots=snaps("tank/c", 31, 32), bookmarks=(mark,)
    )
    place = DatasetName("cold/tank/c")
    other = Dataset(place, 4, "filesystem", snapshots=snaps(place, 11))
    for vault, path in ((Tree(), "the dataset"), (Tree({place: other}), "the base")):
        sides = BothListings(Tree({lost.name: lost}), vault, ((lost, place),))
        assert next(one.path for one in compare_guids(sides, POOL, lambda _: True)) == path
        stray = {lost.name: StrayBackup("cold/elsewhere/c has its base, but …", "rename it")}
        assert not compare_guids(replace(sides, stray=stray), POOL, lambda _: True), (
            "that is told as a conflict"
        )
        (pair,) = sides.pairing.pairs
        assert not is_in_conflict(pair, POOL)


def test_what_is_sent_again_after_that_is_only_not_there_yet() -> None:
    mark = Bookmark(DatasetName("tank/c"), make_disproved_mark_name(POOL, 31), 31, 1, 1)
    lost = Dataset(DatasetName("tank/c"), 3, "filesystem", snapshots=snaps("tank/c", 31), bookmarks=(mark,))
    place = DatasetName("cold/tank/c")
    vault = Tree({place: Dataset(place, 4, "filesystem", resume_token="1-2")})
    assert not compare_guids(
        BothListings(Tree({lost.name: lost}), vault, ((lost, place),)), POOL, lambda _: True
    )


def test_compared_is_the_newest_that_both_have() -> None:
    source = Dataset(DatasetName("tank"), 1, "filesystem", snapshots=snaps("tank", 11, 12, 13))
    vault = Dataset(DatasetName("cold/tank"), 4, "filesystem", snapshots=snaps("cold/tank", 11, 12))
    mine, its = find_common_snapshot(DatasetPair(source, "cold/tank", vault))
    assert (mine.name, its.name) == ("tank@s2", "cold/tank@s2")
    with pytest.raises(Exception, match="no snapshot in common"):
        find_common_snapshot(DatasetPair(source, "cold/tank"))
