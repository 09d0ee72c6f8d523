"""Counters of a vault over a short time: its streams, devices, queue, transaction groups and processors. Pure.

doctor.py finds the bottleneck in them. None means "not known", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

STAT_SECTOR = 512
"""Bytes: the unit of /sys/block/*/stat, whatever the device's own sectors are."""

GROUP_END_FRACTION = 8
"""Requests smaller than 1/SMALL of the usual size belong to the end of a transaction group, not to its data."""

StageKind = Literal["source", "limit", "ssh", "codec", "buffer", "receive"]


@dataclass(frozen=True, slots=True)
class TcpPath:
    """The TCP connection that carries a stream between two hosts, as the sending host sees it.

    ``unsent``: share of the samples in which bytes waited to be sent. ``flying``: bytes sent and not yet acknowledged,
    on average. ``segment``: bytes in a packet. ``rtt``: seconds until a packet is acknowledged. ``closed``: share of
    the time in which the receiver's window was full.
    """

    unsent: float
    flying: float
    segment: int
    rtt: float
    closed: float = 0.0


@dataclass(frozen=True, slots=True)
class StreamStage:
    """One program of a stream.

    ``cpu``: its share of one processor. ``full``: how full its input pipe is on average; the first stage has none.
    Both are 0 to 1 and more. ``host``: the other host, for ssh; ``way``: the TCP connection to it.
    """

    kind: StageKind
    name: str
    cpu: float | None = None
    full: float | None = None
    host: str = ""
    way: TcpPath | None = None


@dataclass(frozen=True, slots=True)
class StreamFlow:
    """One stream into the vault, its stages first to last. ``rate`` and ``limit`` are bytes a second, ``marks``
    percent of mbuffer's memory. ``send_off`` are the keys of the backup's ``send`` table that are off and would have
    blocks sent as they are on disk.
    """

    backup: str
    dataset: str
    stages: tuple[StreamStage, ...]
    rate: float
    limit: int | None = None
    marks: tuple[int, int] | None = None
    send_off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskRequests:
    """The requests that a block device completed in ``seconds``.

    ``write_time`` and ``read_time``: seconds, summed over all requests. ``busy``: share of the time with any request
    in flight. ``rounds``: share of the time with only small writes in flight, or none.
    """

    name: str
    seconds: float
    writes: int = 0
    written: int = 0
    write_time: float = 0.0
    reads: int = 0
    read: int = 0
    read_time: float = 0.0
    busy: float = 0.0
    rounds: float = 0.0

    @property
    def in_flight(self) -> float:
        return self.write_time / self.seconds if self.seconds > 0 else 0.0

    @property
    def reads_in_flight(self) -> float:
        return self.read_time / self.seconds if self.seconds > 0 else 0.0

    @property
    def latency(self) -> float | None:
        """Seconds a write takes, from the kernel's queue to its end."""
        return self.write_time / self.writes if self.writes else None

    @property
    def size(self) -> float | None:
        """Bytes in a write, on average."""
        return self.written / self.writes if self.writes else None

    @property
    def rate(self) -> float:
        """Bytes written a second: in flight / latency x size (Little's law)."""
        return self.written / self.seconds if self.seconds > 0 else 0.0

    @property
    def read_share(self) -> float:
        """The share of the device's time that reads took."""
        spent = self.read_time + self.write_time
        return self.read_time / spent if spent > 0 else 0.0


@dataclass(frozen=True, slots=True)
class WriteQueue:
    """OpenZFS's queue of asynchronous writes to one device, on average: ``pending`` wait, ``active`` are in flight.

    ``wait``: seconds a write takes including the time in this queue; ``disk_wait``: seconds without it.
    """

    pending: float
    active: float
    wait: float | None = None
    disk_wait: float | None = None


@dataclass(frozen=True, slots=True)
class SyncedGroup:
    """A synced transaction group: bytes written, seconds it was open, and seconds its sync took."""

    written: int
    opened: float
    sync: float


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """The last run of a vault and its figures."""

    backup: str
    moved: int
    seconds: float
    drift: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """All counters of ``seconds``.

    ``request``: size of a write request in bytes, averaged over the bytes written; ``largest``: the device's maximum
    (max_sectors_kb). ``waits``: how often writers waited, by reason (kstat dmu_tx). ``threads``: share of one processor
    that the busiest OpenZFS thread of each kind takes. ``idle``: idle share of all processors. ``parameters``:
    OpenZFS's module parameters now; ``wanted``: those of the profile. ``store``: the device is in an object store.
    ``measured``: the best bandwidth of writes measured on the device alone, in bytes a second; ``measured_reads``: that
    of reads. ``buffer`` (bytes of mbuffer) and ``transfers``: as configured. ``down``: nothing of the vault is up.
    """

    vault: str
    pool: str
    profile: str
    seconds: float
    health: str | None = None
    flows: tuple[StreamFlow, ...] = ()
    disks: tuple[DiskRequests, ...] = ()
    source_disks: tuple[DiskRequests, ...] = ()
    queue: WriteQueue | None = None
    request: float | None = None
    largest: int | None = None
    rotational: bool = False
    store: bool = False
    measured: float | None = None
    measured_reads: float | None = None
    buffer: int | None = None
    transfers: int | None = None
    groups: tuple[SyncedGroup, ...] = ()
    waits: Mapping[str, int] = field(default_factory=dict)
    threads: Mapping[str, float] = field(default_factory=dict)
    idle: float | None = None
    memory: int | None = None
    parameters: Mapping[str, int] = field(default_factory=dict)
    wanted: Mapping[str, int] = field(default_factory=dict)
    last: ObservedRun | None = None
    down: bool = False


# From samples (system/process/sampler.py) to averages

SampleSeries = Sequence[Mapping[str, Any]]


def measure_span(looks: SampleSeries) -> float:
    """Seconds from the first sample to the last."""
    return float(looks[-1]["at"] - looks[0]["at"]) if looks else 0.0


def measure_cpu_share(looks: SampleSeries, hz: int, pid: str) -> float | None:
    """The share of one processor that a process took while it ran."""
    seen = [(look["at"], look["cpu"][pid]) for look in looks if pid in look["cpu"]]
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    return float((seen[-1][1] - seen[0][1]) / hz / (seen[-1][0] - seen[0][0]))


def measure_pipe_fill(looks: SampleSeries, pid: str) -> float | None:
    """Return how full a process's input pipe was on average, None where no sample tells."""
    seen = [look["full"][pid] for look in looks if pid in look["full"]]
    return sum(seen) / len(seen) if seen else None


def measure_idle_share(looks: SampleSeries) -> float | None:
    """The share of all processors that had no work."""
    if not looks:
        return None
    before, after = looks[0]["host"], looks[-1]["host"]
    return float((after[1] - before[1]) / (after[0] - before[0])) if after[0] > before[0] else None


def measure_disk(looks: SampleSeries, name: str) -> DiskRequests | None:
    """A device over the time of the samples; None if it was absent."""
    seen = [(look["at"], look["disks"][name]) for look in looks if name in look["disks"]]
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    seconds = seen[-1][0] - seen[0][0]
    done = [max(0, after - before) for before, after in zip(seen[0][1], seen[-1][1], strict=False)]
    return DiskRequests(
        name,
        seconds,
        writes=done[4],
        written=done[6] * STAT_SECTOR,
        write_time=done[7] / 1000,
        reads=done[0],
        read=done[2] * STAT_SECTOR,
        read_time=done[3] / 1000,
        busy=min(1.0, done[9] / 1000 / seconds),
        rounds=_rounds(seen),
    )


def _rounds(seen: Sequence[tuple[float, Sequence[int]]]) -> float:
    """The share of the time with only small writes in flight, or none.

    If no write completed in an interval although some were in flight, its time counts for the next completed ones.
    """
    slices = []
    waited = 0.0
    for (before, one), (after, two) in pairwise(seen):
        time, count, size = after - before, two[4] - one[4], (two[6] - one[6]) * STAT_SECTOR
        if count <= 0 and two[8] > 0:
            waited += time
            continue
        slices.append((time + waited, count, size))
        waited = 0.0
    moved = sum(size for _, _, size in slices)
    if moved <= 0:
        return 0.0
    usual = sum(size * size / count for _, count, size in slices if count > 0) / moved
    small = sum(
        time for time, count, size in slices if count <= 0 or size / count < usual / GROUP_END_FRACTION
    )
    return small / sum(time for time, _, _ in slices)
