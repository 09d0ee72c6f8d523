"""What zvaultd tells of itself for the status page: from memory and the history, so that no pool is waited for."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Literal

from zvault.api.events import RunEvent, RunFinished
from zvault.api.status import StatusDocument
from zvault.api.vaults import JudgedVault, VaultDocument
from zvault.config.schema import Backup
from zvault.core.health.days import MOST_DAYS, DaySummary, PastRun, merge_days, summarize_days
from zvault.core.policy.cron_schedule import describe_schedule
from zvault.core.policy.week import list_week
from zvault.core.replication.lag import DatasetLag
from zvault.daemon import journald
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.page.dataset_source import DatasetSource
from zvault.daemon.page.file_source import FileSource
from zvault.daemon.page.live_runs import LiveRuns
from zvault.daemon.page.page_model import (
    BackupPage,
    DatasetRow,
    DayDocument,
    DueDocument,
    LineDocument,
    Overview,
    RunPage,
    VaultExtra,
)
from zvault.daemon.status import DaemonStatus
from zvault.system.side_threads import compute_aside

DATASET_ROWS = 100
"""Datasets on a page."""

SHOWN_RUNS = 50
"""Past runs on a backup's page."""

SHOWN_JOURNAL_LINES = 500
"""Lines of a run's journal on its page: the newest."""

MOST_WEEK_SUBJECTS = 60
"""Backups and vaults whose week is told."""

DAYS_LIFETIME = 30.0
"""Seconds for which the days of the past, and the week to come, are told as they were read."""

_Row = tuple[str, "tuple[DatasetLag, float | None] | None", "int | None"]
"""A dataset, its lag and that in seconds, and when its newest snapshot was made: as far as it is known."""

Loudness = Literal["info", "warning", "error"]


@dataclass
class _Kept:
    """What takes a while to find, until it is found anew (monotonic seconds)."""

    until: float = -1.0
    past: dict[str, list[PastRun]] = field(default_factory=dict)
    days: list[DayDocument] = field(default_factory=list)
    week: list[DueDocument] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Facts:
    """What that is found from: the tables of the backups, when each is ``due``, and their ``past`` runs."""

    now: float
    until: float
    zone: tzinfo
    backups: Mapping[str, Backup]
    due: Mapping[str, float | None]
    past: Sequence[tuple[str, PastRun]]


