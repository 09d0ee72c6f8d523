"""The states of a vault on this host, the events that move it between them, and the decisions that depend on its state.

The table below is complete. ops/vaults fires only events that the table has. docs/explanation/vaults.md draws it, and
a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from zvault.core.transitions import IllegalTransition, LabelledState, StateTransition, TransitionTable


class VaultLife(LabelledState):
    """The state of a vault."""

    UNKNOWN = "unknown", "zvaultd has started and has not yet adopted or cleared what an earlier zvaultd left"
    DOWN = "down", "its pool is exported and its devices are disconnected"
    HELD_DOWN = "held down", "down because somebody took it down: only a request or a run brings it up"
    COMING_UP = "coming up", "its devices are being connected and its pool imported"
    FAILED = "failed", "it did not come up; some of its devices may be up"
    UP = "up", "its devices are up and its pool was imported"
    COMING_BACK = "coming back", "it has been up; its missing layers are being brought up again"
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


class VaultEvent(Enum):
    """An event that moves a vault from one state to another. The value is its name in the drawing."""

    NOTHING_LEFT = "nothing left"
    RECORD_EXPORTED = "record: exported"
    BRING_UP = "bring up"
    CAME_UP = "came up"
    FAIL = "fail"
    TAKE_DOWN = "take down"
    WENT_DOWN = "went down"
    HOLD_DOWN = "hold down"
    EXPORT = "export"
    FIND_EXPORTED = "found exported"
    FIND_IMPORTED = "found imported"


RESTARTABLE_STATES = (
    VaultLife.UNKNOWN,
    VaultLife.DOWN,
    VaultLife.HELD_DOWN,
    VaultLife.FAILED,
    VaultLife.EXPORTED,
)
"""States from which it comes up anew; if that fails, zvault tries again."""

BEEN_UP = (VaultLife.UP, VaultLife.LOST, VaultLife.HALF_DOWN, VaultLife.EXPORTED_BY_HAND)
"""States in which its pool may be imported; if it does not come back, somebody may have exported the pool."""

VAULT_TRANSITIONS = (
    StateTransition(
        VaultEvent.NOTHING_LEFT,
        (VaultLife.UNKNOWN,),
        VaultLife.DOWN,
        "there is no undo record of it, or only one from before a reboot",
    ),
    StateTransition(
        VaultEvent.RECORD_EXPORTED,
        (VaultLife.UNKNOWN,),
        VaultLife.LOST,
        "its undo record says that an earlier zvaultd found it exported by hand; zvault checks it before anything else",
    ),
    StateTransition(
        VaultEvent.BRING_UP,
        RESTARTABLE_STATES,
        VaultLife.COMING_UP,
        'a run, a request, `up = "always"`, or the end of a sleep or repair requires it to be up',
    ),
    StateTransition(
        VaultEvent.BRING_UP,
        BEEN_UP,
        VaultLife.COMING_BACK,
        "somebody starts to use it or requests it, or its storage was lost; layers that are up already are kept",
    ),
    StateTransition(
        VaultEvent.CAME_UP,
        (VaultLife.COMING_UP, VaultLife.COMING_BACK),
        VaultLife.UP,
        "its pool is imported and answers",
    ),
    StateTransition(
        VaultEvent.FAIL,
        (VaultLife.COMING_UP,),
        VaultLife.FAILED,
        "its status shows the error; if it should be up, zvault tries again",
    ),
    StateTransition(
        VaultEvent.FAIL,
        (VaultLife.COMING_BACK,),
        VaultLife.LOST,
        "as above; but if its pool turns out to be exported while its devices are well, zvault leaves it exported",
    ),
    StateTransition(
        VaultEvent.FAIL,
        (VaultLife.GOING_DOWN,),
        VaultLife.HALF_DOWN,
        "the error says what is still up; zvault tries again, unless it should be up",
    ),
    StateTransition(
        VaultEvent.TAKE_DOWN,
        (*RESTARTABLE_STATES, *BEEN_UP),
        VaultLife.GOING_DOWN,
        "nothing needs it any more, or somebody requests it; never while anything uses it",
    ),
    StateTransition(
        VaultEvent.WENT_DOWN,
        (VaultLife.GOING_DOWN,),
        VaultLife.DOWN,
        "none of its layers is up, and its undo record is dropped",
    ),
    StateTransition(
        VaultEvent.HOLD_DOWN,
        (VaultLife.DOWN,),
        VaultLife.HELD_DOWN,
        "it went down because somebody requested that",
    ),
    StateTransition(
        VaultEvent.EXPORT,
        (VaultLife.UNKNOWN, VaultLife.FAILED, *BEEN_UP),
        VaultLife.EXPORTED,
        "the host is about to sleep, or zvault is about to repair blocks below the pool",
    ),
    StateTransition(
        VaultEvent.FIND_EXPORTED,
        (VaultLife.UP, VaultLife.LOST, VaultLife.HALF_DOWN),
        VaultLife.EXPORTED_BY_HAND,
        "it should be up, and its pool is not imported although all its devices are well",
    ),
    StateTransition(
        VaultEvent.FIND_IMPORTED,
        (VaultLife.HELD_DOWN, VaultLife.EXPORTED_BY_HAND),
        VaultLife.UP,
        "it should be up, and somebody has imported its pool again",
    ),
)

VAULT_TABLE = TransitionTable("a vault", VAULT_TRANSITIONS)
may_happen = VAULT_TABLE.may

WITHHELD_STATES = frozenset({VaultLife.HELD_DOWN, VaultLife.EXPORTED_BY_HAND})
"""States that a person chose: only a request or a run brings the vault up again."""


@dataclass(frozen=True, slots=True)
class VaultLifeFacts:
    """Facts about a vault besides its state.

    ``users``: something uses it. ``pinned``: somebody requested that it stays up. ``always``: its configuration says
    so. ``asleep``: the host is about to sleep or asleep.
    """

    users: bool = False
    pinned: bool = False
    always: bool = False
    asleep: bool = False

    @property
    def to_be_up(self) -> bool:
        """True if it should be up even while nothing uses it."""
        return self.pinned or self.always

    @property
    def free(self) -> bool:
        """True if it may be taken down or repaired: nothing uses it, and no sleep is near."""
        return not (self.users or self.asleep)


def move_vault(life: VaultLife, event: VaultEvent, facts: VaultLifeFacts) -> VaultLife:
    """The state that an event leads to. Raises IllegalTransition."""
    found = VAULT_TABLE.after(life, event)
    if event is VaultEvent.TAKE_DOWN and facts.users:
        raise IllegalTransition("a vault was to be taken down while something uses it")
    return found


def is_withheld(life: VaultLife, facts: VaultLifeFacts) -> bool:
    """True if it should be up, but somebody exported its pool or took it down."""
    return facts.to_be_up and life in WITHHELD_STATES


class IdleNeed(Enum):
    """The need of a vault that nothing uses now."""

    NOTHING = "nothing"
    BRING_UP = "bring up"
    TAKE_DOWN = "take down"
    LEAVE_EXPORTED = "leave exported"
    NOTE_IMPORTED = "note imported"


def decide_idle_care(
    life: VaultLife, facts: VaultLifeFacts, *, well: bool, exported: bool, left_over: bool
) -> IdleNeed:
    """Decide what to do about a vault after a check.

    ``well``: its devices and pool are up and answer. ``exported``: the pool is not imported although all devices are
    well. ``left_over``: something failed, and some of its layers may be up.
    """
    if not facts.free:
        return IdleNeed.NOTHING
    if not facts.to_be_up:
        return IdleNeed.TAKE_DOWN if left_over else IdleNeed.NOTHING
    if life in WITHHELD_STATES:
        return IdleNeed.NOTE_IMPORTED if well else IdleNeed.NOTHING
    if well:
        return IdleNeed.NOTHING
    return (
        IdleNeed.LEAVE_EXPORTED
        if exported and may_happen(life, VaultEvent.FIND_EXPORTED)
        else IdleNeed.BRING_UP
    )


@dataclass(frozen=True, slots=True)
class LeftoverRecord:
    """The undo record that an earlier zvaultd left of a vault. ``stale``: it is from before a reboot."""

    pinned: bool = False
    exported: bool = False
    stale: bool = False


class VaultAdoption(Enum):
    """The decision of a new zvaultd on a vault that an earlier one may have left up."""

    NOTHING = "nothing"
    FORGET = "forget"
    BRING_UP = "bring up"
    PIN = "pin"
    WAIT = "wait"
    TAKE_DOWN = "take down"


def decide_adoption(left: LeftoverRecord | None, *, always: bool, needed: bool) -> VaultAdoption:
    """Decide what to do with a vault after a start. ``needed``: an interrupted run will continue with it."""
    if always:
        return VaultAdoption.BRING_UP
    if left is None or left.stale:
        return VaultAdoption.NOTHING if left is None else VaultAdoption.FORGET
    if left.pinned:
        return VaultAdoption.PIN
    return VaultAdoption.WAIT if needed else VaultAdoption.TAKE_DOWN
