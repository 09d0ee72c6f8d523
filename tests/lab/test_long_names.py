"""Names that leave no room for a snapshot's or a bookmark's: that dataset is told, all others are backed up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import world
from world import World, ctl, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 900}


def named(length: int, above: str = "tank/home") -> str:
    """A dataset's name of so many characters."""
    return f"{above}/".ljust(length, "d")


@pytest.fixture
def tank() -> Iterator[World]:
    it = World()
    it.clean()
    it.source()
    yield it
    it.clean()


def errors(run: str) -> dict[str, dict[str, str]]:
    return {one["dataset"]: one["error"] for one in world.events(run) if one["event"] == "dataset-failed"}


@pytest.mark.parametrize("length", [215, 217, 228, 249])
def test_one_name_that_is_too_long(tank: World, length: int):
    longest, too_long = named(214), named(length, "tank/my files")
    for name in (longest, too_long):
        sh("zfs", "create", "-o", "mountpoint=none", name)
    tank.vault_extra += '\nprofile = "local"'
    tank.backup_extra = 'into = "{dataset}"'
    tank.start()
    checked = ok("check-config")
    assert f"the name of {too_long} is too long" in checked.err
    assert longest not in checked.err
    ok("vault", "up", "cold")
    planned = " ".join(ctl("plan", "tank").out.split())
    assert "has room for 214" in planned
    for _ in range(2):
        done = ctl("run", "tank")
        assert done.code == 1, done.out + done.err
        run = ctl("history", "-j").json()["runs"][0]
        assert run["result"] == "partial"
        found = errors(run["id"])
        assert set(found) == {too_long}
        assert "has room for 214" in found[too_long]["why"]
        assert "zfs rename" in found[too_long]["next"]
        sh("sleep", "1.1")
    assert snapshots(too_long) == []
    for name in ("tank/home", "tank/big", longest):
        assert snapshots(f"cold/{name}") == snapshots(name)[-len(snapshots(f"cold/{name}")) :]
        assert len(snapshots(f"cold/{name}")) == 2
    sh("zfs", "rename", too_long, named(100, "tank/my files"))
    sh("sleep", "1.1")
    ok("run", "tank")
    assert snapshots(f"cold/{named(100, 'tank/my files')}")
