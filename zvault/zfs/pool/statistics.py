"""OpenZFS's counters of a pool: requests by size, its queues, its transaction groups. argv and parsing; kstats.

A pool that is suspended or hangs may not answer, so callers must set a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zvault.core.diagnosis.observations import SyncedGroup, WriteQueue
from zvault.core.units import is_number

POOL_KSTAT = Path("/proc/spl/kstat/zfs")

GROUP_COLUMNS = 12
"""Columns of the kstat txgs: number, birth, state, ndirty, nread, nwritten, reads, writes, then the times that it was
open, quiescing, waiting, and syncing (module/zfs/spa_stats.c)."""

QUEUES = 14
"""Columns of ``zpool iostat -q``: pending and active of each of seven queues, at the end of a line."""

ASYNC_WRITE = 6
"""Index of the asynchronous writes in them: after synchronous reads and writes, and asynchronous reads."""

STATISTICS_NANOSECONDS = 1e9


def queue_argv(pool: str, every: float, times: int) -> list[str]:
    """``zpool iostat`` of waits and queues of each device, ``times`` times over ``every`` seconds."""
    return ["zpool", "iostat", "-HpvLPlqy", pool, f"{every:g}", str(times)]


def requests_argv(pool: str) -> list[str]:
    """``zpool iostat`` of all requests since the import, by size."""
    return ["zpool", "iostat", "-Hpr", pool]


def groups_argv(pool: str) -> list[str]:
    """The kstat of a pool's latest transaction groups; how many is zfs_txg_history."""
    return ["cat", str(POOL_KSTAT / pool / "txgs")]


def writers_argv() -> list[str]:
    """Argv for the kstat of the reasons why writers of all pools waited."""
    return ["cat", str(POOL_KSTAT / "dmu_tx")]


def parse_writers(text: str) -> dict[str, int]:
    """Parse it: counts by name, such as ``dmu_tx_memory_reserve``."""
    lines = [line.split() for line in text.splitlines()]
    return {words[0]: int(words[2]) for words in lines if len(words) == 3 and is_number(words[2])}


def parse_queue(text: str) -> WriteQueue | None:
    """The queue with the most writes in flight or waiting, averaged over all lines; None if there is none."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        words = line.split("\t")
        if len(words) > QUEUES + 10 and words[0].strip().startswith("/"):
            found.setdefault(words[0].strip(), []).append(words)
    queues = [_queue(rows) for rows in found.values()]
    return max(queues, key=lambda one: one.pending + one.active, default=None)


def _queue(rows: Sequence[Sequence[str]]) -> WriteQueue:
    at = -QUEUES + ASYNC_WRITE
    return WriteQueue(
        sum(_number(row[at]) for row in rows) / len(rows),
        sum(_number(row[at + 1]) for row in rows) / len(rows),
        # After name, alloc, free, operations and bandwidth of reads and writes: read and write of each wait.
        _seconds([row[8] for row in rows]),
        _seconds([row[10] for row in rows]),
    )


def _number(word: str) -> int:
    return int(word) if is_number(word) else 0


def _seconds(words: Sequence[str]) -> float | None:
    known = [int(word) for word in words if is_number(word)]
    return sum(known) / len(known) / STATISTICS_NANOSECONDS if known else None


WriteSizes = Mapping[int, int]
"""Write requests by size: the smallest size in a row in bytes, and their count."""

_WRITES = (3, 4, 7, 8)
"""Columns of ``zpool iostat -r``: synchronous writes, alone and merged, and asynchronous ones."""


def parse_requests(text: str) -> WriteSizes:
    """The number of writes of each size since the import."""
    found = {}
    for line in text.splitlines():
        words = line.split("\t")
        if len(words) > max(_WRITES) and is_number(words[0]):
            found[int(words[0])] = sum(_number(words[column]) for column in _WRITES)
    return found


def estimate_bytes_written(before: WriteSizes, after: WriteSizes) -> int:
    """Bytes written between two samples; a little too low, because sizes are rounded down."""
    return sum(size * count for size, count in _between(before, after).items())


def estimate_request_size(before: WriteSizes, after: WriteSizes) -> float | None:
    """The request size in bytes between two samples, averaged over the bytes; None without requests."""
    moved = estimate_bytes_written(before, after)
    squares = sum(size * size * count for size, count in _between(before, after).items())
    return squares / moved if moved else None


def _between(before: WriteSizes, after: WriteSizes) -> WriteSizes:
    return {size: max(0, count - before.get(size, 0)) for size, count in after.items()}


def parse_groups(text: str, since: int = 0) -> tuple[dict[int, SyncedGroup], int]:
    """The synced groups after ``since`` by number, and the number of the newest."""
    lines = [line.split() for line in text.splitlines()]
    header = next((i for i, words in enumerate(lines) if words[:2] == ["txg", "birth"]), None)
    if header is None:
        return {}, since
    names = lines[header]
    rows = [
        dict(zip(names, words, strict=False)) for words in lines[header + 1 :] if len(words) == len(names)
    ]
    ended = {
        number: _group(row)
        for row in rows
        if row.get("state") == "C" and (number := _number(row["txg"])) > since
    }
    return ended, max(ended, default=since)


def parse_syncing(text: str, now: int) -> tuple[int, float] | None:
    """The number of the oldest syncing group and the seconds its sync has taken; None if no group is syncing.

    ``now``: nanoseconds since boot, like births. A group has times only for the states that it has left.
    """
    lines = [line.split() for line in text.splitlines()]
    rows = [words for words in lines if len(words) == GROUP_COLUMNS and words[2] == "S"]
    begun = {_number(row[0]): _number(row[1]) + sum(map(_number, row[-4:-1])) for row in rows}
    return (oldest := min(begun), (now - begun[oldest]) / STATISTICS_NANOSECONDS) if begun else None


def _group(row: Mapping[str, str]) -> SyncedGroup:
    written, opened, synced = (_number(row.get(name, "")) for name in ("nwritten", "otime", "stime"))
    return SyncedGroup(written, opened / STATISTICS_NANOSECONDS, synced / STATISTICS_NANOSECONDS)
