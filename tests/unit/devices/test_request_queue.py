"""Queue settings: order, limits, and what is put back; on plain files laid out as in sysfs."""

from pathlib import Path

import pytest

from zvault.config.profile import QueueSettings
from zvault.devices.request_queue import (
    MAX_SCHEDULED,
    AppliedQueueSetting,
    QueueChange,
    is_rotational,
    plan_queue_changes,
    read_queue_setting,
    restore_queue,
    write_queue_changes,
)
from zvault.system.process.runner import HostRunner

# As Linux 7.2 has them for an nbd device.
VALUES = {
    "max_sectors_kb": "4096",
    "max_hw_sectors_kb": "32768",
    "scheduler": "none [mq-deadline] kyber",
    "nr_requests": "256",
    "read_ahead_kb": "256",
}


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    folder = tmp_path / "nbd0" / "queue"
    folder.mkdir(parents=True)
    for name, value in VALUES.items():
        (folder / name).write_text(value + "\n")
    tags = tmp_path / "nbd0" / "mq" / "0"
    tags.mkdir(parents=True)
    (tags / "nr_tags").write_text("128\n")
    return tmp_path


def test_the_scheduler_comes_first_and_all_is_cut_to_the_device(sysfs: Path):
    wanted = QueueSettings(max_sectors_kb=65536, scheduler="none", nr_requests=1000, read_ahead_kb=0)
    assert plan_queue_changes("nbd0", wanted, sysfs) == [
        QueueChange("scheduler", "none", "none", "mq-deadline"),
        QueueChange("nr_requests", "1000", "128", "256"),
        QueueChange("max_sectors_kb", "65536", "32768", "4096"),
        QueueChange("read_ahead_kb", "0", "0", "256"),
    ]


@pytest.mark.parametrize(
    ("takes", "asked", "value"),
    [(2**32 - 512, 16 << 20, 16 << 20), (4 << 20, 16 << 20, 4 << 20), (0, 16 << 20, 0)],
)
def test_a_discard_is_bounded_by_what_the_device_takes(sysfs: Path, takes: int, asked: int, value: int):
    for name in ("discard_max_bytes", "discard_max_hw_bytes"):
        (sysfs / "nbd0/queue" / name).write_text(f"{takes}\n")
    assert plan_queue_changes("nbd0", QueueSettings(discard_max_bytes=asked), sysfs) == [
        QueueChange("discard_max_bytes", str(value), str(value), str(takes))
    ]
    (off,) = plan_queue_changes("nbd0", QueueSettings(discard_max_bytes=0), sysfs)
    assert off.value == "0"


async def test_what_the_kernel_calls_no_limit_is_put_back_as_whole_discards(sysfs: Path):
    """4294966784 is no multiple of 4096, and Linux refuses it with EINVAL."""
    folder = sysfs / "nbd0/queue"
    (folder / "discard_max_bytes").write_text("0\n")
    (folder / "discard_granularity").write_text("4096\n")
    await restore_queue("nbd0", {"discard_max_bytes": "4294966784"}, HostRunner(), sysfs)
    assert (folder / "discard_max_bytes").read_text() == "4294963200\n"


def test_a_scheduler_bounds_the_requests_otherwise(sysfs: Path):
    (change,) = plan_queue_changes("nbd0", QueueSettings(nr_requests=10_000), sysfs)
    assert change.value == str(MAX_SCHEDULED)


def test_what_is_not_asked_for_or_not_there_is_left_alone(sysfs: Path):
    assert plan_queue_changes("nbd0", QueueSettings(), sysfs) == []
    (sysfs / "nbd0/queue/scheduler").unlink()
    assert plan_queue_changes("nbd0", QueueSettings(scheduler="none"), sysfs) == []
    assert plan_queue_changes("nbd7", QueueSettings(max_sectors_kb=4), sysfs) == []


def test_within_the_limits_a_value_is_as_wanted(sysfs: Path):
    assert [
        change.value for change in plan_queue_changes("nbd0", QueueSettings(max_sectors_kb=1024), sysfs)
    ] == ["1024"]


async def test_written_read_back_and_restored(sysfs: Path):
    changes = plan_queue_changes("nbd0", QueueSettings(max_sectors_kb=65536, read_ahead_kb=64), sysfs)
    done = await write_queue_changes("nbd0", changes, HostRunner(), sysfs)
    assert done == [
        AppliedQueueSetting("max_sectors_kb", "65536", "32768"),
        AppliedQueueSetting("read_ahead_kb", "64", "64"),
    ]
    assert [setting.as_wanted for setting in done] == [False, True]
    assert read_queue_setting("nbd0", "max_sectors_kb", sysfs) == "32768"
    await restore_queue("nbd0", {change.name: change.before for change in changes}, HostRunner(), sysfs)
    assert {
        name: read_queue_setting("nbd0", name, sysfs) for name in ("max_sectors_kb", "read_ahead_kb")
    } == {
        "max_sectors_kb": "4096",
        "read_ahead_kb": "256",
    }


async def test_to_restore_a_device_that_is_gone_is_no_error(sysfs: Path):
    await restore_queue("nbd7", {"max_sectors_kb": "4096"}, HostRunner(), sysfs)


def test_the_chosen_scheduler_is_the_one_in_brackets(sysfs: Path):
    assert read_queue_setting("nbd0", "scheduler", sysfs) == "mq-deadline"


def test_whether_a_device_rotates_is_its_own_word_or_its_disks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for disk, says in (("sda", "1"), ("nbd0", "0")):
        (tmp_path / "devices" / disk / "queue").mkdir(parents=True)
        (tmp_path / "devices" / disk / "queue" / "rotational").write_text(f"{says}\n")
    (tmp_path / "devices" / "sda" / "sda1").mkdir()
    links = tmp_path / "class"
    links.mkdir()
    for name, target in (("sda", "sda"), ("sda1", "sda/sda1"), ("nbd0", "nbd0")):
        (links / name).symlink_to(tmp_path / "devices" / target)
    monkeypatch.setattr("zvault.devices.request_queue.QUEUE_SYS_CLASS", links)
    assert [is_rotational(f"/dev/{name}") for name in ("sda", "sda1", "nbd0")] == [True, True, False]
    assert is_rotational(str(tmp_path / "file.img")) is None
