"""A vault's life on this host: its states, what moves it from one to another, and what follows from where it is.

The table below is the whole of it. ops/vaults carries it out and fires no event that the table does not have;
docs/explanation/vaults.md draws it, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Life(Enum):
    """Where a vault is in its life. A member has a ``label`` and a ``meaning``."""

    UNKNOWN = "unknown", "zvaultd has started and has not dealt with what an earlier zvaultd left of it"
    DOWN = "down", "its pool is exported and its devices are disconnected"
    HELD_DOWN = "held down", "down because somebody took it down: only a request or a run brings it up"
    COMING_UP = "coming up", "its devices are being connected and its pool imported"
    FAILED = "failed", "it did not come up; some of its devices may be up"
    UP = "up", "its devices are up and its pool was imported"
    COMING_BACK = "coming back", "it has been up: what is missing of it is being brought up again"
    LOST = "lost", "it has been up and could not be brought up again, or may not be up any more"
    GOING_DOWN = "going down", "its pool is being exported and its devices disconnected"
    HALF_DOWN = "half down", "it could not be taken down completely"
    EXPORTED = (
        "exported",
        "zvault exported its pool and left its devices up: for a sleep, or to repair blocks",
    )
    EXPORTED_BY_HAND = (
        "exported by hand",
        "somebody else exported its pool while its devices were well: only a request or a run brings it up",
    )

    def __init__(self, label: str, meaning: str) -> None:
        self.label = label
        self.meaning = meaning


class Event(Enum):
    """What moves a vault from one state to another. The value is what the drawing calls it."""

    NOTHING_LEFT = "nothing left"
    LEASE_EXPORTED = "lease: exported"
    BRING_UP = "bring up"
    CAME_UP = "came up"
    FAIL = "fail"
    TAKE_DOWN = "take down"
    WENT_DOWN = "went down"
    HOLD_DOWN = "hold down"
    EXPORT = "export"
    FIND_EXPORTED = "found exported"
    FIND_IMPORTED = "found imported"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table: what an event makes of a vault in any of some states, and what that means."""

    event: Event
    sources: tuple[Life, ...]
    target: Life
    meaning: str


ANEW = (Life.UNKNOWN, Life.DOWN, Life.HELD_DOWN, Life.FAILED, Life.EXPORTED)
"""States from which it comes up anew: where that fails, zvault tries again."""

BEEN_UP = (Life.UP, Life.LOST, Life.HALF_DOWN, Life.EXPORTED_BY_HAND)
"""States in which its pool may be imported: where it does not come back, somebody may have exported that."""

TRANSITIONS = (
    Transition(
        Event.NOTHING_LEFT,
        (Life.UNKNOWN,),
        Life.DOWN,
        "no lease tells of it, or only one from before a reboot",
    ),
    Transition(
        Event.LEASE_EXPORTED,
        (Life.UNKNOWN,),
        Life.LOST,
        "its lease says that an earlier zvaultd found it exported by hand; it is looked at before anything else",
    ),
    Transition(
        Event.BRING_UP,
        ANEW,
        Life.COMING_UP,
        'a run, a request, `up = "always"`, the end of a sleep or of a repair needs it up',
    ),
    Transition(
        Event.BRING_UP,
        BEEN_UP,
        Life.COMING_BACK,
        "somebody begins to use it, asks for it, or its storage was lost; what is up already is used as it is",
    ),
    Transition(
        Event.CAME_UP, (Life.COMING_UP, Life.COMING_BACK), Life.UP, "its pool is imported and answers"
    ),
    Transition(
        Event.FAIL,
        (Life.COMING_UP,),
        Life.FAILED,
        "the error is in its status; if it is to be up, zvault tries again",
    ),
    Transition(
        Event.FAIL,
        (Life.COMING_BACK,),
        Life.LOST,
        "the same; but if its pool is found exported while its devices are well, it is left so",
    ),
    Transition(
        Event.FAIL,
        (Life.GOING_DOWN,),
        Life.HALF_DOWN,
        "the error says what is left; zvault tries again, unless it is to be up",
    ),
    Transition(
        Event.TAKE_DOWN,
        (*ANEW, *BEEN_UP),
        Life.GOING_DOWN,
        "nobody needs it any more, or somebody asks for it; never while anything uses it",
    ),
    Transition(
        Event.WENT_DOWN, (Life.GOING_DOWN,), Life.DOWN, "nothing of it is up, and its lease is dropped"
    ),
    Transition(Event.HOLD_DOWN, (Life.DOWN,), Life.HELD_DOWN, "it went down because somebody asked for it"),
    Transition(
        Event.EXPORT,
        (Life.UNKNOWN, Life.FAILED, *BEEN_UP),
        Life.EXPORTED,
        "the host is about to sleep, or damaged blocks are written below the pool",
    ),
    Transition(
        Event.FIND_EXPORTED,
        (Life.UP, Life.LOST, Life.HALF_DOWN),
        Life.EXPORTED_BY_HAND,
        "it is to be up, and its pool is not imported though all its devices are well",
    ),
    Transition(
        Event.FIND_IMPORTED,
        (Life.HELD_DOWN, Life.EXPORTED_BY_HAND),
        Life.UP,
        "it is to be up, and somebody has imported its pool again",
    ),
)

