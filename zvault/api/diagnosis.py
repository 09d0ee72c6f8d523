"""Diagnosis: what bounds a vault, and how a backup's blocks fit its vault's storage."""

from typing import Literal, TypedDict


class KnobDocument(TypedDict):
    """The one thing to change."""

    name: str
    where: str
    now: str | None
    value: str | None


class DiagnosisDocument(TypedDict):
    """The bottleneck of a vault, in a word and in a sentence with its arithmetic."""

    bound: str
    sentence: str
    knob: KnobDocument | None
    why: str


class WayDocument(TypedDict):
    """A stream's TCP connection to another host; see core/diagnosis/observations.py."""

    unsent: float
    flying: float
    segment: int
    rtt: float
    closed: float


class StageDocument(TypedDict):
    """One program of a stream: ``cpu`` is of one processor, ``full`` how full the pipe is that it reads from."""

    kind: str
    name: str
    cpu: float | None
    full: float | None
    host: str
    way: WayDocument | None


class FlowDocument(TypedDict):
    """One stream into the vault, its stages first to last; ``marks`` are percent of mbuffer's memory."""

    backup: str
    dataset: str
    stages: list[StageDocument]
    rate: float
    limit: int | None
    marks: tuple[int, int] | None


class DiskDocument(TypedDict):
    """A block device, and what it ended in ``seconds``; ``size`` is of a write, ``rate`` of writes."""

    role: Literal["vault", "source"]
    name: str
    seconds: float
    writes: int
    written: int
    write_time: float
    reads: int
    read: int
    read_time: float
    busy: float
    rounds: float
    in_flight: float
    latency: float | None
    size: float | None
    rate: float


class QueueDocument(TypedDict):
    """OpenZFS's queue of asynchronous writes above one device, on average."""

    pending: float
    active: float
    wait: float | None
    disk_wait: float | None


class GroupDocument(TypedDict):
    """A transaction group that was written out: bytes, and seconds that it was open and that its sync took."""

    written: int
    opened: float
    sync: float


class LastRunDocument(TypedDict):
    """The last run of a vault."""

    backup: str
    moved: int
    seconds: float
    drift: str


class DoctorDocument(TypedDict):
    """The verdict on a vault and what it rests on; see core/diagnosis/observations.py for what is counted.

    ``lacking``: what of the vault's images the Ceph users may not do, in words; empty unless it was asked for.
    """

    vault: str
    pool: str
    seconds: float
    verdict: DiagnosisDocument
    streams: list[FlowDocument]
    devices: list[DiskDocument]
    queue: QueueDocument | None
    request: float | None
    groups: list[GroupDocument]
    waits: dict[str, int]
    threads: dict[str, float]
    idle: float | None
    last: LastRunDocument | None
    lacking: list[str]


class FitDevice(TypedDict):
    """A device of the vault; ``unit`` is None where any sector is written by itself.

    ``locks``: requests a month that keep a TiB locked, and ``locks_cost`` what they cost; None: nothing is locked.
    """

    name: str
    vdev: str
    unit: int | None
    kind: Literal["object", "stripe"]
    largest: int
    locks: float | None
    locks_cost: float | None


class FitDataset(TypedDict):
    """The fit of a dataset's blocks; see Fit in core/tuning/alignment.py."""

    dataset: str
    record: int
    ratio: float
    store: str
    block: int
    request: int
    touched: float
    partly: float
    moved: float
    puts: float
    gets: float
    cost: float | None


class AdviceDocument(TypedDict):
    """Something to change; ``about`` names datasets or devices."""

    about: list[str]
    what: str
    why: str


class AskedDocument(TypedDict):
    """The requests of a transaction group to the storage for itself; ``moved`` in bytes."""

    puts: float
    gets: float
    moved: float
    cost: float | None


class AskedByRun(AskedDocument):
    """The same of the groups of a run."""

    groups: int


class FitReading(TypedDict):
    """How fast a vault is read back, in bytes a second: a ``send`` from its pool, None if none was tried out, and its
    ``device`` alone.
    """

    send: int | None
    device: int


class FitDocument(TypedDict):
    """The fit of a backup. ``first`` is a run that makes a dataset on the vault, ``run`` a later one. ``reading`` is
    missing where nobody measured it.
    """

    backup: str
    vault: str
    sector: int
    merged: int
    devices: list[FitDevice]
    group: AskedDocument
    run: AskedByRun
    first: AskedByRun
    reading: FitReading | None
    datasets: list[FitDataset]
    advice: list[AdviceDocument]
    unknown: list[str]
