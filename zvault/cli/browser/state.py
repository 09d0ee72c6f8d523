"""Where somebody is who walks through the past of a path, and what a key does there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from zvault.api.browse import DiffDocument, PathPastDocument, StretchDocument
from zvault.core.integrity.path_text import parse_shown_path

UP_KEYS = {"\x1b[A", "\x1bOA", "k"}
DOWN_KEYS = {"\x1b[B", "\x1bOB", "j"}
PAGE_UP, PAGE_DOWN = {"\x1b[5~"}, {"\x1b[6~", " "}
FIRST_KEYS, LAST_KEYS = {"\x1b[H", "\x1bOH", "\x1b[1~", "g"}, {"\x1b[F", "\x1bOF", "\x1b[4~", "G"}
ENTER_KEYS = {"\r", "\n", "\x1b[C", "\x1bOC", "l"}
BACK_KEYS = {"\x7f", "\x08", "\x1b", "\x1b[D", "\x1bOD", "h"}
BROWSE_QUIT_KEYS = {"q", "Q", "\x04", ""}
"""Keys that end it: Ctrl-D and the end of the terminal, too. Ctrl-C is a signal."""


@dataclass(frozen=True, slots=True)
class WantedPast:
    """Wanted: the past of a path (as it is shown), below the dataset's root."""

    path: str


@dataclass(frozen=True, slots=True)
class WantedDifference:
    """Wanted: what differs of a path between two snapshots."""

    old: str
    new: str
    path: str


@dataclass(frozen=True, slots=True)
class WantedRestore:
    """Wanted: a path of a snapshot of the backup's vault, in a folder."""

    backup: str
    snapshot: str
    path: str
    to: str


Quit = Literal["quit"]
NextVault = Literal["next vault"]
WalkWish = WantedPast | WantedDifference | WantedRestore | Quit | NextVault | None


@dataclass(frozen=True, slots=True)
class NamesView:
    """The names in a folder; ``at`` is the chosen one."""

    past: PathPastDocument
    at: int = 0

    @property
    def count(self) -> int:
        """The number of lines to choose from."""
        return len(self.past["names"])


@dataclass(frozen=True, slots=True)
class VersionsView:
    """The versions of a path, the newest first; ``marked`` is one to compare another with."""

    past: PathPastDocument
    at: int = 0
    marked: int | None = None

    @property
    def count(self) -> int:
        """The number of lines to choose from."""
        return len(self.past["versions"])

    @property
    def chosen(self) -> StretchDocument:
        """The version on which the cursor is."""
        return self.past["versions"][self.at]


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """The differences between two snapshots; ``at`` is the first line that is shown."""

    found: DiffDocument
    lines: tuple[str, ...]
    at: int = 0

    @property
    def count(self) -> int:
        return len(self.lines)


WalkView = NamesView | VersionsView | DifferenceView


