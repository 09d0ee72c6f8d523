"""The status page in a real Chromium, from the real process that serves it: on the host, where there is a browser."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import page_pictures
import pytest
from browser import Browser

from tests.unit.daemon.page.page_documents import (
    backup,
    backup_page,
    dataset_page,
    every_condition,
    files_page,
    found,
    overview,
    run_page,
    vault,
    verdict,
)
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.server import WebServer

LAB = {"where": "host"}

GONE = every_condition("vault")[0]

TARGETS = (
    "/",
    "/backup?name=home",
    "/dataset?backup=home&name=tank",
    "/files?mount=0a",
    "/run?id=r1",
    "/runbook?name=ZvaultBackupLate",
)

EVIL = "<script>window.evil=1</script><img src=x onerror=window.evil=1>"

AXE = """
axe.run(document, {resultTypes: ["violations", "incomplete"]}).then(found => done(
  [...found.violations, ...found.incomplete.filter(it => it.impact !== null && it.id !== "color-contrast")]
    .map(it => it.id + ": " + it.help + ": " + it.nodes.map(one => one.html).slice(0, 3).join(" ")).concat(
      found.passes.length ? [] : ["no rule was applied"])), error => done([String(error)]));
"""
"""Has axe-core try all of its rules, and tells which the page breaks (those of WCAG, and of good practice)."""


def axe_core() -> str:
    """The program, which runs in the page."""
    found = find_spec("axe_playwright_python")
    assert found is not None, "make setup"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0], "axe.min.js").read_text(encoding="utf-8")


def troubled() -> Any:
    one = verdict(found(every_condition("backup")[0], "the lag is 10h"))
    gone = verdict(found(GONE, "nbd0 is gone"))
    return overview([backup("home", one), backup("www")], [vault(of=gone)])


SETTINGS = {"page": True, "metrics": False, "files": True}


class Page(WebServer):
    """The process, and what it is told; in a thread of its own."""

    def __init__(self) -> None:
        self.document: Any = overview(running=[])
        self.backup: Any = backup_page(rows=100, total=1000, pages=10)
        self.dataset: Any = dataset_page()
        self.files: Any = files_page()
        super().__init__(
            {
                PageTopic.OVERVIEW: lambda _: json.dumps({**self.document, "now": time.time()}).encode(),
                PageTopic.BACKUP: lambda _: json.dumps(self.backup).encode(),
                PageTopic.DATASET: lambda _: json.dumps(self.dataset).encode(),
                PageTopic.FILES: lambda _: json.dumps(self.files).encode(),
                PageTopic.RUN: lambda _: json.dumps(run_page()).encode(),
            }
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._do(self.listen("127.0.0.1", 0, {**SETTINGS, "zone": "Europe/Vienna"}))
        self.url = f"http://127.0.0.1:{self.port}"

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def end(self) -> None:
        self._do(self.close())
        self._loop.call_soon_threadsafe(self._loop.stop)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    it = Browser()
    yield it
    it.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    it = Page()
    yield it
    # What it complains of when a page's server ends is no complaint of the next page.
    browser.open("about:blank")
    browser.console()
    it.end()


def eventually(look: Callable[[], object]) -> None:
    end = time.monotonic() + 240
    while not look():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("target", TARGETS)
def test_it_fits_can_be_read_and_nothing_is_complained_of(
    browser: Browser, page: Page, target: str, width: int, dark: bool
):
    page.document = troubled()
    browser.look(width, dark=dark)
    browser.open(page.url + target)
    assert browser.script("return document.documentElement.scrollWidth") <= width
    browser.script(axe_core())
    assert browser.script_later(AXE) == []
    assert browser.console() == []


def test_what_changes_is_put_in_without_loading_anew(browser: Browser, page: Page):
    browser.open(page.url)
    browser.script("window.same = 1")
    assert "all is well" in browser.script("return document.body.innerText")
    page.document = troubled()
    eventually(lambda: GONE.says in browser.script("return document.body.innerText"))
    assert browser.script("return document.title").startswith("critical")
    page.document = overview()
    eventually(lambda: "tries again" in browser.script("return document.getElementById('running').innerText"))
    assert browser.script("return window.same") == 1
    eventually(lambda: browser.script("return document.getElementById('silent').hidden"))
    assert browser.console() == []


PICTURES = {
    "page": ("/", 1000, None, "tank/mail is 9h 12m"),
    "backup": ("/backup?name=mail", 1000, None, "tank/mail is 9h 12m"),
    "dataset": ("/dataset?backup=mail&name=tank/mail/anna", 1000, 760, "the next run prunes"),
}
"""Those in docs/pictures: what is shown, how wide, how much of it from its top, and words that are there.

`make pictures` takes them anew.
"""


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_docs_can_be_taken(browser: Browser, page: Page, tmp_path: Path, name: str):
    target, width, height, words = PICTURES[name]
    page.document, page.backup = page_pictures.first_page(), page_pictures.backups_page()
    page.dataset = page_pictures.datasets_page(tmp_path)
    browser.look(width, dark=False)
    browser.open(page.url + target)
    assert words in browser.script("return document.body.innerText")
    assert browser.console() == []
    picture = browser.picture(height)
    assert picture.startswith(b"\x89PNG")
    if wanted := os.environ.get("ZVAULT_PICTURES"):
        Path(wanted, f"{name}.png").write_bytes(picture)


def test_silence_is_told(browser: Browser, page: Page):
    browser.open(page.url)
    assert page.process is not None
    os.kill(page.process.pid, signal.SIGKILL)
    eventually(lambda: not browser.script("return document.getElementById('silent').hidden"))
    assert "has not been heard of since" in browser.script("return document.body.innerText")
    browser.console()


def test_names_are_no_markup(browser: Browser, page: Page):
    page.document = overview([backup(EVIL, text=EVIL)], [vault(EVIL, text=EVIL)], text=EVIL)
    browser.open(page.url)
    eventually(lambda: EVIL in browser.script("return document.getElementById('running').innerText"))
    time.sleep(3)
    assert browser.script("return window.evil === undefined && document.images.length === 0")
    assert browser.script("return document.scripts.length") == 1
    assert browser.console() == []


def test_the_keyboard_reaches_every_link_in_order(browser: Browser, page: Page):
    page.document = troubled()
    browser.open(page.url)
    links = browser.script("return [...document.links].map(one => one.getAttribute('href'))")
    reached = []
    for _ in range(len(links) + 10):
        browser.tab()
        reached.append(browser.script("return document.activeElement.getAttribute('href')"))
        if len([one for one in reached if one]) == len(links):
            break
    assert [one for one in reached if one] == links
    assert links[0] == "#main"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.script(outline) == "solid"


def test_a_thousand_backups_are_there_in_seconds(browser: Browser, page: Page):
    page.document = overview([backup(f"b{one}") for one in range(1000)])
    began = time.monotonic()
    browser.open(page.url)
    print(f"{time.monotonic() - began:.1f} s")
    assert "And 800 more" in browser.script("return document.getElementById('backups').innerText")
    assert browser.script("return document.querySelectorAll('#backups tbody tr').length") == 200
    assert browser.console() == []


def test_without_scripts_all_of_it_is_there(page: Page):
    page.document = troubled()
    browser = Browser(scripts=False)
    try:
        browser.open(page.url)
        text = browser.script("return document.body.innerText")
        for word in ("critical", GONE.says, "tries again", "within max_lag", "The last year"):
            assert word in text
        assert browser.script("return document.querySelector('noscript meta') !== null")
    finally:
        browser.close()
