"""What cannot be written down is told, with what it means and what to do."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from zvault.daemon.history import RunHistory
from zvault.daemon.monitors.state_monitor import StateMonitor, find_write_trouble


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[StateMonitor]:
    history = RunHistory(tmp_path / "state" / "history.sqlite")
    yield StateMonitor(tmp_path / "state", history)
    history.close()


async def test_a_folder_that_can_be_written_is_well_and_left_as_it_was(
    monitor: StateMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Others write to the same file system meanwhile.
    asked: list[Path] = []
    usage = SimpleNamespace(free=4711)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: asked.append(folder) or usage)
    assert not monitor.looked
    await monitor.look()
    assert monitor.looked
    assert (monitor.space, asked) == (4711, [monitor.folder])
    assert monitor.trouble is None
    assert [path.name for path in monitor.folder.iterdir()] == ["history.sqlite"]


async def test_one_that_cannot_is_told_once_and_until_it_can(
    monitor: StateMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (monitor.folder / ".writable").mkdir()
    for _ in range(2):
        await monitor.look()
    assert monitor.trouble is not None
    assert monitor.trouble.startswith(f"nothing can be written in {monitor.folder}: ")
    assert f"'df -h {monitor.folder}'" in monitor.trouble
    (monitor.folder / ".writable").rmdir()
    await monitor.look()
    assert monitor.trouble is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


async def test_a_history_that_cannot_be_written_is_told_although_the_folder_can(
    monitor: StateMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor.history, "trouble", "attempt to write a readonly database")
    await monitor.look()
    assert "readonly" in (monitor.trouble or "")
    monkeypatch.undo()
    await monitor.look()
    assert monitor.trouble is None


def test_a_device_that_is_full_is_told(tmp_path: Path) -> None:
    (tmp_path / ".writable").symlink_to("/dev/full")
    assert find_write_trouble(tmp_path) == "No space left on device"
