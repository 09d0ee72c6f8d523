"""Events for tests that care for a few of their fields only."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from zvault.api.events import EVENT_KINDS, RunEvent, make_event_document


def make_event(name: str, /, run: str = "r1", backup: str = "b", time: float = 0.0, **some: Any) -> RunEvent:
    """An event of a kind, by its name, with ``some`` of its fields; the others are empty. ``from`` is its field too."""
    kind = EVENT_KINDS[name]
    hints = get_type_hints(kind)
    given = {"from_" if key == "from" else key: value for key, value in some.items()}
    blank = {one.name: _blank(hints[one.name]) for one in fields(kind) if one.default is MISSING}
    return kind(**{**blank, **given, "run": run, "backup": backup, "time": time})


def split_event(event: RunEvent) -> tuple[str, dict[str, Any]]:
    """The name of an event, and its own fields as its document has them."""
    document = make_event_document(event)
    return event.name, {
        key: value for key, value in document.items() if key not in {"event", "run", "backup", "time"}
    }


def _blank(hint: Any) -> Any:
    if get_origin(hint) is UnionType:
        return None if NoneType in get_args(hint) else _blank(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    return {} if isinstance(hint, type) and issubclass(hint, dict) else (get_origin(hint) or hint)()
