"""One frame of the screen of ``zvaultctl browse``: lines for so many columns and rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zvault.api.browse import DiffDocument, StretchDocument
from zvault.cli.browser.state import BrowseWalk, DifferenceView, NamesView, VersionsView
from zvault.cli.event_text import format_plural
from zvault.cli.output import RED, YELLOW, clean_line
from zvault.cli.plot import break_text
from zvault.cli.screen_columns import ScreenColumn, ScreenLine, fit_columns
from zvault.cli.tables import format_cell
from zvault.core.integrity.path_text import escape_file_line, format_restore_command, parse_shown_path
from zvault.core.names import split_snapshot

FILE_KIND_WORDS = {
    "f": "file",
    "d": "folder",
    "l": "link",
    "p": "pipe",
    "s": "socket",
    "b": "block device",
    "c": "character device",
}

NARROW_SCREEN = 40
"""Columns below which days are told, and no times."""

_COLOURS = {"vanished": YELLOW}


def draw_browse_frame(walk: BrowseWalk, columns: int, rows: int) -> list[ScreenLine]:
    """The lines, none longer than ``columns`` and no more than ``rows``: a title, what is chosen from, what is said."""
    title, keys = _title(walk), _keys(walk)
    foot = [ScreenLine(piece) for piece in break_text(keys, columns)]
    said = [*_said(walk, columns)]
    # What was chosen stays to be seen on the smallest screen.
    said, foot = said[: max(0, rows - 3)], foot[: max(0, rows - 3 - len(said))]
    room = max(1, rows - 1 - len(said) - len(foot))
    body = _body(walk, columns, room)
    lines = [ScreenLine(title[:columns]), *body, *said, *foot]
    return [replace(line, text=line.text[:columns]) for line in lines[:rows]]


def count_page_lines(walk: BrowseWalk, columns: int, rows: int) -> int:
    """Return how many lines a page has."""
    return max(1, rows - 3 - len(break_text(_keys(walk), columns)) - len(_said(walk, columns)))


def _title(walk: BrowseWalk) -> str:
    match walk.view:
        case None:
            return "zvaultctl browse"
        case DifferenceView(found):
            old, new = (split_snapshot(found[side]["snapshot"])[1] or "" for side in ("old", "new"))
            return clean_line(f"/{found['path']}: @{old} -> @{new}")
        case view:
            past = view.past
            up = ", the vault is kept up" * (
                past["vault_dataset"] is not None and "vault" not in past["unread"]
            )
            vault = f", vault {past['backup'].rpartition('@')[2]}" * walk.several
            count = format_plural(past["snapshots"], "snapshot")
            return f"/{past['path']} of {past['dataset']}{vault}, {count}{up}"


def _keys(walk: BrowseWalk) -> str:
    if walk.to is not None:
        return "Enter restores, Esc does not"
    match walk.view:
        case NamesView():
            return f"Enter opens, Left goes back, v its own versions{_next_vault(walk)}, q quits"
        case VersionsView():
            told = "Enter differences to the one before, m marks one to compare with, r restores, Left back"
            return f"{told}{_next_vault(walk)}, q quits"
        case DifferenceView():
            return "Left goes back, q quits"
    return "q quits"


def _next_vault(walk: BrowseWalk) -> str:
    return ", n next vault" * walk.several


def _said(walk: BrowseWalk, columns: int) -> list[ScreenLine]:
    found = []
    if walk.to is not None and isinstance(walk.view, VersionsView):
        view = walk.view
        snapshot, path = view.chosen["vault_snapshot"] or "", parse_shown_path(view.past["path"])
        command = format_restore_command(view.past["backup"], snapshot, path, walk.to or "FOLDER")
        found += [ScreenLine(piece) for piece in break_text(clean_line(command), columns)]
        found += [
            ScreenLine(piece)
            for piece in break_text(f"restore into the folder: {clean_line(walk.to)}_", columns)
        ]
    if walk.busy:
        found += [ScreenLine(piece) for piece in break_text(clean_line(walk.busy), columns)[:2]]
    if walk.told:
        found += [ScreenLine(piece, YELLOW) for piece in break_text(clean_line(walk.told), columns)]
    return found


def _body(walk: BrowseWalk, columns: int, room: int) -> list[ScreenLine]:
    match walk.view:
        case NamesView() as names:
            return _names(names, columns, room)
        case VersionsView() as versions:
            return _versions(versions, columns, room)
        case DifferenceView() as view:
            shown = view.lines[view.at : view.at + room]
            return [ScreenLine(text, _line_colour(text) if view.found["content"] else None) for text in shown]
    return []


def _window(count: int, at: int, room: int) -> range:
    """The rows that are on the screen: the chosen one is in the middle, but for the ends."""
    first = max(0, min(at - room // 2, count - room))
    return range(first, min(count, first + room))


def _names(view: NamesView, columns: int, room: int) -> list[ScreenLine]:
    seen = _window(view.count, view.at, max(1, room - 1))
    found = [view.past["names"][number] for number in seen]
    newest = [one["newest"] for one in found]
    states = ["there" if one["there"] else "vanished" for one in found]
    figures = [
        ScreenColumn(
            "NAME", [one["name"] + "/" * (one["newest"]["kind"] == "d") for one in found], 0, right=False
        ),
        ScreenColumn("STATE", states, 1, right=False),
        ScreenColumn("VERSIONS", [str(one["versions"]) for one in found], 2),
        ScreenColumn(
            "MODIFIED", [format_cell(one["mtime"], "time", False) for one in newest], 3, right=False
        ),
        ScreenColumn("SIZE", [format_cell(one["size"], "size", False) for one in newest], 4),
        ScreenColumn("UNTIL", [format_cell(one["until"], "time", False) for one in newest], 5, right=False),
        ScreenColumn("FROM", [format_cell(one["from"], "time", False) for one in newest], 6, right=False),
        ScreenColumn("KIND", [_kind(one) for one in newest], 7, right=False),
    ]
    return _chosen(figures, states, columns, view.at - seen.start)


def _versions(view: VersionsView, columns: int, room: int) -> list[ScreenLine]:
    seen = _window(view.count, view.at, max(1, room - 1))
    found = [view.past["versions"][number] for number in seen]
    states: list[str] = [one["state"] for one in found]
    marks = ["*" if number == view.marked else " " for number in seen]
    figures = [
        ScreenColumn(
            "  STATE", [f"{mark} {state}" for mark, state in zip(marks, states, strict=True)], 0, right=False
        ),
        ScreenColumn("FROM", [_when(one["from"], columns) for one in found], 1, right=False),
        ScreenColumn("SIZE", [format_cell(one["size"], "size", False) for one in found], 2),
        ScreenColumn("MODIFIED", [format_cell(one["mtime"], "time", False) for one in found], 3, right=False),
        ScreenColumn("UNTIL", [format_cell(one["until"], "time", False) for one in found], 4, right=False),
        ScreenColumn("SOURCE/VAULT", [f"{one['source']}/{one['vault']}" for one in found], 5),
        ScreenColumn("LAST SNAPSHOT", [one["last"] for one in found], 6, right=False),
        ScreenColumn("LINK TO", [one["link"] or "-" for one in found], 7, right=False),
    ]
    return _chosen(figures, states, columns, view.at - seen.start)


def _when(moment: float, columns: int) -> str:
    """A time; on a narrow screen the day, without its year."""
    text = format_cell(moment, "time", False)
    return text if columns >= NARROW_SCREEN else text[5:10]


def _kind(one: StretchDocument) -> str:
    return FILE_KIND_WORDS.get(one["kind"] or "", one["kind"] or "-")


def _chosen(
    figures: Sequence[ScreenColumn], states: Sequence[str], columns: int, at: int
) -> list[ScreenLine]:
    lines = list(fit_columns(figures, [_COLOURS.get(state) for state in states], columns))
    if states:
        wide = max(len(line.text) for line in lines)
        # The word is not by colour alone: the chosen line is in reverse as far as the table reaches.
        lines[at + 1] = replace(lines[at + 1], text=lines[at + 1].text.ljust(wide), chosen=True)
    return lines


def format_difference_lines(found: DiffDocument) -> tuple[str, ...]:
    """Show what differs, as lines of any length."""
    content = found["content"]
    if content is not None:
        return format_content_lines(found)
    if not found["changes"]:
        return ("nothing differs",)
    lines = [_change(one["change"], one["path"], one["to"], one["what"]) for one in found["changes"]]
    more = [f"and {format_plural(found['more'], 'change')} more"] if found["more"] else []
    return (*lines, *more)


def format_content_lines(found: DiffDocument) -> tuple[str, ...]:
    """Show what differs of the content of one file."""
    content = found["content"]
    assert content is not None  # noqa: S101 - asked only where there is one
    head = {
        "same": ["the content is the same"],
        "binary": ["the content differs: it is no text"],
        "unknown": [f"the content is not compared: {clean_line(content['why'])}"],
        "differs": [],
    }[content["state"]]
    more = [f"and {format_plural(content['more'], 'line')} more"] if content["more"] else []
    return (*head, *(escape_file_line(line) for line in content["lines"]), *more)


def _change(change: str, path: str, to: str | None, what: Sequence[str]) -> str:
    told = f" ({', '.join(what)})" if what else ""
    return f"{change:8}  {path}{f' -> {to}' if to is not None else ''}{told}"


def _line_colour(text: str) -> str | None:
    """Of a line of a unified diff: what went and what came, which the sign at its beginning says too."""
    if text.startswith("-") and not text.startswith("---"):
        return RED
    return YELLOW if text.startswith("+") and not text.startswith("+++") else None