class PageSource:
    """Tells what the page shows, as JSON. ``vaults`` gives the vaults as they were last looked at."""

    def __init__(
        self,
        status: DaemonStatus,
        events: EventPublisher,
        vaults: Callable[[], Sequence[VaultDocument]],
    ) -> None:
        self.status = status
        self.live = LiveRuns()
        self._events, self._vaults = events, vaults
        self._datasets = DatasetSource(status)
        self._files = FileSource(status.context)
        self._kept = _Kept()

    def hear(self, event: RunEvent) -> None:
        """Take in what a run tells. Where one has ended, which is in the history by then, the past is another."""
        self.live.hear(event)
        if isinstance(event, RunFinished):
            self._kept = _Kept()

    async def overview(self, _: str = "") -> bytes:
        """Make the document of the first page, as JSON."""
        await self._refresh_aside()
        return _json(self.overview_document())

    async def backup(self, subject: str) -> bytes:
        """A backup's page; ``subject`` is the number of its page of datasets, a colon, and its name."""
        page, _, name = subject.partition(":")
        backup = self.status.context.env.config.backup.get(name)
        if backup is None or not page.isascii() or not page.isdigit():
            return _json(None)
        await self._refresh_aside()
        name, runs = backup.name, self.status.runs
        size = len(runs.made.get(name, {}) if backup.vault is None else runs.lags.get(name, {}))
        rows = await compute_aside(size, None, self._made_rows if backup.vault is None else self._rows, name)
        return _json(self._backup_page(backup, int(page), rows))

    async def dataset(self, subject: str) -> bytes:
        """A dataset's page; ``subject`` is the number of its page of snapshots, its backup's name, and its own, between
        zero bytes.
        """
        page, backup, dataset = (*subject.split("\0"), "", "")[:3]
        if not page.isascii() or not page.isdigit():
            return _json(None)
        return _json(await self._datasets.page(backup, dataset, int(page)))

    async def files(self, subject: str) -> bytes:
        """The page of a folder in a mounted snapshot; ``subject`` as FileSource takes it."""
        return _json(await self._files.page(subject))

    def run(self, id: str) -> bytes:
        """Make the document of a run's page, as JSON."""
        return _json(self._run_page(id))

    def overview_document(self) -> Overview:
        """The first page's document."""
        kept = self._refreshed()
        found = _without_files(self.status.document_of(self._vaults()))
        config = self.status.context.env.config
        running = sorted(self.status.runs.runner.current.values(), key=lambda run: run.started)
        return {
            "now": self.status.context.env.clock.time(),
            "host": self.status.context.env.host,
            "status": found,
            "schedules": {name: _schedule(backup) for name, backup in config.backup.items()},
            "extras": {vault["name"]: self._extra(vault) for vault in found["vaults"]},
            "running": [self.live.document(run) for run in running],
            "week": kept.week,
            "week_more": kept.left_out,
            "days": kept.days,
        }

    def _extra(self, vault: JudgedVault) -> VaultExtra:
        name, env = vault["name"], self.status.context.env
        table, seen = env.config.vault.get(name), self.status.context.records.conditions.get(name)
        policy = table.scrubs() if table is not None else None
        due = (
            policy.due(seen.since, env.zone)
            if policy and seen is not None and seen.since is not None
            else None
        )
        return {"full_in": self.status.judge.full_in(name), "scrub_due": due}

    @property
    def _is_fresh(self) -> bool:
        return self.status.context.env.clock.monotonic() < self._kept.until

    async def _refresh_aside(self) -> None:
        """Find the past and the week anew, where it is time to: beside the event loop, where the history is long.

        What was found of the past is none any more where a run has ended meanwhile.
        """
        before = self._kept
        if self._is_fresh:
            return
        facts = self._facts()
        found = await compute_aside(len(facts.past), None, _find, facts)
        if self._kept is before:
            self._kept = found

    def _refreshed(self) -> _Kept:
        if not self._is_fresh:
            self._kept = _find(self._facts())
        return self._kept

    def _facts(self) -> _Facts:
        env = self.status.context.env
        now = env.clock.time()
        backups = env.config.backup
        due = {name: self.status.scheduler.next_run(name) for name in backups}
        past = list(self.status.history.past(now - (MOST_DAYS + 1) * 86400))
        return _Facts(now, env.clock.monotonic() + DAYS_LIFETIME, env.zone, backups, due, past)

    def _backup_page(self, backup: Backup, page: int, rows: Sequence[_Row] | None) -> BackupPage:
        env, name = self.status.context.env, backup.name
        kept = self._refreshed()
        total = len(rows) if rows is not None else 0
        pages = max(1, -(-total // DATASET_ROWS))
        page = min(max(page, 1), pages)
        found = summarize_days(kept.past.get(name, ()), env.clock.time(), env.zone, backup.max_lag)
        return {
            "now": env.clock.time(),
            "host": self.status.context.env.host,
            "backup": self.status.backup(backup),
            "schedule": _schedule(backup),
            "datasets": [_row_document(*row) for row in rows[(page - 1) * DATASET_ROWS : page * DATASET_ROWS]]
            if rows is not None
            else None,
            "total": total,
            "page": page,
            "pages": pages,
            "runs": self.status.history.runs(name, SHOWN_RUNS),
            "days": [_day(one) for one in found],
            "mounts": self._files.mounts(name),
            "lists_files": self._files.wanted,
        }

    def _made_rows(self, name: str) -> list[_Row] | None:
        """The datasets of a backup that makes snapshots only, and when the newest of each was made."""
        made = self.status.runs.made.get(name)
        if made is None:
            return None
        return [(str(dataset), None, newest) for dataset, newest in made.items()]

    def _rows(self, name: str) -> list[_Row] | None:
        """A backup's datasets, the worst first: those whose lag is not known, then by lag. None: nobody has read it."""
        if name not in self.status.runs.lags:
            return None
        found = self.status.dataset_lags(name).items()
        ordered = sorted(found, key=lambda one: (one[1][1] is not None, -(one[1][1] or 0.0), str(one[0])))
        return [
            (str(dataset), (lag, seconds), lag.newest_on_vault.creation if lag.newest_on_vault else None)
            for dataset, (lag, seconds) in ordered
        ]

    def _run_page(self, id: str) -> RunPage:
        events = self._events.past(id)
        lines: list[LineDocument] | None = None
        if events is not None:
            told = ((event.time, journald.format_event(event)) for event in events)
            lines = [
                {"time": at, "level": _loudness(it[0]), "text": it[1]} for at, it in told if it is not None
            ]
        return {
            "now": self.status.context.env.clock.time(),
            "host": self.status.context.env.host,
            "run": self.status.history.run(id),
            "lines": lines[-SHOWN_JOURNAL_LINES:] if lines is not None else None,
            "more": max(0, len(lines) - SHOWN_JOURNAL_LINES) if lines is not None else 0,
        }


def _row_document(
    dataset: str, lag: tuple[DatasetLag, float | None] | None, newest: int | None
) -> DatasetRow:
    return {
        "dataset": dataset,
        "lag": lag[1] if lag is not None else None,
        "pending": lag[0].pending if lag is not None else None,
        "newest": newest,
        "base": lag[0].base if lag is not None else None,
    }


def _find(facts: _Facts) -> _Kept:
    past: dict[str, list[PastRun]] = defaultdict(list)
    for name, run in facts.past:
        past[name].append(run)
    each = [
        summarize_days(past[name], facts.now, facts.zone, table.max_lag)
        for name, table in facts.backups.items()
        if name in past
    ]
    told = list(_week(facts))
    names = {(one["what"], one["name"]): None for one in told}
    shown = set(list(names)[:MOST_WEEK_SUBJECTS])
    return _Kept(
        facts.until,
        dict(past),
        [_day(one) for one in merge_days(each)],
        [one for one in told if (one["what"], one["name"]) in shown],
        len(names) - len(shown),
    )


def _week(facts: _Facts) -> Iterator[DueDocument]:
    for name, backup in facts.backups.items():
        schedule, first = backup.every or backup.schedule, facts.due[name]
        if schedule is None or first is None:
            continue
        for due in list_week(schedule, first, facts.now, facts.zone):
            yield {
                "date": due.date.isoformat(),
                "what": "run",
                "name": name,
                "times": list(due.times),
                "words": due.words,
            }


def _schedule(backup: Backup) -> str:
    schedule = backup.every or backup.schedule
    return describe_schedule(schedule) if schedule is not None else "by hand"


def _without_files(found: StatusDocument) -> StatusDocument:
    """Without the names of damaged files: whoever may connect may see the page."""
    vaults: list[JudgedVault] = []
    for vault in found["vaults"]:
        scrub = vault["scrub"]
        vaults.append({**vault, "scrub": {**scrub, "damages": []} if scrub is not None else None})
    return {**found, "vaults": vaults}


def _day(day: DaySummary) -> DayDocument:
    return {
        "date": day.date.isoformat(),
        "state": day.state,
        "runs": day.runs,
        "faults": day.faults,
        "bytes": day.bytes,
        "seconds": day.seconds,
        "lag": day.lag,
    }


def _loudness(level: int) -> Loudness:
    if level >= logging.ERROR:
        return "error"
    return "warning" if level >= logging.WARNING else "info"


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
