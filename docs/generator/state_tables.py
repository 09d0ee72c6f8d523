"""States, and the events that move something between them, as tables of a page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zvault.core.transitions import LabelledState, StateTransition


def states(of: Iterable[LabelledState]) -> str:
    """Each state and what it means."""
    rows = [f"| {state.label} | {state.meaning} |" for state in of]
    return "\n".join(["| state | what it means |", "|---|---|", *rows, ""])


def transitions(rows: Iterable[StateTransition[Any, Any]]) -> str:
    """Each event, from where to where it leads, and when it happens."""
    lines = [
        f"| {row.event.value} | {', '.join(state.label for state in row.sources)} | {row.target.label}"
        f" | {row.meaning} |"
        for row in rows
    ]
    return "\n".join(["| event | from | to | when |", "|---|---|---|---|", *lines, ""])
