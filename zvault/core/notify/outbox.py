"""What waits to be sent to one target, and when it is tried (again). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice

from zvault.core.notify.incidents import IncidentBook
from zvault.core.notify.message import Item, RunPing
from zvault.core.policy.backoff import A_FIFTH, LONGEST_DELAY, iterate_delays

FIRST_RETRY_PAUSE = 10.0
"""Seconds until what failed is tried again; twice as long each time, up to an hour."""

EXPIRES_AFTER = 3 * 86400.0
"""Seconds after which what could not be sent is given up."""

MOST_WAITING = 200
"""Items that may wait; beyond that the oldest is given up."""

FAILING_TRIES = 3
"""So many tries that failed make it a condition that a target cannot be reached."""


@dataclass(frozen=True, slots=True)
class QueuedItem:
    """An item, how often it was tried, and when it is tried next: seconds since the epoch."""

    item: Item
    due: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class TargetOutbox:
    """All that is kept of a target. ``given_up``: of its items since ``last_success``. Times since the epoch.

    ``reported``: until when it was told of periods (report.py); None of a target that gets no reports.
    """

    book: IncidentBook = field(default_factory=IncidentBook)
    waiting: tuple[QueuedItem, ...] = ()
    last_success: float | None = None
    last_failure: float | None = None
    last_error: str = ""
    given_up: int = 0
    reported: float | None = None

    @property
    def failing(self) -> bool:
        """True if it could not be reached for a while."""
        return bool(self.waiting) and self.waiting[0].tries >= FAILING_TRIES


def strip_incident_words(target: TargetOutbox) -> TargetOutbox:
    """A target without the words of its incidents, which are made anew at each look, and differ in each."""
    bare = tuple(
        replace(one, telling=replace(one.telling, conditions=(), why="")) for one in target.book.incidents
    )
    return replace(target, book=replace(target.book, incidents=bare))


def replace_book(target: TargetOutbox, book: IncidentBook) -> TargetOutbox:
    """The same with another book."""
    return replace(target, book=book)


def queue_item(target: TargetOutbox, item: Item) -> TargetOutbox:
    """Have an item sent. A ping stands in place of those of its backup that it makes out of date."""
    waiting = tuple(one for one in target.waiting if not _replaced(one.item, item))
    waiting = (*waiting, QueuedItem(item, item.made))
    too_many = max(0, len(waiting) - MOST_WAITING)
    return replace(target, waiting=waiting[too_many:], given_up=target.given_up + too_many)


def _replaced(old: Item, new: Item) -> bool:
    """A result makes out of date all of its backup; a start only a start, for the failure before is yet to be told."""
    if not (isinstance(old, RunPing) and isinstance(new, RunPing)) or old.backup != new.backup:
        return False
    return new.beat != "start" or old.beat == "start"


def find_next_due(target: TargetOutbox, now: float) -> float | None:
    """Return the time at which the first item is to be tried; None where none waits.

    The others wait for it, to come in their order.
    """
    if not target.waiting:
        return None
    # A clock that was set back must not keep it for years.
    return min(target.waiting[0].due, now + LONGEST_DELAY * A_FIFTH[1])


def record_sent(target: TargetOutbox, id: str, now: float) -> TargetOutbox:
    """An item went through."""
    waiting = tuple(one for one in target.waiting if one.item.id != id)
    return replace(target, waiting=waiting, last_success=now, last_error="", given_up=0)


def record_test(target: TargetOutbox, error: str, now: float) -> TargetOutbox:
    """A test was sent, or was not (``error``): what waits is not touched."""
    if error:
        return replace(target, last_failure=now, last_error=error)
    return replace(target, last_success=now, last_error="")


def record_failure(
    target: TargetOutbox, id: str, why: str, now: float, chance: Callable[[], float]
) -> TargetOutbox:
    """An item did not go through, and is tried again later; none is kept for longer than EXPIRES."""
    waiting = tuple(
        replace(one, tries=one.tries + 1, due=now + _delay(one.tries, chance)) if one.item.id == id else one
        for one in target.waiting
    )
    return drop_expired(replace(target, waiting=waiting, last_failure=now, last_error=why), now)


def drop_expired(target: TargetOutbox, now: float) -> TargetOutbox:
    """Without what is too old to be of use."""
    waiting = tuple(one for one in target.waiting if now - one.item.made < EXPIRES_AFTER)
    return replace(target, waiting=waiting, given_up=target.given_up + len(target.waiting) - len(waiting))


def _delay(tries: int, chance: Callable[[], float]) -> float:
    return next(
        islice(iterate_delays(FIRST_RETRY_PAUSE, jitter=A_FIFTH, chance=chance), min(tries, 20), None)
    )
