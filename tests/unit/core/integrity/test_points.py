"""Snapshots of two sides as one row of points, and how versions are told over them."""

from __future__ import annotations

from zvault.core.integrity.file_versions import VersionTimeline
from zvault.core.integrity.points import merge_points, place_versions
from zvault.core.integrity.verification import TreeEntry
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName


def snap(number: int, dataset: str = "tank/a") -> Snapshot:
    return Snapshot(DatasetName(dataset), f"s{number}", number, number, number)


def entry(mtime: str) -> TreeEntry:
    return TreeEntry(7, "f", "644", "0:0", 1, mtime, b"a")


def test_the_same_snapshot_is_one_point() -> None:
    found = merge_points([snap(3), snap(4)], [snap(n, "cold/a") for n in (1, 2, 3)])
    assert [(one.source is not None, one.vault is not None, one.snapshot.guid) for one in found] == [
        (False, True, 1),
        (False, True, 2),
        (True, True, 3),
        (True, False, 4),
    ]
    assert [side for side, _ in found[2].places] == ["source", "vault"]


def test_a_file_appears_changes_vanishes_and_appears_again() -> None:
    row = merge_points([snap(4), snap(5), snap(6)], [snap(n, "cold/a") for n in (1, 2, 3, 4)])
    states = [{}, {b"a": entry("1")}, {b"a": entry("2")}, {b"a": entry("2")}, {}, {b"a": entry("3")}]
    line = VersionTimeline()
    for point, state in zip(row, states, strict=True):
        line.add(point.snapshot, state)
    found = place_versions(line.of(b"a"), row)
    assert [one.state for one in found] == ["appeared", "changed", "vanished", "appeared"]
    changed = found[1]
    assert (changed.count("source"), changed.count("vault")) == (1, 2)
    newest = changed.newest_on("vault")
    assert newest is not None
    assert newest.name == "cold/a@s4"
    assert found[3].newest_on("vault") is None


def test_what_is_in_the_oldest_snapshot_came_nobody_knows_when() -> None:
    row = merge_points([snap(1)], [])
    line = VersionTimeline()
    line.add(row[0].snapshot, {b"a": entry("1")})
    assert [one.state for one in place_versions(line.of(b"a"), row)] == ["there"]
