"""zvaultctl browse's screen: what keys do, and that a frame fits any terminal and hostile names control none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.cli.browser.frame import count_page_lines, draw_browse_frame, format_difference_lines
from zvault.cli.browser.screen import FeedRing
from zvault.cli.browser.state import (
    BrowseWalk,
    DifferenceView,
    NamesView,
    VersionsView,
    WantedDifference,
    WantedPast,
    WantedRestore,
)
from zvault.core.errors import DiskAway, ZvaultError
from zvault.core.integrity.verification import escape_path

NAME = escape_path(b"\x1b]0;owned\x07\n\xff")


def version(number: int, kind: str | None = "f", **changed: Any) -> Any:
    return {
        "state": "changed" if kind else "vanished",
        "kind": kind,
        "size": 4 if kind else None,
        "mtime": 1.0 if kind else None,
        "link": None,
        "from": number * 100,
        "until": number * 100 + 50,
        "first": f"s{number}",
        "last": f"s{number}",
        "source": 0,
        "vault": 1,
        "source_snapshot": None,
        "vault_snapshot": f"cold/a@s{number}",
        "restore": None,
        **changed,
    }


def past(path: str, *versions: Any, names: Any = ()) -> Any:
    return {
        "backup": "tank",
        "dataset": "tank/a",
        "vault_dataset": "cold/a",
        "path": path,
        "snapshots": 3,
        "versions": list(versions),
        "names": [
            {"name": name, "there": there, "versions": 2, "newest": newest} for name, there, newest in names
        ],
        "more": False,
        "unread": {},
    }


FOLDER = past(
    "docs",
    version(3, "d"),
    names=[(NAME, False, version(1)), ("deep", True, version(2, "d")), ("file", True, version(3))],
)
FILE = past("docs/file", version(3), version(2, source_snapshot="tank/a@s2"), version(1))


def walk(*views: Any) -> BrowseWalk:
    return BrowseWalk(list(views))


def test_a_folder_and_back() -> None:
    it = walk()
    it.arrive(FOLDER)
    assert it.press("\r", 9) == WantedPast(f"docs/{NAME}")
    it.press("\x1b[B", 9)
    it.press("j", 9)
    assert it.press("\x1b[C", 9) == WantedPast("docs/file")
    it.arrive(FILE)
    assert isinstance(it.view, VersionsView)
    it.press("\x7f", 9)
    assert isinstance(it.view, NamesView)
    assert it.view.at == 2
    assert it.press("h", 9) == WantedPast("")
    it.arrive(past("", version(1, "d"), names=[("docs", True, version(1, "d"))]))
    assert len(it.views) == 1
    assert it.press("\x1b", 9) is None
    assert it.press("q", 9) == "quit"


def test_a_version_is_compared_with_the_one_before_or_a_marked_one() -> None:
    it = walk(VersionsView(FILE))
    assert it.press("\r", 9) == WantedDifference("tank/a@s2", "cold/a@s3", "docs/file")
    it.press("m", 9)
    it.press("G", 9)
    assert it.press("d", 9) == WantedDifference("cold/a@s1", "cold/a@s3", "docs/file")
    it.busy = "comparing"
    assert it.press("d", 9) is None


def test_the_oldest_has_none_before_it() -> None:
    it = walk(VersionsView(FILE, at=2))
    assert it.press("d", 9) is None
    assert "no older version" in it.told


def test_what_is_restored_is_what_was_shown() -> None:
    it = walk(VersionsView(FILE, at=1))
    it.press("r", 9)
    for key in "/rescuX":
        it.press(key, 9)
    it.press("\x7f", 9)
    it.press("e", 9)
    assert "zvaultctl restore tank cold/a@s2 /rescue --file docs/file" in [
        line.text for line in draw_browse_frame(it, 200, 30)
    ]
    assert it.press("\r", 9) == WantedRestore("tank", "cold/a@s2", "docs/file", "/rescue")


def test_the_next_vault_is_a_key_away_where_there_is_one() -> None:
    it = walk(VersionsView(FILE))
    assert it.press("n", 9) is None
    it.several = True
    title, *rest = (line.text for line in draw_browse_frame(it, 200, 30))
    assert "n next vault" in " ".join(rest)
    assert it.press("n", 9) == "next vault"
    it.anew = True
    it.arrive({**FILE, "backup": "tank@shelf"})
    assert len(it.views) == 1
    title, *_ = (line.text for line in draw_browse_frame(it, 200, 30))
    assert ", vault shelf, " in title
    it.anew = True
    it.fail("the disk is not there")
    assert (len(it.views), it.told, it.anew) == (1, "the disk is not there", False)


class Feed:
    """Notes what it is asked for; it cannot look into anything where it ``fails``."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.asked = fails, list[object]()
        self.error: ZvaultError | None = None

    def start(self) -> None:
        self.asked.append("start")

    def look_anew(self, dataset: str, wanted: WantedPast) -> None:
        self.asked.append((dataset, wanted))
        self.error = DiskAway("the disk is not there") if self.fails else None


