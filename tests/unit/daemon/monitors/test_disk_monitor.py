"""A disk that appears has what is due on it run, once."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon.monitors.disk_monitor import DiskMonitor
from zvault.ops import removable_disk
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.ops.vaults.vault import Vaults
from zvault.system import block_devices
from zvault.system.process.runner import HostRunner


class Caught:
    """A scheduler that notes what it is to catch up with."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def catch_up(self, backups: Collection[str]) -> None:
        self.asked.append(sorted(backups))


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(block_devices, "BY_LABEL", tmp_path)
    monkeypatch.setattr(removable_disk, "list_imported_pools", list)
    return tmp_path


@pytest.fixture
def built(disks: Path) -> tuple[DiskMonitor, Caught]:
    removable = {name: {"pool": name, "removable": True} for name in ("usb-a", "usb-b")}
    backups = {
        "a": {"source": "tank/a", "vault": "usb-a"},
        "a2": {"source": "tank/b", "vault": "usb-a"},
        "b": {"source": "tank/c", "vault": "usb-b"},
        "cold": {"source": "tank/d", "vault": "cold"},
    }
    config = Config.model_validate({"vault": {"cold": {"pool": "cold"}, **removable}, "backup": backups})
    context = Context.of(Environment(config, Paths(run=disks / "run"), HostRunner(), "lab", WallClock()))
    caught: Any = Caught()
    return DiskMonitor(Vaults(context), caught), caught


async def test_two_disks_in_turn_each_have_their_own_backups_run(
    built: tuple[DiskMonitor, Caught], disks: Path
) -> None:
    monitor, caught = built
    await monitor.look()
    assert caught.asked == []
    (disks / "usb-a").touch()
    await monitor.look()
    await monitor.look()
    assert caught.asked == [["a", "a2"]], "once"
    assert monitor._vaults.context.activity.appeared.keys() == {"usb-a"}
    (disks / "usb-a").unlink()
    (disks / "usb-b").touch()
    (disks / "cold").touch()
    await monitor.look()
    assert caught.asked == [["a", "a2"], ["b"]], "and no vault that is not removable"
    (disks / "usb-a").touch()
    await monitor.look()
    assert caught.asked == [["a", "a2"], ["b"], ["a", "a2"]], "each time that it appears"


async def test_a_pool_that_is_imported_is_there_whatever_udev_says(
    built: tuple[DiskMonitor, Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, caught = built
    monkeypatch.setattr(removable_disk, "list_imported_pools", lambda: ["usb-b"])
    await monitor.look()
    assert caught.asked == [["b"]]
