"""fio(1): how long requests of a device take, and how much it takes in; and a file to make a stream from."""

from __future__ import annotations

import json
from collections.abc import Iterable

from zvault.core.errors import ToolFailed
from zvault.core.tuning.measurement import IoDirection, MeasuredPoint
from zvault.system.process.runner import ProcessRunner

POINT_SECONDS = 2
"""How long one point is measured."""

FIO_PATIENCE = 120.0
"""Seconds more for the requests that are under way at the end; a device that hangs answers none."""

REGION = 512 << 20
"""Bytes of the device that are measured on, over and over: no more of a thin device is taken up."""

UNTOUCHED_EDGE = 16 << 20
"""Bytes at either end that are left alone. Labels and signatures are there, and a blank device shall stay blank."""

PATTERN = "0x7a7661756c74"
"""What a file is filled with: it compresses to nothing, and is no hole as zeros would be."""


ONE_PROCESS = "--thread"
"""The job is a thread. As a process of its own it is in a session of its own (fio's backend.c), which no signal to its
parent's group reaches: killed while it started, fio left one behind that waited for ever (seen in the lab)."""


async def measure_point(
    path: str,
    capacity: int,
    way: IoDirection,
    place: tuple[int, int],
    runner: ProcessRunner,
    *,
    region: int = REGION,
) -> MeasuredPoint:
    """One point of a device of ``capacity`` bytes: requests of a size, so many at once, one after the other.

    It is measured on the first ``region`` bytes of those that all points are measured on. ``write`` destroys what is
    there, in the middle of the device. Raises ToolMissing, ToolFailed, DeadlineExceeded.
    """
    size, depth = place
    result = await runner.run(
        point_argv(path, capacity, way, size, depth, region=region), deadline=POINT_SECONDS + FIO_PATIENCE
    )
    return parse_point(result.stdout, way, size, depth)


def point_argv(
    path: str, capacity: int, way: IoDirection, size: int, depth: int, *, region: int = REGION
) -> list[str]:
    """The command that measures one point. Raises ToolFailed for a device too small for it."""
    offset = max(UNTOUCHED_EDGE, capacity // 4 // UNTOUCHED_EDGE * UNTOUCHED_EDGE)
    length = min(region, capacity - UNTOUCHED_EDGE - offset) // size * size
    if length <= 0:
        raise ToolFailed(f"{path} is too small to be measured", f"it has {capacity} bytes")
    return [
        "fio",
        "--name=zvault",
        ONE_PROCESS,
        f"--filename={path}",
        f"--rw={way}",
        *(["--readonly"] if way == "read" else []),
        "--direct=1",
        "--ioengine=libaio",
        f"--bs={size}",
        f"--iodepth={depth}",
        f"--offset={offset}",
        f"--size={length}",
        "--time_based",
        f"--runtime={POINT_SECONDS}",
        "--output-format=json",
    ]


def count_written_bytes(points: Iterable[MeasuredPoint]) -> int:
    """How many bytes of the region hold data after these points were measured with writes: the rest is still blank, and
    a store answers for it without looking.
    """
    most = max((one.bandwidth * POINT_SECONDS for one in points), default=0.0)
    return min(REGION, int(most))


def parse_point(text: str, way: IoDirection, size: int, depth: int) -> MeasuredPoint:
    """A point from what fio says. Raises ToolFailed."""
    try:
        # fio may put a line of its own before the document.
        found = json.loads(text[text.index("{") :])["jobs"][0][way]
        rate, latency = float(found["bw_bytes"]), float(found["lat_ns"]["mean"]) / 1e9
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ToolFailed("what fio says is not understood", str(error)) from error
    if rate <= 0 or latency <= 0:
        raise ToolFailed(
            "fio measured nothing", f"no request of {size} bytes was answered in {POINT_SECONDS} s"
        )
    return MeasuredPoint(size, depth, rate, latency)


def fill_argv(path: str, size: int) -> list[str]:
    """The command that makes a file of ``size`` bytes that compress to almost nothing."""
    return [
        "fio",
        "--name=zvault",
        ONE_PROCESS,
        f"--filename={path}",
        "--rw=write",
        "--ioengine=psync",
        "--bs=1M",
        f"--size={size}",
        f"--buffer_pattern={PATTERN}",
        "--output-format=json",
    ]
