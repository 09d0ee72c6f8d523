"""Runs that make no snapshot: they send what is there, many datasets at a time, and protect it as any run does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import world
from world import World, ctl, get, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 1750, "in_order": True}

NAMES = ["tank", *(f"tank/d{number:02}" for number in range(24))]
FIRST, SECOND = "zvault_2026-01-01T00:00:00Z", "zvault_2026-01-01T01:00:00Z"


@pytest.fixture(scope="module")
def tank() -> Iterator[None]:
    it = World(keep="{ source = { last = 9 }, vault = { last = 9 } }")
    it.clean()
    world.DISK.mkdir()
    sh("truncate", "-s", "512M", str(world.DISK / "tank.img"))
    sh("zpool", "create", "-O", "mountpoint=none", "tank", str(world.DISK / "tank.img"))
    for name in NAMES[1:]:
        sh("zfs", "create", name)
    it.start()
    ok("vault", "up", "cold")
    yield
    it.clean()


def protected(snapname: str, *before: str) -> None:
    """Every dataset's snapshot of that name is on the vault, and held; it and those ``before`` are bookmarked."""
    guid = sh("zpool", "get", "-Hpo", "value", "guid", "cold").strip()
    hold = f"zvault:{int(guid):x}"
    for name in NAMES:
        assert get(f"cold/lab/{name}@{snapname}", "guid") == get(f"{name}@{snapname}", "guid")
        held = sh("zfs", "holds", "-H", *(f"{name}@{one}" for one in snapshots(name)))
        assert [line.split("\t")[:2] for line in held.splitlines()] == [[f"{name}@{snapname}", hold]]
        marks = sh("zfs", "list", "-Ho", "name", "-t", "bookmark", name).split()
        assert sorted(get(mark, "guid") for mark in marks) == sorted(
            get(f"{name}@{one}", "guid") for one in (snapname, *before)
        )


def test_a_run_that_finds_none_of_its_snapshots_fails_and_says_so(tank: None) -> None:
    sh("zfs", "snapshot", "-r", "tank@by-hand")
    done = ctl("run", "tank", "--no-snapshot")
    assert done.code == 1, done.out
    assert "found no snapshot to send" in done.err
    sh("zfs", "destroy", "-r", "tank@by-hand")


def test_it_sends_the_snapshots_that_are_there_and_makes_none(tank: None) -> None:
    sh("zfs", "snapshot", "-r", f"tank@{FIRST}")
    ok("run", "tank", "--no-snapshot")
    assert all(snapshots(name) == [FIRST] for name in NAMES)
    protected(FIRST)


def test_increments_of_many_datasets_leave_each_protected(tank: None) -> None:
    sh("zfs", "snapshot", "-r", f"tank@{SECOND}")
    ok("run", "tank", "--no-snapshot")
    assert all(snapshots(f"cold/lab/{name}") == [FIRST, SECOND] for name in NAMES)
    protected(SECOND, FIRST)


def test_nothing_to_send_changes_nothing(tank: None) -> None:
    sh("zpool", "sync")
    before = sh("zpool", "history", "-i", "tank") + sh("zpool", "history", "-i", "cold")
    ok("run", "tank", "--no-snapshot")
    assert sh("zpool", "history", "-i", "tank") + sh("zpool", "history", "-i", "cold") == before
    protected(SECOND, FIRST)


def test_what_was_undone_by_hand_is_found_when_the_dataset_changes(tank: None) -> None:
    guid = sh("zpool", "get", "-Hpo", "value", "guid", "cold").strip()
    sh("zfs", "release", f"zvault:{int(guid):x}", f"tank/d00@{SECOND}")
    third = "zvault_2026-01-01T02:00:00Z"
    sh("zfs", "snapshot", "-r", f"tank@{third}")
    ok("run", "tank", "--no-snapshot")
    protected(third, SECOND)
