"""Where somebody is who walks through the past of a path, and what a key does there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from zvault.api.browse import DiffDocument, PastDocument, StretchDocument
from zvault.core.integrity.path_text import unshown

UP = {"\x1b[A", "\x1bOA", "k"}
DOWN = {"\x1b[B", "\x1bOB", "j"}
PAGE_UP, PAGE_DOWN = {"\x1b[5~"}, {"\x1b[6~", " "}
FIRST, LAST = {"\x1b[H", "\x1bOH", "\x1b[1~", "g"}, {"\x1b[F", "\x1bOF", "\x1b[4~", "G"}
ENTER = {"\r", "\n", "\x1b[C", "\x1bOC", "l"}
BACK = {"\x7f", "\x08", "\x1b", "\x1b[D", "\x1bOD", "h"}
QUIT = {"q", "Q", "\x04", ""}
"""Keys that end it: Ctrl-D and the end of the terminal, too. Ctrl-C is a signal."""


@dataclass(frozen=True, slots=True)
class Look:
    """Wanted: the past of a path (as it is shown), below the dataset's root."""

    path: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Wanted: what differs of a path between two snapshots."""

    old: str
    new: str
    path: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Wanted: a path of a snapshot of the vault, in a folder."""

    snapshot: str
    path: str
    to: str


Quit = Literal["quit"]
Wanted = Look | Compare | Restore | Quit | None


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a folder; ``at`` is the chosen one."""

    past: PastDocument
    at: int = 0

    @property
    def count(self) -> int:
        """The number of lines to choose from."""
        return len(self.past["names"])


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a path, the newest first; ``marked`` is one to compare another with."""

    past: PastDocument
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
class Difference:
    """The differences between two snapshots; ``at`` is the first line that is shown."""

    found: DiffDocument
    lines: tuple[str, ...]
    at: int = 0

    @property
    def count(self) -> int:
        return len(self.lines)


View = Names | Versions | Difference


@dataclass
class Walk:
    """The views, one above the other, the last is on the screen; ``told`` is what there is to say, ``busy`` what is
    waited for. While a folder to restore into is asked for, ``to`` is what was typed.
    """

    views: list[View] = field(default_factory=list)
    told: str = ""
    busy: str = ""
    to: str | None = None

    @property
    def view(self) -> View | None:
        """The view that is on the screen."""
        return self.views[-1] if self.views else None

    def arrive(self, past: PastDocument) -> None:
        """A path was looked at."""
        self.busy = ""
        self.told = "; ".join(f"{what} was not looked into: {why}" for what, why in past["unread"].items())
        view = Names(past) if past["names"] or _is_folder(past) else Versions(past)
        here = self.view
        # A step up replaces where one came from.
        if here is not None and not isinstance(here, Difference) and _is_above(past, here.past):
            self.views = []
        self.views.append(view)

    def compared(self, found: DiffDocument, lines: tuple[str, ...]) -> None:
        """Two snapshots were compared."""
        self.busy = ""
        self.told = f"not by 'zfs diff': {found['why']}" if found["why"] else ""
        self.views.append(Difference(found, lines))

    def fail(self, text: str) -> None:
        """Something that was wanted cannot be had."""
        self.busy, self.told = "", text

    def press(self, key: str, page: int) -> Wanted:
        """Do what a key means, and return what has to be asked for; ``page`` is how many lines the screen has room
        for.
        """
        if self.to is not None:
            return self._type(key)
        if key in QUIT:
            return "quit"
        if (view := self.view) is None:
            return None
        if (at := _moved(view, key, page)) is not None:
            self.views[-1] = replace(view, at=at)
            return None
        return self._back(view) if key in BACK else self._act(view, key)

    def _act(self, view: View, key: str) -> Wanted:
        if self.busy or isinstance(view, Difference):
            return None
        self.told = ""
        return self._in_folder(view, key) if isinstance(view, Names) else self._in_versions(view, key)

    def _back(self, view: View) -> Wanted:
        if len(self.views) > 1:
            self.views.pop()
            self.told = ""
            return None
        path = "" if isinstance(view, Difference) else view.past["path"]
        return Look(path.rpartition("/")[0]) if path and not self.busy else None

    def _in_folder(self, view: Names, key: str) -> Wanted:
        if key == "v":
            self.views.append(Versions(view.past))
        elif key in ENTER and view.count:
            return Look(below(view.past, view.past["names"][view.at]["name"]))
        return None

    def _in_versions(self, view: Versions, key: str) -> Wanted:
        if key == "m":
            self.views[-1] = replace(view, marked=None if view.marked == view.at else view.at)
        elif key == "r":
            if view.chosen["vault_snapshot"] is None or view.chosen["kind"] is None:
                self.told = self._not_in_the_vault(view)
            else:
                self.to = ""
        elif key in ENTER or key == "d":
            other = view.at + 1 if view.marked is None else view.marked
            if other >= view.count or other == view.at:
                self.told = "there is no older version: mark another one with m, and press d here"
                return None
            old, new = sorted((other, view.at), reverse=True)
            versions = view.past["versions"]
            return Compare(nearest(versions[old]), nearest(versions[new]), view.past["path"])
        return None

    @staticmethod
    def _not_in_the_vault(view: Versions) -> str:
        one = view.chosen
        if one["kind"] is None:
            return "it is not there in this version"
        return (
            f"the vault does not have this version: copy it from @{one['last']} on the source (.zfs/snapshot)"
        )

    def _type(self, key: str) -> Wanted:
        """A key while the folder to restore into is typed."""
        view, to = self.view, self.to or ""
        if key in {"\r", "\n"} and to and isinstance(view, Versions):
            snapshot = view.chosen["vault_snapshot"]
            self.to = None
            if not to.startswith("/"):
                self.told = "a folder begins with a slash"
                return None
            return None if snapshot is None else Restore(snapshot, view.past["path"], to)
        if key in {"\x1b", "\x04", ""}:
            self.to = None
        elif key in {"\x7f", "\x08"}:
            self.to = to[:-1]
        elif key.isprintable():
            self.to = to + key
        return None


def _moved(view: View, key: str, page: int) -> int | None:
    """Where the cursor is after a key; None where the key is none that moves it."""
    steps: Mapping[str, int] = {
        **dict.fromkeys(UP, -1),
        **dict.fromkeys(DOWN, 1),
        **dict.fromkeys(PAGE_UP, -page),
        **dict.fromkeys(PAGE_DOWN, page),
        **dict.fromkeys(FIRST, -view.count),
        **dict.fromkeys(LAST, view.count),
    }
    return None if key not in steps else max(0, min(view.count - 1, view.at + steps[key]))


def below(past: PastDocument, name: str) -> str:
    """A name in a folder as a path, both as they are shown."""
    return f"{past['path']}/{name}" if past["path"] else name


def nearest(version: StretchDocument) -> str:
    """The newest snapshot that has a version, on the source if there is one."""
    found = version["source_snapshot"] or version["vault_snapshot"]
    assert found is not None  # noqa: S101 - it is in one
    return found


def plain(path: str) -> str:
    """A path that is shown as the API takes it."""
    return unshown(path).decode(errors="surrogateescape")


def _is_folder(past: PastDocument) -> bool:
    kinds = [one["kind"] for one in past["versions"] if one["kind"] is not None]
    return kinds[:1] == ["d"]


def _is_above(past: PastDocument, here: PastDocument) -> bool:
    return here["path"] != past["path"] and here["path"].rpartition("/")[0] == past["path"]