@dataclass
class BrowseWalk:
    """The views, one above the other, the last is on the screen; ``told`` is what there is to say, ``busy`` what is
    waited for. While a folder to restore into is asked for, ``to`` is what was typed. ``several``: the backup has other
    vaults too, and the next one is a key away; ``anew``: what arrives next is of that one, and all before it goes.
    """

    views: list[WalkView] = field(default_factory=list)
    told: str = ""
    busy: str = ""
    to: str | None = None
    several: bool = False
    anew: bool = False

    @property
    def view(self) -> WalkView | None:
        """The view that is on the screen."""
        return self.views[-1] if self.views else None

    def arrive(self, past: PathPastDocument) -> None:
        """A path was looked at."""
        if self.anew:
            self.views, self.anew = [], False
        self.busy = ""
        self.told = "; ".join(f"{what} was not looked into: {why}" for what, why in past["unread"].items())
        view = NamesView(past) if past["names"] or _is_folder(past) else VersionsView(past)
        here = self.view
        # A step up replaces where one came from.
        if here is not None and not isinstance(here, DifferenceView) and _is_above(past, here.past):
            self.views = []
        self.views.append(view)

    def compared(self, found: DiffDocument, lines: tuple[str, ...]) -> None:
        """Two snapshots were compared."""
        self.busy = ""
        self.told = f"not by 'zfs diff': {found['why']}" if found["why"] else ""
        self.views.append(DifferenceView(found, lines))

    def fail(self, text: str) -> None:
        """Something that was wanted cannot be had."""
        self.busy, self.told, self.anew = "", text, False

    def press(self, key: str, page: int) -> WalkWish:
        """Do what a key means, and return what has to be asked for; ``page`` is how many lines the screen has room
        for.
        """
        if self.to is not None:
            return self._type(key)
        if key in BROWSE_QUIT_KEYS:
            return "quit"
        if (view := self.view) is None:
            return None
        if (at := _moved(view, key, page)) is not None:
            self.views[-1] = replace(view, at=at)
            return None
        if key == "n" and self.several and not self.busy and not isinstance(view, DifferenceView):
            return "next vault"
        return self._back(view) if key in BACK_KEYS else self._act(view, key)

    def _act(self, view: WalkView, key: str) -> WalkWish:
        if self.busy or isinstance(view, DifferenceView):
            return None
        self.told = ""
        return self._in_folder(view, key) if isinstance(view, NamesView) else self._in_versions(view, key)

    def _back(self, view: WalkView) -> WalkWish:
        if len(self.views) > 1:
            self.views.pop()
            self.told = ""
            return None
        path = "" if isinstance(view, DifferenceView) else view.past["path"]
        return WantedPast(path.rpartition("/")[0]) if path and not self.busy else None

    def _in_folder(self, view: NamesView, key: str) -> WalkWish:
        if key == "v":
            self.views.append(VersionsView(view.past))
        elif key in ENTER_KEYS and view.count:
            return WantedPast(join_shown_path(view.past, view.past["names"][view.at]["name"]))
        return None

    def _in_versions(self, view: VersionsView, key: str) -> WalkWish:
        if key == "m":
            self.views[-1] = replace(view, marked=None if view.marked == view.at else view.at)
        elif key == "r":
            if view.chosen["vault_snapshot"] is None or view.chosen["kind"] is None:
                self.told = self._not_in_the_vault(view)
            else:
                self.to = ""
        elif key in ENTER_KEYS or key == "d":
            other = view.at + 1 if view.marked is None else view.marked
            if other >= view.count or other == view.at:
                self.told = "there is no older version: mark another one with m, and press d here"
                return None
            old, new = sorted((other, view.at), reverse=True)
            versions = view.past["versions"]
            return WantedDifference(
                find_nearest_snapshot(versions[old]), find_nearest_snapshot(versions[new]), view.past["path"]
            )
        return None

    @staticmethod
    def _not_in_the_vault(view: VersionsView) -> str:
        one = view.chosen
        if one["kind"] is None:
            return "it is not there in this version"
        return (
            f"the vault does not have this version: copy it from @{one['last']} on the source (.zfs/snapshot)"
        )

    def _type(self, key: str) -> WalkWish:
        """A key while the folder to restore into is typed."""
        view, to = self.view, self.to or ""
        if key in {"\r", "\n"} and to and isinstance(view, VersionsView):
            snapshot = view.chosen["vault_snapshot"]
            self.to = None
            if not to.startswith("/"):
                self.told = "a folder begins with a slash"
                return None
            past = view.past
            return None if snapshot is None else WantedRestore(past["backup"], snapshot, past["path"], to)
        if key in {"\x1b", "\x04", ""}:
            self.to = None
        elif key in {"\x7f", "\x08"}:
            self.to = to[:-1]
        elif key.isprintable():
            self.to = to + key
        return None


def _moved(view: WalkView, key: str, page: int) -> int | None:
    """Where the cursor is after a key; None where the key is none that moves it."""
    steps: Mapping[str, int] = {
        **dict.fromkeys(UP_KEYS, -1),
        **dict.fromkeys(DOWN_KEYS, 1),
        **dict.fromkeys(PAGE_UP, -page),
        **dict.fromkeys(PAGE_DOWN, page),
        **dict.fromkeys(FIRST_KEYS, -view.count),
        **dict.fromkeys(LAST_KEYS, view.count),
    }
    return None if key not in steps else max(0, min(view.count - 1, view.at + steps[key]))


def join_shown_path(past: PathPastDocument, name: str) -> str:
    """A name in a folder as a path, both as they are shown."""
    return f"{past['path']}/{name}" if past["path"] else name


def find_nearest_snapshot(version: StretchDocument) -> str:
    """The newest snapshot that has a version, on the source if there is one."""
    found = version["source_snapshot"] or version["vault_snapshot"]
    assert found is not None  # noqa: S101 - it is in one
    return found


def parse_walk_path(path: str) -> str:
    """A path that is shown as the API takes it."""
    return parse_shown_path(path).decode(errors="surrogateescape")


def _is_folder(past: PathPastDocument) -> bool:
    kinds = [one["kind"] for one in past["versions"] if one["kind"] is not None]
    return kinds[:1] == ["d"]


def _is_above(past: PathPastDocument, here: PathPastDocument) -> bool:
    return here["path"] != past["path"] and here["path"].rpartition("/")[0] == past["path"]
