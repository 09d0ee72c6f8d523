"""The states of one host towards a vault that several hosts share, and the events that move it between them.

The table below is complete. Only events that it has may be fired. docs/explanation/several-hosts.md shows it, and a
test compares the two. It says nothing of the vault's pool and devices on this host: core/policy/vault_life.py does.
"""

from __future__ import annotations

from enum import Enum

from zvault.core.transitions import LabelledState, StateTransition, TransitionTable


class ElectionState(LabelledState):
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


class ElectionEvent(Enum):
    """An event that moves a host from one state to another. The value is its name in the table of the page."""

    ASK = "ask"
    GOT = "got"
    NOT_GOT = "not got"
    RELEASE = "release"
    RELEASED = "released"
    STOPPED = "stopped"
    LOST = "lost"
    CLEANED = "cleaned"


ELECTION_TRANSITIONS = (
    StateTransition(
        ElectionEvent.ASK,
        (ElectionState.STANDING_BY, ElectionState.CUT_OFF),
        ElectionState.ASKING,
        "a run is due that no other host made, or was broken off; or the store answers again after it was cut off",
    ),
    StateTransition(
        ElectionEvent.GOT,
        (ElectionState.ASKING,),
        ElectionState.HOLDING,
        "the lease is its own; before a run it reads the note again, and decides again",
    ),
    StateTransition(
        ElectionEvent.NOT_GOT,
        (ElectionState.ASKING,),
        ElectionState.STANDING_BY,
        "another host has the lease or was faster, or the store does not answer; nothing was brought up here",
    ),
    StateTransition(
        ElectionEvent.RELEASE,
        (ElectionState.HOLDING,),
        ElectionState.RELEASING,
        "nothing is left to do here: it writes the note for the last time, and takes the vault down",
    ),
    StateTransition(
        ElectionEvent.RELEASED,
        (ElectionState.RELEASING,),
        ElectionState.STANDING_BY,
        "the lease was given back",
    ),
    StateTransition(
        ElectionEvent.STOPPED,
        (ElectionState.ASKING, ElectionState.HOLDING, ElectionState.RELEASING),
        ElectionState.CUT_OFF,
        "half the lease passed without a renewal: its guard killed the server, and nobody may have taken over yet",
    ),
    StateTransition(
        ElectionEvent.LOST,
        (ElectionState.ASKING, ElectionState.HOLDING, ElectionState.RELEASING, ElectionState.CUT_OFF),
        ElectionState.SHUT_OUT,
        "the lease, the epoch or the note is another host's",
    ),
    StateTransition(
        ElectionEvent.CLEANED,
        (ElectionState.SHUT_OUT,),
        ElectionState.STANDING_BY,
        "neither pool nor device of it is left here, nor anything that was not put into the storage",
    ),
)

ELECTION_TABLE = TransitionTable("a host", ELECTION_TRANSITIONS)
may, after = ELECTION_TABLE.may, ELECTION_TABLE.after
