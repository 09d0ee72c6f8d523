"""The kernel's log as it is written (/dev/kmsg; Linux, Documentation/ABI/testing/dev-kmsg)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")

KMSG_NAME = "kmsg"
"""What zvaultd.service calls the log that it opens."""

FIRST_GIVEN = 3
"""The first descriptor that systemd gives (SD_LISTEN_FDS_START)."""

LONGEST_RECORD = 8192
"""Bytes: no record is longer; a shorter buffer would be refused one (kernel/printk/printk.c)."""

QUIET_TIME = 0.5
"""Seconds without a record after which what was being reported is over."""

KERNEL_PRIORITIES = 8
"""Priorities below this are the kernel's own: the facility is above the three lowest bits, and the kernel's is 0."""


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record: its number, which counts from 0 in each boot, whether the kernel wrote it, and its text."""

    number: int
    kernel: bool
    text: str


def parse_kernel_record(raw: bytes) -> KernelRecord:
    """Read ``6,339,5140900,-;text``; the lines after the first are properties. Raises ValueError."""
    head, _, text = raw.decode("utf-8", errors="replace").partition(";")
    words = head.split(",")
    return KernelRecord(int(words[1]), int(words[0]) < KERNEL_PRIORITIES, text.partition("\n")[0])


def _given() -> int | None:
    """The log as systemd has opened it for zvaultd, which has not the right to (sd_listen_fds(3)); None without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    return FIRST_GIVEN + names.index(KMSG_NAME) if KMSG_NAME in names else None


class KernelLog:
    """The log, open. Reading never waits. Raises OSError where this may not be opened."""

    def __init__(self) -> None:
        given = _given()
        self.fd = (
            os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if given is None else os.dup(given)
        )
        os.set_blocking(self.fd, False)

    def read(self) -> Iterator[KernelRecord]:
        """All records there are now that were not read yet."""
        while True:
            try:
                raw = os.read(self.fd, LONGEST_RECORD)
            except BlockingIOError:
                return
            except (
                BrokenPipeError
            ):  # some were overwritten before we came to them; go on with the oldest there is
                continue
            if not raw:
                return
            with contextlib.suppress(ValueError, IndexError):
                yield parse_kernel_record(raw)

    def close(self) -> None:
        """Close the log's file descriptor."""
        os.close(self.fd)


async def follow_kernel_log(
    log: KernelLog, hear: Callable[[KernelRecord], None], quiet: Callable[[], None]
) -> None:
    """Pass on each record from now on, for ever; ``quiet`` when none has come for a moment after some have."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(log.fd, readable.set)
    try:
        while True:
            await readable.wait()
            while readable.is_set():
                readable.clear()
                for record in log.read():
                    hear(record)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(QUIET_TIME):
                        await readable.wait()
            quiet()
    finally:
        loop.remove_reader(log.fd)