def test_a_vault_that_cannot_be_looked_into_leaves_the_one_before_on_the_screen() -> None:
    feeds: Any = [Feed(), Feed(fails=True), Feed()]
    ring, it = FeedRing(feeds), walk(VersionsView(FILE))
    for shown in (0, 0):
        ring.ask_next(it)
        assert feeds[1].asked[-1] == ("tank/a", WantedPast("docs/file"))
        ring.go_back_on_error(it)
        assert ring.feed is feeds[shown]
    feeds[1].fails = False
    for shown in (1, 2, 0):
        ring.ask_next(it)
        ring.go_back_on_error(it)
        assert ring.feed is feeds[shown]
    assert [feed.asked.count("start") for feed in feeds] == [1, 0, 0]
    feeds[0].error = DiskAway("the disk is not there")
    with pytest.raises(DiskAway):
        FeedRing(feeds).go_back_on_error(walk())


def test_what_the_vault_does_not_have_is_told() -> None:
    it = walk(VersionsView(past("docs/file", version(3, vault_snapshot=None), version(2, None))))
    it.press("r", 9)
    assert it.to is None
    assert "the vault does not have this version" in it.told
    it.press("j", 9)
    it.press("r", 9)
    assert it.told == "it is not there in this version"


def test_no_relative_folder_and_esc() -> None:
    it = walk(VersionsView(FILE))
    for key in ("r", "x", "\r"):
        assert it.press(key, 9) is None
    assert it.told == "a folder begins with a slash"
    it.press("r", 9)
    it.press("q", 9)
    assert it.to == "q"
    it.press("\x1b", 9)
    assert it.to is None


DIFF: Any = {
    "backup": "tank",
    "dataset": "tank/a",
    "path": "docs",
    "old": {"snapshot": "cold/a@s1", "side": "vault", "creation": 1},
    "new": {"snapshot": "cold/a@s2", "side": "vault", "creation": 2},
    "by": "walk",
    "why": "they are on different sides",
    "changes": [{"change": "renamed", "kind": "f", "path": NAME, "to": "b", "what": ["mode"]}] * 30,
    "more": 7,
    "content": None,
}


def test_differences_are_scrolled() -> None:
    it = walk(VersionsView(FILE))
    lines = format_difference_lines(DIFF)
    assert lines[0] == f"renamed   {NAME} -> b (mode)"
    assert lines[-1] == "and 7 changes more"
    it.compared(DIFF, lines)
    it.press(" ", 9)
    assert isinstance(it.view, DifferenceView)
    assert it.view.at == 9
    it.press("\x1b[A", 9)
    assert it.view.at == 8
    content = {**DIFF, "content": {"state": "differs", "why": "", "lines": ["+a\x1b[2J"], "more": 0}}
    assert format_difference_lines(content) == ("+a\\x1b[2J",)


@given(
    st.integers(1, 200),
    st.integers(1, 50),
    st.sampled_from(
        [NamesView(FOLDER, at=2), VersionsView(FILE, at=1, marked=0), DifferenceView(DIFF, ("x" * 300,) * 90)]
    ),
    st.text(max_size=90),
    st.sampled_from([None, "/re\x1bscue"]),
)
def test_a_frame_fits(columns: int, rows: int, view: Any, told: str, to: str | None) -> None:
    it = BrowseWalk([view], told=told, busy=told[:9], to=to)
    lines = draw_browse_frame(it, columns, rows)
    assert len(lines) <= rows
    assert all(len(line.text) <= columns for line in lines)
    assert all(line.text.isprintable() for line in lines)
    assert count_page_lines(it, columns, rows) >= 1
    if rows >= 4 and not isinstance(view, DifferenceView):
        assert any(line.chosen for line in lines)
