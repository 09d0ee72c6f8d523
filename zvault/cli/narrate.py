"""A run's events in words. Pure: an event in, lines out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zvault.cli.documents import Event, Trouble
from zvault.core.units import format_duration, format_rate, format_size

ACTIONS = ("full", "incremental", "resume", "nothing", "conflict")


def plural(count: int, noun: str, several: str = "") -> str:
    """``1 dataset``, ``3 datasets``."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or f'{noun}s'}"


def tally(words: Iterable[str], order: tuple[str, ...] = ACTIONS) -> str:
    """``2 incremental, 1 nothing``: how often each word occurs, in a fixed order."""
    counts = Counter(words)
    known = [word for word in order if counts[word]]
    return ", ".join(f"{counts[word]} {word}" for word in [*known, *sorted(counts.keys() - set(order))])


def moved(count: int, seconds: float) -> str:
    """``1.20G in 12s (102M/s)``; no rate where it would mean nothing."""
    text = f"{format_size(count)} in {format_duration(seconds)}"
    return f"{text} ({format_rate(count / seconds)})" if count and seconds >= 0.1 else text


def step(before: str | None, after: str) -> str:
    """``@a -> @b``, or ``@b`` for a full stream."""
    return f"{_at(before)} -> {_at(after)}" if before else _at(after)


def _at(tag: str) -> str:
    """A tag as it is written; bookmarks and full names keep their own sign."""
    return tag if "@" in tag or "#" in tag else f"@{tag}"


def narrated(event: Event) -> str | None:  # noqa: PLR0911 - a table of events
    """An event as one line, None for those that only move the progress bar or tell of trouble."""
    match event["event"]:
        case "run-started":
            why = _TRIGGERS.get(event["trigger"], event["trigger"])
            return f"run {event['run']} of {event['backup']} ({why})"
        case "vault-up":
            return _told(f"vault {event['vault']}", event.get("message") or "up")
        case "inhibitor":
            return _told("inhibitor", event.get("message") or ("held" if event["held"] else "not held"))
        case "snapshot":
            return f"snapshot: @{event['tag']} of {plural(event['datasets'], 'dataset')}"
        case "plan":
            return f"plan: {_planned(event)}"
        case "retry":
            wait, number = format_duration(event["wait"]), f"{event['number']} of {event['retries']}"
            return f"trying again in {wait} ({number}): {_in_short(event['error'])}"
        case "transfer-finished":
            return f"sent: {event['dataset']}  {moved(event['bytes'], event['seconds'])}"
        case "pruned" if event["count"]:
            return f"pruned: {plural(event['count'], 'snapshot')} on the {event['side']}"
        case "restored":
            return f"restored: {event['dataset']} from {_at(event['snapshot'])}, {mounted(event)}"
        case "verified":
            return _verified(event)
        case "hook-output":
            return f"{event['program']}: {event['text']}"
        case "message":
            return str(event["text"])
    return None


def _in_short(error: Trouble) -> str:
    return f"{error['what']}: {error['why']}" if error["why"] else error["what"]


_TRIGGERS = {"hand": "by hand", "schedule": "as scheduled", "catch-up": "to catch up on a missed one"}


def _told(subject: str, message: str) -> str:
    return message if message.startswith(subject) else f"{subject}: {message}"


def _planned(event: Event) -> str:
    actions = tally(dataset["action"] for dataset in event["datasets"])
    total = event["bytes_total"]
    size = "size not known" if total is None else f"{format_size(total)} to send"
    return f"{actions or 'no datasets'}; {size}"


def _verified(event: Event) -> str:
    count, files = plural(event["datasets"], "dataset"), event["files"]
    of = (
        f", {plural(files, 'file or piece', 'files and pieces')} of {format_size(event['bytes'])}"
        if files
        else ""
    )
    result = {"ok": "the same on both sides", "differs": "NOT the same on both sides"}.get(event["result"])
    return f"verified ({event['rung']}): {count}{of}: {result or 'nothing could be compared'}"


def mounted(event: Event) -> str:
    """Where restored data is found."""
    where = event["mountpoint"]
    if not where:
        return f"not mounted: see 'zfs get mountpoint,mounted {event['dataset']}'"
    return f"at {where}" if where.startswith("/dev/") else f"mounted at {where}"


_ASIDE = {"restore", "prune", "verify", "scrub", "heal"}
"""What follows a run's way and is none."""


def summary(event: Event) -> str:
    """The last line of a run: ``filer1 ok: 1.20G in 14s (88M/s)``."""
    if event.get("pruned") and not event["datasets"]:  # it only pruned
        done = f"{plural(event['pruned'], 'snapshot')} pruned in {format_duration(event['seconds'])}"
    elif event.get("trigger") == "scrub":
        done = f"after {format_duration(event['seconds'])}"
    else:
        done = moved(event["bytes"], event["seconds"])
    # A restore or prune that fails is not the backup's failure.
    what = f"{event['trigger']} of " if event.get("trigger") in _ASIDE else ""
    return f"{what}{event['backup']} {event['result']}: {done}"
