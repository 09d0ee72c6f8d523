"""What zvaultd hands to the process that makes the status page, as JSON. Times are seconds since the epoch."""

from __future__ import annotations

from enum import IntFlag
from typing import Literal, TypedDict

from zvault.api.backups import Side
from zvault.api.runs import RunDocument
from zvault.api.status import BackupDocument, StatusDocument
from zvault.core.errors import ErrorDocument
from zvault.core.health.days import DayState


class StreamDocument(TypedDict):
    """A dataset that is being sent; ``bytes`` of ``total``, and bytes a second of late."""

    dataset: str
    bytes: int
    total: int | None
    rate: float | None


class RunningDocument(TypedDict):
    """A run under way. ``waiting``: when it tries again what failed, with ``error``. ``more``: streams left out."""

    id: str
    backup: str
    trigger: str
    started: float
    bytes_done: int
    bytes_total: int | None
    rate: float | None
    streams: list[StreamDocument]
    more: int
    waiting: float | None
    error: ErrorDocument | None


class DayDocument(TypedDict):
    """A day of the past, see core/health/days.py."""

    date: str
    state: DayState
    runs: int
    faults: int
    bytes: int
    seconds: float
    lag: float | None


class DueDocument(TypedDict):
    """The runs that are due on a day: ``times`` where they are few, else none, and ``words`` say when."""

    date: str
    what: Literal["run", "scrub"]
    name: str
    times: list[float]
    words: str


class VaultExtra(TypedDict):
    """More of a vault than its document has: seconds until it is full, and when a scrub is due."""

    full_in: float | None
    scrub_due: float | None


class Overview(TypedDict):
    """The first page. ``schedules`` by backup, in words; ``extras`` by vault. Of damage there are only counts."""

    now: float
    host: str
    status: StatusDocument
    schedules: dict[str, str]
    extras: dict[str, VaultExtra]
    running: list[RunningDocument]
    week: list[DueDocument]
    week_more: int
    days: list[DayDocument]


class DatasetRow(TypedDict):
    """A dataset's lag now, in seconds; ``newest``: when the newest snapshot on the vault was made."""

    dataset: str
    lag: float | None
    pending: int | None
    newest: float | None
    base: float | None


class SideDocument(TypedDict):
    """A snapshot on one side, and whether the next run keeps it there: None where that is not known, nor ``why``."""

    keep: bool | None
    why: str


class DatasetPointDocument(TypedDict):
    """A snapshot of a dataset, by the sides it is on; each is None where it is not. ``made``: when it was."""

    name: str
    made: float
    source: SideDocument | None
    vault: SideDocument | None
    base: bool


class TimelineMark(IntFlag):
    """The mark of a snapshot in a drawing."""

    SOURCE = 1
    VAULT = 2
    BASE = 4
    GOES_ON_SOURCE = 8
    GOES_ON_VAULT = 16
    FOREIGN = 32
    WAITING = 64


class DatasetPage(TypedDict):
    """A dataset's page: the ``page``-th hundred of its snapshots, the newest first, of ``total`` ones.

    ``into`` is the dataset that has its backup, None where there is none; ``vault`` the vault, None where the backup
    has none. ``…_listed``: when either side was, None where nobody has listed it since zvaultd started. ``drawn`` has
    for each of the newest snapshots when it was made and its Mark; ``counts`` how many of all have each Mark, by name.
    ``foreseen``: of which sides it is known what the next run prunes.
    """

    now: float
    host: str
    backup: str
    dataset: str
    vault: str | None
    into: str | None
    source_listed: float
    vault_listed: float | None
    foreseen: list[Side]
    scheduled: bool
    next_run: float | None
    drawn: list[tuple[float, int]]
    counts: dict[str, int]
    points: list[DatasetPointDocument]
    total: int
    page: int
    pages: int


class MountDocument(TypedDict):
    """A snapshot of a vault that is mounted: its number, where, and since when."""

    id: str
    snapshot: str
    folder: str
    since: float


class EntryDocument(TypedDict):
    """An entry of a folder; ``name`` and the target of a ``link`` in base64, for they hold any bytes."""

    name: str
    kind: str
    size: int | None
    mtime: float
    link: str


class FilesPage(TypedDict):
    """A folder of a mounted snapshot: so many entries from the ``first`` on, of a ``total`` that was looked at.

    ``path`` is in base64; ``more``: there are others still; ``error`` says why there is nothing.
    """

    now: float
    host: str
    backup: str
    mount: MountDocument
    path: str
    first: int
    entries: list[EntryDocument]
    total: int
    more: bool
    error: str


class LineDocument(TypedDict):
    """A line of a run's journal."""

    time: float
    level: Literal["info", "warning", "error"]
    text: str


class BackupPage(TypedDict):
    """A backup's page: the ``page``-th hundred of its datasets, worst first, of ``total`` ones.

    They are None where it is not known which there are. ``mounts`` are the snapshots of it that are mounted, whose
    files the page lists where it ``lists_files``.
    """

    now: float
    host: str
    backup: BackupDocument
    schedule: str
    datasets: list[DatasetRow] | None
    total: int
    page: int
    pages: int
    runs: list[RunDocument]
    days: list[DayDocument]
    mounts: list[MountDocument]
    lists_files: bool


class RunPage(TypedDict):
    """A run's page; ``lines`` is None where zvaultd no longer remembers them, ``more`` counts those left out."""

    now: float
    host: str
    run: RunDocument | None
    lines: list[LineDocument] | None
    more: int
