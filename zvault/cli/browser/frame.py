"""One frame of the screen of ``zvaultctl browse``: lines for so many columns and rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zvault.api.browse import DiffDocument, StretchDocument
from zvault.cli.browser.state import Difference, Names, Versions, Walk
from zvault.cli.event_text import plural
from zvault.cli.fitting import Figure, Line, fitted
from zvault.cli.output import RED, YELLOW, clean
from zvault.cli.plot import pieces
from zvault.cli.tables import written
from zvault.core.integrity.path_text import restore_command, unshown, visible
from zvault.core.names import split_snapshot

KINDS = {
    "f": "file",
    "d": "folder",
    "l": "link",
    "p": "pipe",
    "s": "socket",
    "b": "block device",
    "c": "character device",
}

NARROW = 40
"""Columns below which days are told, and no times."""

_COLOURS = {"vanished": YELLOW}


def frame(walk: Walk, columns: int, rows: int) -> list[Line]:
    """The lines, none longer than ``columns`` and no more than ``rows``: a title, what is chosen from, what is said."""
    title, keys = _title(walk), _keys(walk)
    foot = [Line(piece) for piece in pieces(keys, columns)]
    said = [*_said(walk, columns)]
    # What was chosen stays to be seen on the smallest screen.
    said, foot = said[: max(0, rows - 3)], foot[: max(0, rows - 3 - len(said))]
    room = max(1, rows - 1 - len(said) - len(foot))
    body = _body(walk, columns, room)
    lines = [Line(title[:columns]), *body, *said, *foot]
    return [replace(line, text=line.text[:columns]) for line in lines[:rows]]


def page(walk: Walk, columns: int, rows: int) -> int:
    """Return how many lines a page has."""
    return max(1, rows - 3 - len(pieces(_keys(walk), columns)) - len(_said(walk, columns)))


def _title(walk: Walk) -> str:
    match walk.view:
        case None:
            return "zvaultctl browse"
        case Difference(found):
            old, new = (split_snapshot(found[side]["snapshot"])[1] or "" for side in ("old", "new"))
            return clean(f"/{found['path']}: @{old} -> @{new}")
        case view:
            past = view.past
            up = ", the vault is kept up" * (
                past["vault_dataset"] is not None and "vault" not in past["unread"]
            )
            return f"/{past['path']} of {past['dataset']}, {plural(past['snapshots'], 'snapshot')}{up}"


def _keys(walk: Walk) -> str:
    if walk.to is not None:
        return "Enter restores, Esc does not"
    match walk.view:
        case Names():
            return "Enter opens, Left goes back, v its own versions, q quits"
        case Versions():
            return "Enter differences to the one before, m marks one to compare with, r restores, Left back, q quits"
        case Difference():
            return "Left goes back, q quits"
    return "q quits"


def _said(walk: Walk, columns: int) -> list[Line]:
    found = []
    if walk.to is not None and isinstance(walk.view, Versions):
        view = walk.view
        snapshot, path = view.chosen["vault_snapshot"] or "", unshown(view.past["path"])
        command = restore_command(view.past["backup"], snapshot, path, walk.to or "FOLDER")
        found += [Line(piece) for piece in pieces(clean(command), columns)]
        found += [Line(piece) for piece in pieces(f"restore into the folder: {clean(walk.to)}_", columns)]
    if walk.busy:
        found += [Line(piece) for piece in pieces(clean(walk.busy), columns)[:2]]
    if walk.told:
        found += [Line(piece, YELLOW) for piece in pieces(clean(walk.told), columns)]
    return found


def _body(walk: Walk, columns: int, room: int) -> list[Line]:
    match walk.view:
        case Names() as names:
            return _names(names, columns, room)
        case Versions() as versions:
            return _versions(versions, columns, room)
        case Difference() as view:
            shown = view.lines[view.at : view.at + room]
            return [Line(text, _line_colour(text) if view.found["content"] else None) for text in shown]
    return []


def _window(count: int, at: int, room: int) -> range:
    """The rows that are on the screen: the chosen one is in the middle, but for the ends."""
    first = max(0, min(at - room // 2, count - room))
    return range(first, min(count, first + room))


def _names(view: Names, columns: int, room: int) -> list[Line]:
    seen = _window(view.count, view.at, max(1, room - 1))
    found = [view.past["names"][number] for number in seen]
    newest = [one["newest"] for one in found]
    states = ["there" if one["there"] else "vanished" for one in found]
    figures = [
        Figure("NAME", [one["name"] + "/" * (one["newest"]["kind"] == "d") for one in found], 0, right=False),
        Figure("STATE", states, 1, right=False),
        Figure("VERSIONS", [str(one["versions"]) for one in found], 2),
        Figure("MODIFIED", [written(one["mtime"], "time", False) for one in newest], 3, right=False),
        Figure("SIZE", [written(one["size"], "size", False) for one in newest], 4),
        Figure("UNTIL", [written(one["until"], "time", False) for one in newest], 5, right=False),
        Figure("FROM", [written(one["from"], "time", False) for one in newest], 6, right=False),
        Figure("KIND", [_kind(one) for one in newest], 7, right=False),
    ]
    return _chosen(figures, states, columns, view.at - seen.start)


def _versions(view: Versions, columns: int, room: int) -> list[Line]:
    seen = _window(view.count, view.at, max(1, room - 1))
    found = [view.past["versions"][number] for number in seen]
    states: list[str] = [one["state"] for one in found]
    marks = ["*" if number == view.marked else " " for number in seen]
    figures = [
        Figure(
            "  STATE", [f"{mark} {state}" for mark, state in zip(marks, states, strict=True)], 0, right=False
        ),
        Figure("FROM", [_when(one["from"], columns) for one in found], 1, right=False),
        Figure("SIZE", [written(one["size"], "size", False) for one in found], 2),
        Figure("MODIFIED", [written(one["mtime"], "time", False) for one in found], 3, right=False),
        Figure("UNTIL", [written(one["until"], "time", False) for one in found], 4, right=False),
        Figure("SOURCE/VAULT", [f"{one['source']}/{one['vault']}" for one in found], 5),
        Figure("LAST SNAPSHOT", [one["last"] for one in found], 6, right=False),
        Figure("LINK TO", [one["link"] or "-" for one in found], 7, right=False),
    ]
    return _chosen(figures, states, columns, view.at - seen.start)


def _when(moment: float, columns: int) -> str:
    """A time; on a narrow screen the day, without its year."""
    text = written(moment, "time", False)
    return text if columns >= NARROW else text[5:10]


def _kind(one: StretchDocument) -> str:
    return KINDS.get(one["kind"] or "", one["kind"] or "-")


def _chosen(figures: Sequence[Figure], states: Sequence[str], columns: int, at: int) -> list[Line]:
    lines = list(fitted(figures, [_COLOURS.get(state) for state in states], columns))
    if states:
        wide = max(len(line.text) for line in lines)
        # The word is not by colour alone: the chosen line is in reverse as far as the table reaches.
        lines[at + 1] = replace(lines[at + 1], text=lines[at + 1].text.ljust(wide), chosen=True)
    return lines


def difference_lines(found: DiffDocument) -> tuple[str, ...]:
    """Show what differs, as lines of any length."""
    content = found["content"]
    if content is not None:
        return content_lines(found)
    if not found["changes"]:
        return ("nothing differs",)
    lines = [_change(one["change"], one["path"], one["to"], one["what"]) for one in found["changes"]]
    more = [f"and {plural(found['more'], 'change')} more"] if found["more"] else []
    return (*lines, *more)


def content_lines(found: DiffDocument) -> tuple[str, ...]:
    """Show what differs of the content of one file."""
    content = found["content"]
    assert content is not None  # noqa: S101 - asked only where there is one
    head = {
        "same": ["the content is the same"],
        "binary": ["the content differs: it is no text"],
        "unknown": [f"the content is not compared: {clean(content['why'])}"],
        "differs": [],
    }[content["state"]]
    more = [f"and {plural(content['more'], 'line')} more"] if content["more"] else []
    return (*head, *(visible(line) for line in content["lines"]), *more)


def _change(change: str, path: str, to: str | None, what: Sequence[str]) -> str:
    told = f" ({', '.join(what)})" if what else ""
    return f"{change:8}  {path}{f' -> {to}' if to is not None else ''}{told}"


def _line_colour(text: str) -> str | None:
    """Of a line of a unified diff: what went and what came, which the sign at its beginning says too."""
    if text.startswith("-") and not text.startswith("---"):
        return RED
    return YELLOW if text.startswith("+") and not text.startswith("+++") else None