TABLE: dict[tuple[Life, Event], Life] = {
    (source, row.event): row.target for row in TRANSITIONS for source in row.sources
}

WITHHELD = frozenset({Life.HELD_DOWN, Life.EXPORTED_BY_HAND})
"""States that a person chose: only a request or a run brings the vault up."""


class IllegalTransition(Exception):
    """An event in a state that the table does not have it for: a fault of zvault's own."""


@dataclass(frozen=True, slots=True)
class VaultFacts:
    """What holds of a vault beside its state.

    ``users``: whether anything uses it; ``pinned``: somebody asked for it to stay up; ``always``: its configuration
    says so; ``asleep``: the host is about to sleep, or does.
    """

    users: bool = False
    pinned: bool = False
    always: bool = False
    asleep: bool = False

    @property
    def to_be_up(self) -> bool:
        """Whether it is to be up also while nothing uses it."""
        return self.pinned or self.always

    @property
    def free(self) -> bool:
        """Whether it may be taken down or repaired: nothing uses it, and no sleep comes into that."""
        return not (self.users or self.asleep)


def may(life: Life, event: Event) -> bool:
    """Whether the table has this event for a state."""
    return (life, event) in TABLE


def after(life: Life, event: Event, facts: VaultFacts) -> Life:
    """The state that an event leads to. Raises IllegalTransition."""
    if not may(life, event):
        raise IllegalTransition(f"{event.value!r} happened to a vault that is {life.label}")
    if event is Event.TAKE_DOWN and facts.users:
        raise IllegalTransition("a vault was to be taken down while something uses it")
    return TABLE[life, event]


def withheld(life: Life, facts: VaultFacts) -> bool:
    """Whether it would be up, but for somebody who exported its pool or took it down."""
    return facts.to_be_up and life in WITHHELD


class IdleNeed(Enum):
    """What a vault needs that nothing uses at this moment."""

    NOTHING = "nothing"
    BRING_UP = "bring up"
    TAKE_DOWN = "take down"
    LEAVE_EXPORTED = "leave exported"
    NOTE_IMPORTED = "note imported"


def care(life: Life, facts: VaultFacts, *, well: bool, exported: bool, left_over: bool) -> IdleNeed:
    """What to do about a vault after looking at it.

    ``well``: its devices and pool are up and answer; ``exported``: the pool is not imported though all devices are
    well; ``left_over``: something failed, and something of it may be up.
    """
    if not facts.free:
        return IdleNeed.NOTHING
    if not facts.to_be_up:
        return IdleNeed.TAKE_DOWN if left_over else IdleNeed.NOTHING
    if life in WITHHELD:
        return IdleNeed.NOTE_IMPORTED if well else IdleNeed.NOTHING
    if well:
        return IdleNeed.NOTHING
    return IdleNeed.LEAVE_EXPORTED if exported and may(life, Event.FIND_EXPORTED) else IdleNeed.BRING_UP


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What the lease of a vault says that an earlier zvaultd left. ``stale``: before a reboot."""

    pinned: bool = False
    exported: bool = False
    stale: bool = False


class Adoption(Enum):
    """What a new zvaultd does with a vault that an earlier one may have left up."""

    NOTHING = "nothing"
    FORGET = "forget"
    BRING_UP = "bring up"
    PIN = "pin"
    WAIT = "wait"
    TAKE_DOWN = "take down"


def adoption(left: LeftBehind | None, *, always: bool, needed: bool) -> Adoption:
    """What to do with a vault after a start. ``needed``: an interrupted run goes on with it."""
    if always:
        return Adoption.BRING_UP
    if left is None or left.stale:
        return Adoption.NOTHING if left is None else Adoption.FORGET
    if left.pinned:
        return Adoption.PIN
    return Adoption.WAIT if needed else Adoption.TAKE_DOWN
