"""A block device's request queue: ``/sys/block/DEVICE/queue`` (Linux, Documentation/ABI/stable/sysfs-block).

A write there waits for the requests in flight, which on a dead device may take long; so a child process writes.
The values outlive an NBD connection: they belong to the device's name, and must be put back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zvault.config.profile import QueueSettings
from zvault.core.errors import DeadlineExceeded
from zvault.system.process.runner import ProcessRunner

QUEUE_SYS_BLOCK = Path("/sys/block")
QUEUE_SYS_CLASS = Path("/sys/class/block")
QUEUE_WRITE_DEADLINE = 10.0

MAX_SCHEDULED = 2048
"""The most requests the kernel lets a scheduler hold: MAX_SCHED_RQ in block/blk-mq-sched.h."""

ORDER = ("scheduler", "nr_requests", "max_sectors_kb", "read_ahead_kb")
"""A new scheduler resets nr_requests, and bounds it."""


@dataclass(frozen=True, slots=True)
class QueueChange:
    """A setting to write: ``value`` is ``wanted`` as far as the device allows, ``before`` what it is now."""

    name: str
    wanted: str
    value: str
    before: str


@dataclass(frozen=True, slots=True)
class AppliedQueueSetting:
    """A setting as it came to be."""

    name: str
    wanted: str
    got: str

    @property
    def as_wanted(self) -> bool:
        """True if the device took the value."""
        return self.wanted == self.got


def plan_queue_changes(
    device: str, settings: QueueSettings, sys_block: Path = QUEUE_SYS_BLOCK
) -> list[QueueChange]:
    """Plan what to write for ``settings``, in order, cut to what the device can take. Reads only."""
    wanted = {name: str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    changes = []
    for name in sorted(wanted, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name)):
        before = read_queue_setting(device, name, sys_block)
        if before is not None:
            value = _cut(device, name, wanted, sys_block)
            # A device that takes smaller discards, or none, is within the bound: nothing to tell of.
            asked = value if name == "discard_max_bytes" else wanted[name]
            changes.append(QueueChange(name, asked, value, before))
    return changes


def read_queue_setting(device: str, name: str, sys_block: Path = QUEUE_SYS_BLOCK) -> str | None:
    """A setting's value; None if this device has none of that name."""
    try:
        text = (sys_block / device / "queue" / name).read_text(encoding="ascii").strip()
    except OSError:
        return None
    chosen = re.search(r"\[(.+?)\]", text)
    return chosen[1] if chosen else text


def is_rotational(path: str) -> bool | None:
    """True if the device at a path such as /dev/nbd0 says that it rotates; None for what is no block device.

    Newer kernels (7.2 does) ask the server of an NBD device, and never take back that one said so: the same vault may
    say one or the other, so it is read, never assumed. A partition says what its disk does.
    """
    folder = (QUEUE_SYS_CLASS / Path(path).resolve().name).resolve()
    for place in (folder, folder.parent):
        try:
            return (place / "queue" / "rotational").read_text(encoding="ascii").strip() == "1"
        except OSError:
            continue
    return None


async def write_queue_changes(
    device: str, changes: Iterable[QueueChange], runner: ProcessRunner, sys_block: Path = QUEUE_SYS_BLOCK
) -> list[AppliedQueueSetting]:
    """Write the changes. What a device refuses stays as it was, and the result says so."""
    done = []
    for change in changes:
        if read_queue_setting(device, change.name, sys_block) != change.value:
            await _put(sys_block / device / "queue" / change.name, change.value, runner)
        done.append(
            AppliedQueueSetting(
                change.name, change.wanted, read_queue_setting(device, change.name, sys_block) or "?"
            )
        )
    return done


async def restore_queue(
    device: str, before: Mapping[str, str], runner: ProcessRunner, sys_block: Path = QUEUE_SYS_BLOCK
) -> None:
    """Put back what stood there before, as far as the device still takes it."""
    for name in sorted(before, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        if read_queue_setting(device, name, sys_block) not in (None, before[name]):
            value = _whole(device, before[name], sys_block) if name == "discard_max_bytes" else before[name]
            await _put(sys_block / device / "queue" / name, value, runner)


def _whole(device: str, value: str, sys_block: Path) -> str:
    """Cut to whole discards: the kernel refuses what is none, also where it is what the kernel had made of no limit."""
    granularity = _number(read_queue_setting(device, "discard_granularity", sys_block))
    return str(int(value) // granularity * granularity) if granularity and value.isdecimal() else value


async def _put(path: Path, value: str, runner: ProcessRunner) -> None:
    try:
        await runner.run(
            ["tee", "--", str(path)], stdin=f"{value}\n".encode(), deadline=QUEUE_WRITE_DEADLINE, check=False
        )
    except DeadlineExceeded:
        return  # the value read afterwards tells


def _cut(device: str, name: str, wanted: Mapping[str, str], sys_block: Path) -> str:
    limit: int | None = None
    if name == "max_sectors_kb":
        limit = _number(read_queue_setting(device, "max_hw_sectors_kb", sys_block))
    elif name == "discard_max_bytes":
        limit = _number(read_queue_setting(device, "discard_max_hw_bytes", sys_block))
    elif name == "nr_requests":
        scheduler = wanted.get("scheduler") or read_queue_setting(device, "scheduler", sys_block)
        limit = _tags(device, sys_block) if scheduler == "none" else MAX_SCHEDULED
    return wanted[name] if limit is None else str(min(int(wanted[name]), limit))


def _tags(device: str, sys_block: Path) -> int | None:
    """The device's own queue depth, which is all there is without a scheduler."""
    try:
        return _number((sys_block / device / "mq" / "0" / "nr_tags").read_text(encoding="ascii"))
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def read_capacity(path: str) -> int | None:
    """Bytes of the block device at a path, as the kernel knows it; None for what is none. Asks no device."""
    try:
        text = (QUEUE_SYS_CLASS / Path(path).resolve().name / "size").read_text(encoding="ascii")
    except OSError:
        return None
    return int(text) * 512
