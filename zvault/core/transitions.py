"""States, the events that move something between them, and the complete table of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar


class LabelledState(Enum):
    """The base of an enumeration of states. A member has a ``label`` and a ``meaning``."""

    def __init__(self, label: str, meaning: str) -> None:
        self.label = label
        self.meaning = meaning


S = TypeVar("S", bound=LabelledState)
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class StateTransition(Generic[S, E]):
    """One row of a table: an event, named by its value, leads from any of the ``sources`` to the ``target``."""

    event: E
    sources: tuple[S, ...]
    target: S
    meaning: str


class IllegalTransition(Exception):
    """An event that the table does not allow in this state: a bug in zvault."""


class TransitionTable(dict[tuple[S, E], S]):
    """A table of where each event leads from each state in which it may happen; ``what`` says of what, in an error."""

    def __init__(self, what: str, rows: Iterable[StateTransition[S, E]]) -> None:
        super().__init__({(source, row.event): row.target for row in rows for source in row.sources})
        self._what = what

    def may(self, state: S, event: E) -> bool:
        """True if the table allows this event in this state."""
        return (state, event) in self

    def after(self, state: S, event: E) -> S:
        """The state that an event leads to. Raises IllegalTransition."""
        if not self.may(state, event):
            raise IllegalTransition(f"{event.value!r} happened to {self._what} that is {state.label}")
        return self[state, event]
