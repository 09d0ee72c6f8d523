"""The states of one host towards a vault that several hosts share, and the events that move it between them.

The table below is complete. Only events that it has may be fired. docs/explanation/several-hosts.md shows it, and a
test compares the two. It says nothing of the vault's pool and devices on this host: core/policy/vault_life.py does.
"""

from __future__ import annotations

from enum import Enum

from zvault.core.transitions import State, Table, Transition


class Turn(State):
    """The state of this host."""

    STANDING_BY = "standing by", "it has neither lease nor device, and looks at the note when a backup is due"
    ASKING = "asking", "it tries to get the lease: of nobody, or of a host that has stopped"
    HOLDING = "holding", "it has the lease and the device's epoch, makes runs, and writes the note"
    RELEASING = "releasing", "it exports the pool, takes the device down and gives the lease back"
    CUT_OFF = "cut off", "it could not renew its lease and killed its server; it may still have the lease"
    SHUT_OUT = (
        "shut out",
        "another host has the lease or the epoch; what it had not put into the storage is lost",
    )


class Event(Enum):
    """An event that moves a host from one state to another. The value is its name in the table of the page."""

    ASK = "ask"
    GOT = "got"
    NOT_GOT = "not got"
    RELEASE = "release"
    RELEASED = "released"
    STOPPED = "stopped"
    LOST = "lost"
    CLEANED = "cleaned"


TRANSITIONS = (
    Transition(
        Event.ASK,
        (Turn.STANDING_BY, Turn.CUT_OFF),
        Turn.ASKING,
        "a run is due that no other host made, or was broken off; or the store answers again after it was cut off",
    ),
    Transition(
        Event.GOT,
        (Turn.ASKING,),
        Turn.HOLDING,
        "the lease is its own; before a run it reads the note again, and decides again",
    ),
    Transition(
        Event.NOT_GOT,
        (Turn.ASKING,),
        Turn.STANDING_BY,
        "another host has the lease or was faster, or the store does not answer; nothing was brought up here",
    ),
    Transition(
        Event.RELEASE,
        (Turn.HOLDING,),
        Turn.RELEASING,
        "nothing is left to do here: it writes the note for the last time, and takes the vault down",
    ),
    Transition(Event.RELEASED, (Turn.RELEASING,), Turn.STANDING_BY, "the lease was given back"),
    Transition(
        Event.STOPPED,
        (Turn.ASKING, Turn.HOLDING, Turn.RELEASING),
        Turn.CUT_OFF,
        "half the lease passed without a renewal: its guard killed the server, and nobody may have taken over yet",
    ),
    Transition(
        Event.LOST,
        (Turn.ASKING, Turn.HOLDING, Turn.RELEASING, Turn.CUT_OFF),
        Turn.SHUT_OUT,
        "the lease, the epoch or the note is another host's",
    ),
    Transition(
        Event.CLEANED,
        (Turn.SHUT_OUT,),
        Turn.STANDING_BY,
        "neither pool nor device of it is left here, nor anything that was not put into the storage",
    ),
)

TABLE = Table("a host", TRANSITIONS)
may, after = TABLE.may, TABLE.after

WRITING = frozenset({Turn.HOLDING, Turn.RELEASING})
"""States in which this host's server may run, and its note be written."""


def found(*, lease_ours: bool, was_writing: bool) -> Turn:
    """The state to begin in after a start of zvaultd.

    ``lease_ours``: the lease is held by this host, in this boot. ``was_writing``: some of the vault's pool or device is
    left here.
    """
    if lease_ours:
        return Turn.HOLDING if was_writing else Turn.CUT_OFF
    return Turn.SHUT_OUT if was_writing else Turn.STANDING_BY
