"""The daemon's log: to the journal with fields to search by (BACKUP=, DATASET=, RUN=), else to stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from zvault.api.events import (
    ComparedEvent,
    DatasetFailed,
    DiffersEvent,
    HookOutput,
    MessageEvent,
    PrunedEvent,
    RestoredEvent,
    RetryEvent,
    RunEvent,
    RunFinished,
    RunStarted,
    SnapshotMade,
    TransferFinished,
    TransferStarted,
    VaultRead,
    VerifiedEvent,
    WarningEvent,
)
from zvault.core.errors import ErrorDocument
from zvault.core.printable import make_printable
from zvault.core.units import format_duration, format_rate, format_size

log = logging.getLogger("zvault")


class PrintableFormatter(logging.Formatter):
    """Nothing that another end said controls whoever reads the log."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as logging does, without control characters that a terminal would obey."""
        return make_printable(super().format(record))


def make_journal_handler() -> logging.Handler:
    """Sends records to journald natively, so that the fields of ``extra={"VAULT": …}`` come along."""
    from systemd.journal import JournalHandler

    handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER="zvaultd")
    handler.setFormatter(PrintableFormatter("%(message)s"))
    return handler


def set_up_logging() -> None:
    """Log to the journal when stderr goes there, else to stderr."""
    if _stderr_is_the_journal():
        handler = make_journal_handler()
    else:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)-7s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("apscheduler", "aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def make_vault_logger(vault: str) -> Callable[[str], None]:
    """Tells the log of a vault, with its name as a field."""

    def say(text: str) -> None:
        log.info("%s: %s", vault, text, extra={"VAULT": vault})

    return say


def _stderr_is_the_journal() -> bool:
    """True if systemd connected stderr to the journal for us, not for a process we descend from (systemd.exec(5))."""
    try:
        here = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{here.st_dev}:{here.st_ino}"


def log_event(event: RunEvent) -> None:
    """Log what a run's event says; progress is for terminals only."""
    told = format_event(event)
    if told is None:
        return
    level, text = told
    fields = {"RUN": event.run, "BACKUP": event.backup, "DATASET": getattr(event, "dataset", None)}
    if hook := getattr(event, "hook", None):
        fields |= {"HOOK": hook}
    if (error := _error(event)) is not None:
        fields |= {"REASON": error["reason"]}
    known = {name: str(value) for name, value in fields.items() if value is not None}
    log.log(level, "%s: %s", event.backup, text, extra=known)


def _error(event: RunEvent) -> ErrorDocument | None:
    match event:
        case DatasetFailed() | RetryEvent() | RunFinished():
            return event.error
    return None


def format_event(event: RunEvent) -> tuple[int, str] | None:  # noqa: PLR0911, PLR0912 - a table of what to say
    """Return the text of an event, and how loud it is; None for what is for terminals only."""
    match event:
        case RunStarted():
            return logging.INFO, f"run {event.run} begins ({event.trigger})"
        case SnapshotMade():
            return logging.INFO, f"snapshot {event.snapname}; datasets: {event.datasets}"
        case TransferStarted():
            return logging.INFO, f"{event.dataset}: {event.kind} to {event.to}: {event.reason}"
        case TransferFinished():
            size, seconds = format_size(event.bytes), format_duration(event.seconds)
            return logging.INFO, f"{event.dataset}: {size} in {seconds}"
        case DatasetFailed():
            level = logging.WARNING if event.again else logging.ERROR
            return level, f"{event.dataset}: {_told(event.error)}"
        case RetryEvent():
            wait, number = format_duration(event.wait), f"{event.number} of {event.retries}"
            return logging.WARNING, f"trying again in {wait} ({number}): {_told(event.error)}"
        case PrunedEvent():
            return logging.INFO, f"pruned {event.count} snapshots on the {event.side}"
        case MessageEvent():
            return logging.INFO, event.text
        case WarningEvent():
            return logging.WARNING, event.text
        case HookOutput():
            return logging.INFO, f"{event.hook} {event.program}: {event.text}"
        case VerifiedEvent():
            level = logging.ERROR if event.result == "differs" else logging.INFO
            of = f"{event.datasets} datasets, {event.files} files, {format_size(event.bytes)}"
            return level, f"verified ({event.level}): {of}: {event.result}"
        case RestoredEvent():
            where = event.mountpoint or f"not mounted: {event.why}"
            return logging.INFO, f"restored {event.snapshot} to {event.dataset}: {where}"
        case DiffersEvent():
            paths = [f"{one['path'] or one['dataset']} ({one['what']})" for one in event.differences]
            return logging.WARNING, f"not as in the snapshot: {', '.join(paths)}"
        case ComparedEvent():
            level = logging.INFO if event.result == "same" else logging.ERROR
            of = f"{event.files} files, {format_size(event.bytes)}"
            unread = f"; not compared: {', '.join(event.unread)}" if event.unread else ""
            return level, f"compared with the snapshot: {of}: {event.differences} differences{unread}"
        case VaultRead():
            rate = format_rate(event.bytes / max(event.seconds, 0.001))
            read = f"{format_size(event.bytes)} in {format_duration(event.seconds)} ({rate})"
            return logging.INFO, f"vault {event.vault} was read ({event.kind}): {read}"
        case RunFinished():
            return _finished(event)
    return None


def _finished(event: RunFinished) -> tuple[int, str]:
    size, seconds = format_size(event.bytes), format_duration(event.seconds)
    text = f"run {event.run} {event.result}: {size} in {seconds}"
    if event.error:
        return logging.ERROR, f"{text}; {_told(event.error)}"
    return logging.INFO, text


def _told(error: ErrorDocument) -> str:
    text = f"{error['what']}: {error['why']}" if error["why"] else error["what"]
    return f"{text}. Next: {error['next']}" if error["next"] else text
