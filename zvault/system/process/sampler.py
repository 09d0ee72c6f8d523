"""Looks at processes, pipes and block devices many times a second, as a program of its own, and prints what it saw.

It only reads, and nothing of it asks a pool. Where a look hangs all the same, the daemon does not hang with it.

It imports nothing but the standard library: run by its path, it starts in some 15 ms.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import select
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SAMPLER_INTERVAL = 0.05
"""Seconds between two looks: a transaction group's small requests at its end take a few of these."""

WRITE_THREADS = ("receive_writer", "txg_sync", "z_wr_iss")
"""Threads of OpenZFS that writes go through: of each kind the times of all are told."""

_SYS_CLASS = Path("/sys/class/block")


def sampler_argv(seconds: float, pids: Mapping[int, str | None], devices: Sequence[str]) -> list[str]:
    """The program; ``pids`` are the stages of streams and what they read from, ``devices`` names such as nbd0."""
    task = json.dumps({"seconds": seconds, "pids": dict(pids), "devices": list(devices)})
    return [sys.executable, "-I", "-S", __file__, task]


def take_sample(
    pids: Mapping[int, str | None], devices: Sequence[str], threads: Sequence[int]
) -> dict[str, Any]:
    """One look. What is gone is left out.

    ``pids`` are processes and the paths of the pipes that they read from: None for standard input, of one that has the
    same rights. ``cpu`` are clock ticks of each process or thread by its id; ``full`` how full the pipe is that a
    process reads from, 0 to 1; ``disks`` each device's line of numbers (Linux, Documentation/block/stat.rst); ``host``
    the clock ticks of all CPUs, and those without work.
    """
    return {
        "at": time.monotonic(),
        "cpu": _known({pid: _ticks(pid) for pid in (*pids, *threads)}),
        "full": _known({pid: _fill(path or f"/proc/{pid}/fd/0") for pid, path in pids.items()}),
        "disks": _known({name: _numbers(name) for name in devices}),
        "host": _host(),
    }


def _known(found: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in found.items() if value is not None}


def _ticks(pid: int) -> int | None:
    """User and system time of a process with all its threads, proc_pid_stat(5)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return int(words[11]) + int(words[12])


def _fill(path: str) -> float | None:
    """How full a pipe is; 1 where a writer would have to wait, None if there is none.

    A pipe of small pieces takes no more long before its bytes are as many as it could hold: so it is asked.
    """
    try:
        if not os.readlink(path).startswith("pipe:"):  # noqa: PTH115 - what it leads to is no path
            return None
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        room = select.poll()
        room.register(pipe, select.POLLOUT)
        if not room.poll(0):
            return 1.0
        held = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, held)
        return min(1.0, held[0] / fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ))
    finally:
        os.close(pipe)


def _numbers(device: str) -> list[int] | None:
    try:
        return [int(word) for word in (_SYS_CLASS / device / "stat").read_text(encoding="ascii").split()]
    except OSError:
        return None


def _host() -> list[int]:
    first = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0]
    ticks = [int(word) for word in first.split()[1:9]]
    return [sum(ticks), ticks[3] + ticks[4]]


def _threads() -> dict[int, str]:
    """The kernel's threads of these names, by id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                name = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
                if name in WRITE_THREADS:
                    found[int(entry.name)] = name
    return found


def main() -> None:
    """Do the task of the only argument, and print all looks as one JSON document."""
    task = json.loads(sys.argv[1])
    pids = {int(pid): path for pid, path in task["pids"].items()}
    devices, threads = task["devices"], _threads()
    end = time.monotonic() + task["seconds"]
    looks = [take_sample(pids, devices, list(threads))]
    while time.monotonic() < end:
        time.sleep(SAMPLER_INTERVAL)
        looks.append(take_sample(pids, devices, list(threads)))
    json.dump(
        {"hz": os.sysconf("SC_CLK_TCK"), "cpus": os.cpu_count() or 1, "threads": threads, "looks": looks},
        sys.stdout,
    )


if __name__ == "__main__":
    main()
