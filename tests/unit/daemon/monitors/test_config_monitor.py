"""Whether the configuration on disk is the one in force, with real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.daemon.monitors.config_monitor import ConfigMonitor
from zvault.ops.state.environment import Environment
from zvault.system.process.runner import HostRunner

TEXT = """
[vault.cold]
pool = "cold"
[backup.tank]
source = "tank"
vault = "cold"
"""
PROFILES = Path(__file__).resolve().parents[4] / "config" / "profiles"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "zvault.toml").write_text(TEXT)
    return Paths(tmp_path, tmp_path, tmp_path, PROFILES)


@pytest.fixture
def monitor(paths: Paths) -> ConfigMonitor:
    return ConfigMonitor(Environment.of(load_config(paths), paths, HostRunner()))


async def differs(monitor: ConfigMonitor) -> str:
    await monitor.look()
    assert monitor.differs is not None
    return monitor.differs


async def test_before_a_look_nothing_is_known_and_after_it_all_is_well(monitor: ConfigMonitor):
    assert monitor.differs is None
    assert await differs(monitor) == ""


async def test_what_only_looks_other_is_the_same(monitor: ConfigMonitor, paths: Paths):
    paths.config_file.write_text("# a comment\n" + TEXT)
    assert await differs(monitor) == ""


async def test_another_one_is_told_until_it_is_in_force(monitor: ConfigMonitor, paths: Paths):
    (paths.etc / "conf.d" / "more.toml").write_text('[vault.ice]\npool = "ice"\n')
    assert "systemctl reload zvaultd" in await differs(monitor)
    monitor.env.reconfigure(load_config(paths))
    assert await differs(monitor) == ""


async def test_one_with_an_error_is_told_with_it_until_it_is_right_again(
    monitor: ConfigMonitor, paths: Paths
):
    paths.config_file.write_text(TEXT.replace("pool", "poool"))
    assert 'did you mean "pool"' in await differs(monitor)
    paths.config_file.write_text(TEXT)
    assert await differs(monitor) == ""


async def test_one_that_is_gone_is_told(monitor: ConfigMonitor, paths: Paths):
    paths.config_file.unlink()
    assert str(paths.config_file) in await differs(monitor)


async def test_a_file_that_is_replaced_at_the_same_time_is_another(monitor: ConfigMonitor, paths: Paths):
    await monitor.look()
    stamp = paths.config_file.stat().st_mtime_ns
    new = paths.etc / "new"
    new.write_text(TEXT.replace('"tank"', '"lake"'))
    os.utime(new, ns=(stamp, stamp))
    new.replace(paths.config_file)
    assert await differs(monitor)
