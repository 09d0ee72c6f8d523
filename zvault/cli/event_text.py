"""A run's events in words. Pure: an event in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from zvault.api.events import (
    ComparedEvent,
    HookOutput,
    InhibitorEvent,
    MessageEvent,
    PlannedEvent,
    PrunedEvent,
    RestoredEvent,
    RetryEvent,
    RunEvent,
    RunFinished,
    RunStarted,
    SnapshotMade,
    TransferFinished,
    VaultUp,
    VerifiedEvent,
)
from zvault.api.restore import DifferenceDocument
from zvault.core.errors import ErrorDocument
from zvault.core.integrity.restore_comparison import describe_difference
from zvault.core.units import format_duration, format_rate, format_size

ACTION_ORDER = ("full", "incremental", "resume", "nothing", "conflict")


def format_plural(count: int, noun: str, several: str = "") -> str:
    """``1 dataset``, ``3 datasets``."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or f'{noun}s'}"


def format_tally(words: Iterable[str], order: tuple[str, ...] = ACTION_ORDER) -> str:
    """``2 incremental, 1 nothing``: how often each word occurs, in a fixed order."""
    counts = Counter(words)
    known = [word for word in order if counts[word]]
    return ", ".join(f"{counts[word]} {word}" for word in [*known, *sorted(counts.keys() - set(order))])


def format_moved(count: int, seconds: float) -> str:
    """``1.20G in 12s (102M/s)``; no rate where it would mean nothing."""
    text = f"{format_size(count)} in {format_duration(seconds)}"
    return f"{text} ({format_rate(count / seconds)})" if count and seconds >= 0.1 else text


def format_step(before: str | None, after: str) -> str:
    """``@a -> @b``, or ``@b`` for a full stream."""
    return f"{_at(before)} -> {_at(after)}" if before else _at(after)


def _at(snapname: str) -> str:
    """A snapshot name with its @; bookmarks and full names stay as they are."""
    return snapname if "@" in snapname or "#" in snapname else f"@{snapname}"


def narrate_event(event: RunEvent) -> str | None:  # noqa: PLR0911, PLR0912 - a table of events
    """An event as one line; None for events that only move the progress bar or report trouble."""
    match event:
        case RunStarted():
            why = _TRIGGERS.get(event.trigger, event.trigger)
            return f"run {event.run} of {event.backup} ({why})"
        case VaultUp():
            return _told(f"vault {event.vault}", event.message or "up")
        case InhibitorEvent():
            return _told("inhibitor", event.message or ("held" if event.held else "not held"))
        case SnapshotMade():
            return f"snapshot: @{event.snapname} of {format_plural(event.datasets, 'dataset')}"
        case PlannedEvent():
            return f"plan: {_planned(event)}"
        case RetryEvent():
            wait, number = format_duration(event.wait), f"{event.number} of {event.retries}"
            return f"trying again in {wait} ({number}): {_in_short(event.error)}"
        case TransferFinished():
            return f"sent: {event.dataset}  {format_moved(event.bytes, event.seconds)}"
        case PrunedEvent() if event.count:
            return f"pruned: {format_plural(event.count, 'snapshot')} on the {event.side}"
        case RestoredEvent():
            return _restored(event)
        case ComparedEvent():
            return _compared(event)
        case VerifiedEvent():
            return _verified(event)
        case HookOutput():
            return f"{event.program}: {event.text}"
        case MessageEvent():
            return event.text
    return None


def _in_short(error: ErrorDocument) -> str:
    return f"{error['what']}: {error['why']}" if error["why"] else error["what"]


_TRIGGERS = {"hand": "by hand", "schedule": "as scheduled", "catch-up": "to catch up on a missed one"}


def _told(subject: str, message: str) -> str:
    return message if message.startswith(subject) else f"{subject}: {message}"


def _planned(event: PlannedEvent) -> str:
    actions = format_tally(dataset["action"] for dataset in event.datasets)
    return f"{actions or 'no datasets'}; {format_size(event.bytes_total)} to send"


def _verified(event: VerifiedEvent) -> str:
    count, files = format_plural(event.datasets, "dataset"), event.files
    of = (
        f", {format_plural(files, 'file or piece', 'files and pieces')} of {format_size(event.bytes)}"
        if files
        else ""
    )
    result = {"ok": "the same on both sides", "differs": "NOT the same on both sides"}.get(event.result)
    return f"verified ({event.level}): {count}{of}: {result or 'nothing could be compared'}"


def _restored(event: RestoredEvent) -> str:
    origin = _at(event.snapshot)
    if event.files is not None:
        return f"restored: {format_plural(event.files, 'file')} from {origin} in {event.dataset}"
    return f"restored: {event.dataset} from {origin}, {format_mounted(event)}"


def _compared(event: ComparedEvent) -> str:
    files, count = event.files, event.differences
    of = (
        f"{format_plural(files, 'file or piece', 'files and pieces')} of {format_size(event.bytes)}: "
        if files
        else ""
    )
    result = "the same as in the snapshot" if event.result == "same" else f"{count} NOT the same"
    if not files and event.result == "same":
        result = "nothing that was compared differs"
    return f"compared: {of}{result}{_unread(event.unread)}"


def _unread(unread: Mapping[str, str]) -> str:
    """The datasets that were not compared, the first with its reason."""
    if not unread:
        return ""
    name, why = next(iter(unread.items()))
    more = f" and of {format_plural(len(unread) - 1, 'dataset')} more" if len(unread) > 1 else ""
    return f"; the contents of {name}{more} were not compared: {why}"


def format_difference(one: DifferenceDocument) -> str:
    """A difference between what was restored and its snapshot: ``tank/back: docs/a: mode: 0600, was 0644``."""
    where = f"{one['dataset']}: {one['path']}" if one["path"] else one["dataset"]
    return describe_difference(where, one["what"], one["wanted"], one["found"])


def format_mounted(event: RestoredEvent) -> str:
    """Say where restored data is mounted, or why it is not."""
    where = event.mountpoint
    if where is None:
        return f"not mounted: {event.why}"
    return f"at {where}" if where.startswith("/dev/") else f"mounted at {where}"


_ASIDE = {"restore", "prune", "verify", "scrub", "heal", "snapshot"}
"""Triggers of work that reports like a run but is not a backup."""


def format_summary(event: RunFinished) -> str:
    """The last line of a run: ``filer1 ok: 1.20G in 14s (88M/s)``."""
    if event.trigger == "snapshot":
        done = f"{format_plural(event.datasets, 'dataset')} in {format_duration(event.seconds)}"
    elif event.pruned and not event.datasets:  # the run only pruned
        done = f"{format_plural(event.pruned, 'snapshot')} pruned in {format_duration(event.seconds)}"
    elif event.trigger == "scrub":
        done = f"after {format_duration(event.seconds)}"
    else:
        done = format_moved(event.bytes, event.seconds)
    # A failed restore or prune must not read as a failed backup.
    what = f"{event.trigger} of " if event.trigger in _ASIDE else ""
    return f"{what}{event.backup} {event.result}: {done}"
