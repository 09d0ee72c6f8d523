"""The daemon's log: to the journal with fields to search by (BACKUP=, DATASET=, RUN=), else to stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from zvault.core.units import format_duration, format_size
from zvault.daemon.events import Event

log = logging.getLogger("zvault")


class JournalHandler(logging.Handler):
    """Sends records to journald natively, so that the fields of ``extra={"fields": {…}}`` come along."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record. As every handler, it never raises: a run does not fail for want of a log."""
        try:
            self._send(record)
        except Exception:
            self.handleError(record)

    def _send(self, record: logging.LogRecord) -> None:
        from systemd import journal  # type: ignore[attr-defined, unused-ignore]

        fields = {
            key: str(value) for key, value in getattr(record, "fields", {}).items() if value is not None
        }
        priority = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3}
        journal.send(
            self.format(record),
            PRIORITY=str(priority.get(record.levelno, 2)),
            LOGGER=record.name,
            SYSLOG_IDENTIFIER="zvaultd",
            **fields,
        )


def set_up() -> None:
    """Log to the journal when stderr goes there, else to stderr."""
    handler: logging.Handler
    if _stderr_is_the_journal():
        handler = JournalHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("apscheduler", "aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def about(vault: str) -> Callable[[str], None]:
    """Tells the log of a vault, with its name as a field."""

    def say(text: str) -> None:
        log.info("%s: %s", vault, text, extra={"fields": {"VAULT": vault}})

    return say


def _stderr_is_the_journal() -> bool:
    """Whether systemd connected stderr to the journal for us, not for a process we descend from (systemd.exec(5))."""
    try:
        here = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"


def write(event: Event) -> None:
    """Log what a run's event says; progress is for terminals only."""
    line = _line(event)
    if line is None:
        return
    level, text = line
    fields = {"RUN": event["run"], "BACKUP": event["backup"], "DATASET": event.get("dataset")}
    if hook := event.get("hook"):
        fields |= {"HOOK": hook}
    if error := event.get("error"):
        fields |= {"REASON": error["reason"]}
    log.log(level, "%s: %s", event["backup"], text, extra={"fields": fields})


def _line(event: Event) -> tuple[int, str] | None:  # noqa: PLR0911, PLR0912 - a table of what to say
    match event["event"]:
        case "run-started":
            return logging.INFO, f"run {event['run']} begins ({event['trigger']})"
        case "snapshot":
            return logging.INFO, f"snapshot {event['tag']}; datasets: {event['datasets']}"
        case "transfer-started":
            return logging.INFO, f"{event['dataset']}: {event['kind']} to {event['to']}: {event['reason']}"
        case "transfer-finished":
            size, seconds = format_size(event["bytes"]), format_duration(event["seconds"])
            return logging.INFO, f"{event['dataset']}: {size} in {seconds}"
        case "dataset-failed":
            level = logging.WARNING if event.get("again") else logging.ERROR
            return level, f"{event['dataset']}: {_told(event['error'])}"
        case "retry":
            wait, number = format_duration(event["wait"]), f"{event['number']} of {event['retries']}"
            return logging.WARNING, f"trying again in {wait} ({number}): {_told(event['error'])}"
        case "pruned":
            return logging.INFO, f"pruned {event['count']} snapshots on the {event['side']}"
        case "message":
            return logging.INFO, str(event["text"])
        case "warning":
            return logging.WARNING, str(event["text"])
        case "hook-output":
            return logging.INFO, f"{event['hook']} {event['program']}: {event['text']}"
        case "verified":
            level = logging.ERROR if event["result"] == "differs" else logging.INFO
            of = f"{event['datasets']} datasets, {event['files']} files, {format_size(event['bytes'])}"
            return level, f"verified ({event['rung']}): {of}: {event['result']}"
        case "restored":
            return logging.INFO, f"restored {event['snapshot']} to {event['dataset']}: {event['mountpoint']}"
        case "run-finished":
            return _finished(event)
    return None


def _finished(event: Event) -> tuple[int, str]:
    size, seconds = format_size(event["bytes"]), format_duration(event["seconds"])
    text = f"run {event['run']} {event['result']}: {size} in {seconds}"
    if event["error"]:
        return logging.ERROR, f"{text}; {_told(event['error'])}"
    return logging.INFO, text


def _told(error: dict[str, Any]) -> str:
    text = f"{error['what']}: {error['why']}" if error["why"] else str(error["what"])
    return f"{text}. Next: {error['next']}" if error["next"] else text
