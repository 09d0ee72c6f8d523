"""Documents as zvaultd hands them over for the page, with any text in every place that others have a say in."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from zvault.api.health import FindingDocument, HealthDocument
from zvault.api.status import BackupDocument
from zvault.api.vaults import JudgedVault
from zvault.core.errors import ErrorDocument
from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import HealthCondition, SubjectKind
from zvault.daemon.page.page_model import (
    BackupPage,
    DatasetPage,
    DayDocument,
    FilesPage,
    Overview,
    RunPage,
    TimelineMark,
)

NOW = 1_795_269_126.0
WELL: HealthDocument = {"level": "ok", "state": "ok", "findings": []}


def found(condition: HealthCondition, why: str = "why") -> FindingDocument:
    return {
        "condition": condition.key,
        "level": condition.level,
        "state": condition.word or "SUSPENDED",
        "what": condition.says,
        "why": why,
        "next": condition.next.format(name="x"),
    }


def verdict(*findings: FindingDocument) -> HealthDocument:
    if not findings:
        return WELL
    return {"level": findings[0]["level"], "state": findings[0]["state"], "findings": list(findings)}


def every_condition(kind: SubjectKind) -> list[HealthCondition]:
    return list(CONDITIONS[kind])


def error(text: str) -> ErrorDocument:
    return {"reason": "failed", "what": text, "why": text, "next": text}


def backup(name: str = "home", of: HealthDocument = WELL, text: str = "tank", **more: Any) -> BackupDocument:
    made: Any = {
        "name": name,
        "source": text,
        "vault": text,
        "into": text,
        "state": "idle",
        "lag_seconds": 1200.0,
        "makes_snapshots": True,
        "snapshot_age_seconds": None,
        "max_lag_seconds": 10800.0,
        "late": False,
        "last_success": NOW - 1200,
        "last_run": NOW - 1200,
        "last_result": "ok",
        "last_error": None,
        "scheduled": True,
        "next_run": NOW + 2400,
        "next_snapshot": None,
        "run": None,
        "retry_at": None,
        "retry_since": None,
        "retry_error": None,
        "datasets": 3,
        "proofs": {
            "guids": {"proven": NOW, "tried": NOW, "result": "ok", "max_age": None, "told": ""},
            "sample": {"proven": NOW - 86400, "tried": NOW, "result": "ok", "max_age": 86400.0, "told": ""},
        },
        "pending": 0,
        "held_back": 0,
        "restore": {
            "seconds": 22800.0,
            "bytes": 980 << 30,
            "rate": 43e6,
            "measured": NOW - 3 * 86400,
            "measured_by": "drill",
            "measured_bytes": 1 << 30,
            "told": "6h 20m at 41M/s, by the drill of 3d ago",
        },
        "max_restore_seconds": None,
        "bytes_done": 0,
        "bytes_total": None,
        "verdict": of,
    }
    return made | more  # type: ignore[no-any-return]


def vault(name: str = "cold", of: HealthDocument = WELL, text: str = "nbd", **more: Any) -> JudgedVault:
    made: Any = {
        "name": name,
        "pool": text,
        "state": "up",
        "health": "ONLINE",
        "size": 10 << 40,
        "allocated": 6 << 40,
        "free": 4 << 40,
        "devices": [
            {
                "name": text,
                "spec": text,
                "path": text,
                "state": "up",
                "detail": text,
                "size": 1 << 40,
                "store": None,
            }
        ],
        "error": None,
        "users": [text],
        "pinned": False,
        "away": False,
        "inhibitor": False,
        "inhibitor_since": None,
        "past": [],
        "scrub": None,
        "verdict": of,
        "cost": None,
        "uncounted": [text],
    }
    return made | more  # type: ignore[no-any-return]


def day(number: int, **more: Any) -> DayDocument:
    made: Any = {"date": f"2026-11-{number:02}", "state": "ok", "runs": 24, "faults": 0, "bytes": 1 << 30}
    return {**made, "seconds": 60.0, "lag": 3600.0, **more}


def overview(
    backups: list[BackupDocument] | None = None,
    vaults: list[JudgedVault] | None = None,
    text: str = "tank",
    **more: Any,
) -> Overview:
    found = [backup(text=text)] if backups is None else backups
    made: Any = {
        "now": NOW,
        "host": text,
        "status": {
            "daemon": {"version": "1", "pid": 1, "started": NOW - 60, "warnings": [], "verdict": WELL},
            "backups": found,
            "vaults": [vault(text=text)] if vaults is None else vaults,
        },
        "schedules": {one["name"]: text for one in found},
        "extras": {"cold": {"full_in": 4 * 86400.0, "scrub_due": NOW + 86400}},
        "running": [
            {
                "id": "20261121T135202-a001",
                "backup": text,
                "trigger": text,
                "started": NOW - 60,
                "bytes_done": 5,
                "bytes_total": 10,
                "rate": 1.0,
                "streams": [{"dataset": text, "bytes": 1, "total": 2, "rate": 3.0}],
                "more": 1,
                "waiting": NOW + 60,
                "error": error(text),
            }
        ],
        "week": [{"date": "2026-11-21", "what": "run", "name": text, "times": [], "words": text}],
        "week_more": 0,
        "days": [day(20, state="failed", faults=1), day(21)],
    }
    return made | more  # type: ignore[no-any-return]


def backup_page(text: str = "tank", rows: int = 3, **more: Any) -> BackupPage:
    run: Any = {
        "id": "20261121T135202-a001",
        "backup": text,
        "trigger": text,
        "started": NOW - 60,
        "ended": NOW,
        "result": "failed",
        "bytes": 5,
        "datasets": 1,
        "sent": 1,
        "pruned": 0,
        "error": error(text),
        "warning": text,
        "seconds": 60.0,
    }
    made: Any = {
        "now": NOW,
        "host": text,
        "backup": backup(text, text=text, last_error=error(text)),
        "schedule": text,
        "datasets": [
            {
                "dataset": f"{text}{one}",
                "lag": one * 9000.0 if one else None,
                "pending": one,
                "newest": NOW,
                "base": NOW,
            }
            for one in range(rows)
        ],
        "total": rows,
        "page": 1,
        "pages": 1,
        "runs": [run],
        "days": [day(20), day(21, lag=None)],
        "mounts": [{"id": "0a", "snapshot": text, "folder": text, "since": NOW - 60}],
        "lists_files": True,
    }
    return made | more  # type: ignore[no-any-return]


def run_page(text: str = "tank") -> RunPage:
    line: Any = {"time": NOW, "level": "error", "text": text}
    return {"now": NOW, "host": text, "run": backup_page(text)["runs"][0], "lines": [line], "more": 3}


def dataset_page(text: str = "tank", **more: Any) -> DatasetPage:
    there, goes = {"keep": True, "why": text}, {"keep": False, "why": text}
    point: Any = {"name": text, "made": NOW - 60, "source": goes, "vault": there, "base": True}
    both = TimelineMark.SOURCE | TimelineMark.VAULT
    made: Any = {
        "now": NOW,
        "host": text,
        "backup": text,
        "dataset": text,
        "vault": text,
        "into": text,
        "source_listed": NOW - 20,
        "vault_listed": NOW - 40,
        "foreseen": ["source", "vault"],
        "scheduled": True,
        "next_run": NOW + 600,
        "drawn": [
            (NOW - 60, int(both | TimelineMark.BASE | TimelineMark.GOES_ON_SOURCE)),
            (NOW - 30, int(TimelineMark.SOURCE | TimelineMark.WAITING)),
            (NOW - 90 * 86400, int(TimelineMark.VAULT | TimelineMark.FOREIGN)),
        ],
        "counts": {str(mark.name): 1 for mark in TimelineMark},
        "points": [point, {**point, "source": None, "vault": {"keep": None, "why": ""}, "base": False}],
        "total": 250,
        "page": 2,
        "pages": 3,
    }
    return made | more  # type: ignore[no-any-return]


def files_page(text: str = "tank", **more: Any) -> FilesPage:
    name = b64encode(text.encode(errors="surrogateescape").replace(b"/", b"") or b"a").decode()
    entry: Any = {"name": name, "kind": "folder", "size": None, "mtime": NOW - 5, "link": ""}
    made: Any = {
        "now": NOW,
        "host": text,
        "backup": text,
        "mount": {"id": "0a", "snapshot": text, "folder": text, "since": NOW - 60},
        "path": b64encode(b"docs/a b").decode(),
        "first": 2,
        "entries": [entry, {**entry, "kind": "file", "size": 5}, {**entry, "kind": "link", "link": name}],
        "total": 9,
        "more": True,
        "error": "",
    }
    return made | more  # type: ignore[no-any-return]
