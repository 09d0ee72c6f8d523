"""Module parameters, on plain files laid out as in sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed
from zvault.core.tuning.tuning import KernelParameter
from zvault.system.process.runner import HostRunner
from zvault.zfs.pool.module_parameters import list_imported_pools, read_tuned_host, write_parameters


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "zfs" / "parameters"
    folder.mkdir(parents=True)
    for name, value, mode in (
        ("zfs_txg_timeout", "5", 0o644),
        ("zio_taskq_read", "fixed,1,8 null scale null", 0o644),
        ("spa_config_path", "/etc/zfs:zpool.cache", 0o444),
        ("zfs_blake3_impl", "cycle [fastest] generic sse2", 0o644),
    ):
        (folder / name).write_text(f"{value}\n")
        (folder / name).chmod(mode)
    (tmp_path / "zfs" / "version").write_text("2.3.9-0+deb13u1\n")
    return tmp_path / "zfs"


async def test_what_a_host_has(module: Path):
    host = await read_tuned_host(HostRunner(), module)
    assert host.version == (2, 3, 9)
    assert host.memory > 1 << 28
    assert host.parameters == {
        "zfs_txg_timeout": KernelParameter("5", True),
        "zio_taskq_read": KernelParameter("fixed,1,8 null scale null", True),
        "spa_config_path": KernelParameter("/etc/zfs:zpool.cache", False),
        "zfs_blake3_impl": KernelParameter("fastest", True),
    }


async def test_some_parameters_are_read_without_the_others(module: Path):
    names = {"zfs_txg_timeout", "zfs_blake3_impl", "nope"}
    host = await read_tuned_host(HostRunner(), module, only=names)
    assert host.parameters == {
        "zfs_txg_timeout": KernelParameter("5", True),
        "zfs_blake3_impl": KernelParameter("fastest", True),
    }
    assert (await read_tuned_host(HostRunner(), module, only=())).parameters == {}


async def test_openzfs_that_is_not_loaded(tmp_path: Path):
    with pytest.raises(ToolFailed, match="cannot be read") as caught:
        await read_tuned_host(HostRunner(), tmp_path)
    assert "modprobe zfs" in caught.value.next


async def test_written_in_order_and_what_fails_does_not_keep_the_rest_from_it(module: Path):
    complaint = await write_parameters({"nope/nope": "1", "zfs_txg_timeout": "30 $x"}, HostRunner(), module)
    assert "nope" in complaint
    assert (module / "parameters" / "zfs_txg_timeout").read_text() == "30 $x\n"
    assert await write_parameters({"zfs_txg_timeout": "5"}, HostRunner(), module) == ""


def test_pools_are_folders_with_a_state(tmp_path: Path):
    (tmp_path / "tank").mkdir()
    (tmp_path / "tank" / "state").write_text("ONLINE\n")
    (tmp_path / "arcstats").write_text("")
    (tmp_path / "import_progress").mkdir()
    assert list_imported_pools(tmp_path) == ["tank"]
    assert list_imported_pools(tmp_path / "none") == []
