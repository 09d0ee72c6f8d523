"""From what zvaultd tells to what the page shows, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta, tzinfo
from typing import Any

from zvault.api.cost import describe_cost
from zvault.api.headlines import write_status_headlines
from zvault.api.health import HealthDocument
from zvault.api.status import NEXT_RUN_UNKNOWN, BackupDocument
from zvault.api.vaults import DeviceDocument, JudgedVault, ScrubDocument
from zvault.core.errors import ErrorDocument
from zvault.core.health.backup import FAR_BEHIND_FACTOR
from zvault.core.health.headlines import format_count
from zvault.core.health.verdict import VERDICT_LEVELS, select_worst_level
from zvault.core.policy.week import WEEK_DAYS
from zvault.daemon.page.page_model import DatasetRow, DayDocument, DueDocument, Overview, RunningDocument
from zvault.daemon.page.page_words import (
    compute_percent,
    format_short_duration,
    show_duration,
    show_moment,
    show_rate,
    show_size,
)

MOST_SHOWN = 200
"""Backups, vaults and findings that the first page shows, worst first."""

BAD_DAYS = 10
"""Days with a fault that are named."""


def show_state(found: Overview) -> dict[str, Any]:
    """Show how everything is."""
    status = found["status"]
    lines = write_status_headlines(status)
    verdicts = [
        status["daemon"]["verdict"],
        *(one["verdict"] for one in (*status["backups"], *status["vaults"])),
    ]
    return {
        "level": select_worst_level(one["level"] for one in verdicts),
        "lines": [line if len(line) <= 600 else f"{line[:600]}…" for line in lines],
    }


def show_needs(found: Overview, runbooks: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """Show what needs a person, worst first: what is wrong, why, and what to do."""
    status = found["status"]
    cards = [
        *_cards("vault", [(one["name"], one["verdict"], one["error"]) for one in status["vaults"]], runbooks),
        *_cards(
            "backup", [(one["name"], one["verdict"], _trouble(one)) for one in status["backups"]], runbooks
        ),
        *_cards("daemon", [("", status["daemon"]["verdict"], None)], runbooks),
    ]
    cards.sort(key=lambda one: -VERDICT_LEVELS.index(one["level"]))
    return {"cards": cards[:MOST_SHOWN], "more": max(0, len(cards) - MOST_SHOWN)}


def _cards(
    kind: str,
    subjects: Sequence[tuple[str, HealthDocument, ErrorDocument | None]],
    runbooks: Mapping[tuple[str, str], str],
) -> Iterator[dict[str, Any]]:
    for name, verdict, error in subjects:
        for one in verdict["findings"]:
            known = error is not None and error["what"] in one["why"]
            yield {
                "kind": kind,
                "name": name,
                "level": one["level"],
                "state": one["state"],
                "what": one["what"],
                "why": one["why"],
                # The error's own advice fits better than that of the condition.
                "next": error["next"] if known and error is not None and error["next"] else one["next"],
                "runbook": runbooks.get((kind, one["condition"])),
            }


def list_backup_needs(
    kind: str, one: BackupDocument, runbooks: Mapping[tuple[str, str], str]
) -> list[dict[str, Any]]:
    """Show what is wrong with a backup."""
    return list(_cards(kind, [(one["name"], one["verdict"], _trouble(one))], runbooks))


def _trouble(backup: BackupDocument) -> ErrorDocument | None:
    return backup["retry_error"] or backup["last_error"]


def show_running(found: Overview, zone: tzinfo) -> dict[str, Any]:
    """Show what runs now, and what comes next if nothing does."""
    now = found["now"]
    due = [
        (one["next_run"], one["name"]) for one in found["status"]["backups"] if one["next_run"] is not None
    ]
    first = min(due, default=None)
    return {
        "runs": [_running(one, now, zone) for one in found["running"][:MOST_SHOWN]],
        "next": None if first is None else {"name": first[1], "at": show_moment(first[0], now, zone)},
    }


def _running(run: RunningDocument, now: float, zone: tzinfo) -> dict[str, Any]:
    done, total = run["bytes_done"], run["bytes_total"]
    left = (total - done) / run["rate"] if total and run["rate"] and total > done else None
    return {
        **run,
        "since": show_moment(run["started"], now, zone),
        "share": compute_percent(done, total),
        "sent": f"{show_size(done)} of {show_size(total)}" if total else show_size(done),
        "speed": show_rate(run["rate"]),
        "left": format_short_duration(left) if left is not None else "",
        "again": show_moment(run["waiting"], now, zone),
        "flows": [
            {
                "dataset": one["dataset"],
                "share": compute_percent(one["bytes"], one["total"]),
                "sent": f"{show_size(one['bytes'])} of {show_size(one['total'])}"
                if one["total"]
                else show_size(one["bytes"]),
                "speed": show_rate(one["rate"]),
            }
            for one in run["streams"]
        ],
    }


def show_backups(found: Overview, zone: tzinfo) -> dict[str, Any]:
    """All backups, worst first, as many as go on a page."""
    rows = [
        _backup(one, found["schedules"].get(one["name"], ""), found["now"], zone)
        for one in _ordered(found["status"]["backups"])
    ]
    return {"rows": rows[:MOST_SHOWN], "more": max(0, len(rows) - MOST_SHOWN)}


def _ordered(some: Sequence[Any]) -> list[Any]:
    return sorted(some, key=lambda one: (-VERDICT_LEVELS.index(one["verdict"]["level"]), one["name"]))


def show_backup(one: BackupDocument, schedule: str, now: float, zone: tzinfo) -> dict[str, Any]:
    """A backup in words."""
    return _backup(one, schedule, now, zone)


def _backup(one: BackupDocument, schedule: str, now: float, zone: tzinfo) -> dict[str, Any]:
    lag, limit = one["lag_seconds"], one["max_lag_seconds"]
    return {
        "name": one["name"],
        "sends": one["vault"] is not None,
        "makes": one["makes_snapshots"],
        "way": f"{one['source']} → {one['vault']}"
        if one["vault"] is not None
        else f"{one['source']}, {'snapshots only' if one['makes_snapshots'] else 'pruned only'}",
        "level": one["verdict"]["level"],
        "state": one["verdict"]["state"],
        "activity": _activity(one),
        "lag": show_duration(lag) if one["vault"] is not None else "none",
        "newest": show_duration(one["snapshot_age_seconds"]),
        "limit": show_duration(limit) if limit is not None else "",
        "bar": _lag_bar(lag, limit),
        "restore": _restore(one),
        "schedule": schedule,
        "success": show_moment(one["last_success"], now, zone),
        "last": show_moment(one["last_run"], now, zone),
        "result": one["last_result"] or "",
        "next": show_moment(one["next_run"], now, zone),
        "no_next": NEXT_RUN_UNKNOWN if one["scheduled"] else "by hand",
        "proven": _proven(one, now, zone),
        "proofs": _proofs(one, now, zone),
        "datasets": one["datasets"],
        "pending": one["pending"],
    }


def _activity(one: BackupDocument) -> str:
    share = compute_percent(one["bytes_done"], one["bytes_total"])
    if one["state"] == "running" and share is not None:
        return f"running {share:.0f}%"
    return "waiting to try again" if one["state"] == "waiting" else one["state"]


def _restore(one: BackupDocument) -> dict[str, str]:
    """How long it takes to restore all of it, the limit, and what that rests on."""
    its, limit = one["restore"], one["max_restore_seconds"]
    if its is None:
        return {"time": "none", "limit": "", "level": "", "told": ""}
    return {
        "time": show_duration(its["seconds"]),
        "limit": show_duration(limit) if limit is not None else "",
        "level": _restore_level(its["seconds"], limit),
        "told": its["told"],
    }


def _restore_level(seconds: float | None, limit: float | None) -> str:
    if limit is None:
        return ""
    if seconds is None:
        return "unknown"
    return "warning" if seconds > limit else "ok"


def _lag_bar(lag: float | None, limit: float | None) -> dict[str, Any] | None:
    """A bar that is full at one and a half times the limit, with a mark at it."""
    if lag is None or not limit:
        return None
    share = max(0.0, lag / limit)
    word = "within max_lag" if share <= 1 else f"{share:.1f} times max_lag"
    return {
        "width": round(min(100.0, share * 100 / 1.5), 1),
        "mark": round(100 / 1.5, 1),
        "level": "ok" if share <= 1 else "warning" if share <= FAR_BEHIND_FACTOR else "critical",
        "word": word,
    }


def _proven(one: BackupDocument, now: float, zone: tzinfo) -> dict[str, Any]:
    """When contents were last compared and found the same, or that nobody knows, or that they never were."""
    if one["proofs"] is None:
        return {"at": None, "word": "unknown"}
    times = [
        it["proven"] for level, it in one["proofs"].items() if level != "guids" and it["proven"] is not None
    ]
    return {"at": show_moment(max(times), now, zone) if times else None, "word": "never"}


def _proofs(one: BackupDocument, now: float, zone: tzinfo) -> list[dict[str, Any]]:
    return [
        {
            "level": level,
            "at": show_moment(it["proven"], now, zone),
            "result": it["result"] or "not known",
            "every": format_short_duration(it["max_age"]) if it["max_age"] is not None else "",
        }
        for level, it in (one["proofs"] or {}).items()
    ]


def show_vaults(found: Overview, zone: tzinfo) -> dict[str, Any]:
    """All vaults, worst first, as many as go on a page."""
    rows = [_vault(one, found, zone) for one in _ordered(found["status"]["vaults"])]
    return {"rows": rows[:MOST_SHOWN], "more": max(0, len(rows) - MOST_SHOWN)}


def _vault(one: JudgedVault, found: Overview, zone: tzinfo) -> dict[str, Any]:
    extra = found["extras"].get(one["name"], {"full_in": None, "scrub_due": None})
    total, free = one["size"], one["free"]
    used = compute_percent(total - free, total) if total is not None and free is not None else None
    full_in = extra["full_in"]
    return {
        "name": one["name"],
        "pool": one["pool"],
        "level": one["verdict"]["level"],
        "state": one["verdict"]["state"],
        "up": "away" if one["away"] and one["state"] == "down" else one["state"],
        "health": one["health"] or "not known while it is down",
        "used": used,
        "fill": f"{used:.0f}% of {show_size(total)}" if used is not None else "not known while it is down",
        "free": show_size(free) if free is not None else "",
        "forecast": f"full in {format_short_duration(full_in)}" if full_in is not None else "",
        "cost": describe_cost(one["cost"], one["uncounted"]),
        "fill_level": "ok" if used is None or used < 80 else "warning" if used < 95 else "critical",
        "users": ", ".join(one["users"]),
        "scrub": _scrub(one["scrub"], found["now"], zone),
        "scrub_due": show_moment(extra["scrub_due"], found["now"], zone),
        "layers": [_layer(layer) for layer in one["devices"]],
    }


def _layer(one: DeviceDocument) -> dict[str, str]:
    trouble = (one["store"]["trouble"] or "") if one["store"] is not None else ""
    return {
        "name": one["name"],
        "spec": one["spec"],
        "state": one["state"],
        "detail": one["detail"] or trouble,
        "size": show_size(one["size"]) if one["size"] is not None else "",
        "level": "ok"
        if one["state"] in ("up", "down") and not trouble
        else "critical"
        if one["state"] == "gone"
        else "warning",
    }


def _scrub(scrub: ScrubDocument | None, now: float, zone: tzinfo) -> dict[str, Any]:
    if scrub is None:
        return {"word": "unknown", "at": None, "errors": 0}
    words = {"none": "never", "finished": "whole", "resilver": "resilvering"}
    word = words.get(scrub["state"], scrub["state"])
    if scrub["state"] in ("scanning", "paused") and scrub["share"] is not None:
        word = f"{'running' if scrub['state'] == 'scanning' else 'paused'} {scrub['share']:.0%}"
    return {"word": word, "at": show_moment(scrub["last"], now, zone), "errors": scrub["errors"]}


def show_week(found: Overview, zone: tzinfo) -> dict[str, Any]:
    """The next days, a row for each backup."""
    here = show_moment(found["now"], found["now"], zone)
    if here is None:
        return {"days": [], "rows": [], "more": 0}
    today = date.fromisoformat(here.iso[:10])
    dates = [today + timedelta(days=one) for one in range(WEEK_DAYS)]
    rows: dict[str, dict[str, str]] = {}
    for due in found["week"]:
        rows.setdefault(due["name"], {})[due["date"]] = _times(due, found["now"], zone)
    return {
        "days": [{"iso": one.isoformat(), "text": one.strftime("%a %d %b")} for one in dates],
        "rows": [
            {
                "name": name,
                "cells": [cells.get(one.isoformat(), "") for one in dates],
                "same": _same(cells, dates),
            }
            for name, cells in rows.items()
        ],
        "more": found["week_more"],
    }


def _same(cells: Mapping[str, str], dates: Sequence[date]) -> str:
    """What all days say, where they say the same in words."""
    found = {cells.get(one.isoformat(), "") for one in dates}
    only = next(iter(found)) if len(found) == 1 else ""
    return "" if ":" in only else only


def _times(due: DueDocument, now: float, zone: tzinfo) -> str:
    if not due["times"]:
        return due["words"]
    return ", ".join(
        at.iso[11:16] for when in due["times"] if (at := show_moment(when, now, zone)) is not None
    )


def show_past(days: Sequence[DayDocument]) -> dict[str, Any]:
    """The year in words: how many days were how, and the last ones with a fault."""
    counts: dict[str, int] = {}
    for one in days:
        counts[one["state"]] = counts.get(one["state"], 0) + 1
    bad = [one for one in reversed(days) if one["state"] not in ("ok", "no run")]
    return {
        "counts": [f"{word}: {format_count(number, 'day')}" for word, number in counts.items()],
        "bad": [
            {
                "date": one["date"],
                "state": one["state"],
                "runs": one["runs"],
                "faults": one["faults"],
                "lag": show_duration(one["lag"]),
            }
            for one in bad[:BAD_DAYS]
        ],
        "since": days[0]["date"] if days else "",
    }


def show_datasets(
    rows: Sequence[DatasetRow], now: float, zone: tzinfo, limit: float | None
) -> list[dict[str, Any]]:
    """Datasets and how far each lags."""
    return [
        {
            "name": one["dataset"],
            "lag": show_duration(one["lag"]),
            "bar": _lag_bar(one["lag"], limit),
            "pending": "unknown" if one["pending"] is None else str(one["pending"]),
            "newest": show_moment(one["newest"], now, zone),
            "base": show_moment(one["base"], now, zone),
            "level": _dataset_level(one["lag"], limit),
        }
        for one in rows
    ]


def _dataset_level(lag: float | None, limit: float | None) -> str:
    if lag is None:
        return "unknown"
    if limit is None or lag <= limit:
        return "ok"
    return "warning" if lag <= FAR_BEHIND_FACTOR * limit else "critical"


def show_runs(found: Sequence[Any], now: float, zone: tzinfo) -> list[dict[str, Any]]:
    """Past runs in words."""
    return [
        {
            **one,
            "at": show_moment(one["started"], now, zone),
            "took": show_duration(one["seconds"]) if one["seconds"] is not None else "",
            "sent_bytes": show_size(one["bytes"]),
            "result": one["result"] or "under way",
            "level": {"ok": "ok", None: "unknown"}.get(one["result"], "warning"),
        }
        for one in found
    ]
