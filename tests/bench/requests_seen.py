"""What a model of storage was asked during a receive, in words: from its log of requests (``devices/slots.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

BULK = 256 << 10
"""Bytes from which a write is one of merged records. What is smaller ends a transaction group, or begins one."""
SILENT = 0.15
"""Seconds without such a write that are told."""


@dataclass(frozen=True)
class Request:
    """One line; times are those of time.monotonic()."""

    kind: str
    offset: int
    size: int
    arrived: float
    begun: float
    done: float
    answered: float


def read(log: Path, since: float, until: float) -> list[Request]:
    """The requests that arrived in this time, and that are in the log by now, by when they arrived."""
    found = []
    for line in log.read_text(encoding="ascii").splitlines():
        kind, offset, size, *times = line.split()
        if len(times) == 4 and since <= float(times[0]) <= until:
            found.append(Request(kind, int(offset), int(size), *map(float, times)))
    return sorted(found, key=lambda one: one.arrived)


def told(log: Path, slots: int, since: float, until: float) -> str:
    """How large the writes were, how long each part of them took, how many slots were at work, and when none came."""
    seen = read(log, since, until)
    bulk = [one for one in seen if one.kind == "write" and one.size >= BULK]
    if not bulk:
        return "no large write was seen"
    silent = _silent(bulk, since, until)
    quiet = sum(seconds for _, seconds in silent)
    size = _mean(one.size for one in bulk) / (1 << 20)
    lines = [
        f"{len(seen)} requests, {len(bulk)} of them writes of {size:.2f} MiB on average, each of which waited"
        f" {_ms(one.begun - one.arrived for one in bulk)} for a slot, took {_ms(one.done - one.begun for one in bulk)}"
        f" there, and was answered {_ms(one.answered - one.done for one in bulk)} late",
        f"{_busy(bulk) / (until - since - quiet):.1f} of {slots} slots at work while there were such writes; none for"
        f" {quiet:.1f} s of {until - since:.1f}:",
    ]
    for start, seconds in silent:
        inside = [one.kind for one in seen if start <= one.arrived < start + seconds]
        lines.append(
            f"  {seconds:.2f} s after {start - since:.1f} s, with {inside.count('write')} small writes and"
            f" {inside.count('flush')} flushes"
        )
    return "\n".join(lines)


def _silent(bulk: Sequence[Request], since: float, until: float) -> list[tuple[float, float]]:
    """When no large write was on its way, and for how many seconds."""
    found, last = [], since
    for one in bulk:
        if one.arrived - last > SILENT:
            found.append((last, one.arrived - last))
        last = max(last, one.answered)
    if until - last > SILENT:
        found.append((last, until - last))
    return found


def _busy(bulk: Iterable[Request]) -> float:
    """Seconds of slots."""
    return sum(one.done - one.begun for one in bulk)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _ms(values: Iterable[float]) -> str:
    return f"{_mean(values) * 1000:.0f} ms"
