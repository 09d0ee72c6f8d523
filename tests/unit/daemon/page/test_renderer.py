"""The pages' HTML: nothing that others say gets into it as markup, and every state stands there in words."""

from __future__ import annotations

import functools
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from tests.unit.daemon.page.page_documents import (
    NOW,
    WELL,
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
from tests.unit.examples import cases
from zvault.core.health.verdict import SUBJECT_KINDS, SubjectKind
from zvault.daemon.page.renderer import LIVE_PARTS, PageRenderer
from zvault.daemon.page.runbooks import Runbooks


@functools.cache
def renderer() -> PageRenderer:
    """Made by the first test that wants one: it compiles all templates, which takes a tenth of a second."""
    return PageRenderer("Europe/Vienna", Runbooks.read())


EVIL = "<script>alert(1)</script>\"'&{{ 7*7 }}{% if %}<svg onload=x>\u202e\x00]]>"


class Page(HTMLParser):
    """A page taken apart as a browser does: its elements with their attributes, and its text."""

    VOID = ("meta", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def shape(self) -> list[str]:
        """Its elements, without their contents."""
        return [tag for tag, _ in self.elements]


def first(document: object) -> str:
    parts = renderer().parts(document)  # type: ignore[arg-type]
    return renderer().overview(document, parts)  # type: ignore[arg-type]


def pages(text: str) -> list[str]:
    return [
        first(
            overview(
                text=text, backups=[backup(text, verdict(found(every_condition("backup")[0], text)), text)]
            )
        ),
        renderer().backup(backup_page(text)),
        renderer().dataset(dataset_page(text)),
        renderer().files(files_page(text)),
        renderer().files(files_page(text, error=text, entries=[])),
        renderer().run(run_page(text), "20261121T135202-a001"),
    ]


def harmless(html: str) -> Page:
    page = Page(html)
    assert page.open == []
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("src", "href"):
            assert (attributes.get(name) or "/").startswith(("/", "#")), (tag, attributes)
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert all(one.get("src") == "/page.js" for one in scripts)
    assert len(scripts) == html.count("<script")
    assert "style" not in page.shape()
    return page


@functools.cache
def plain_shapes() -> list[list[str]]:
    return [Page(html).shape() for html in pages("a")]


@settings(max_examples=cases(60), deadline=None)
@given(text=st.text(min_size=1, max_size=40))
def test_what_others_say_is_text_and_never_markup(text: str):
    assert [harmless(html).shape() for html in pages(text)] == plain_shapes()


def test_markup_and_templates_in_names_are_shown_as_they_are():
    for html in pages(EVIL):
        assert "<script>alert(1)</script>" in harmless(html).text
        assert "{{ 7*7 }}" in html


@pytest.mark.parametrize("kind", SUBJECT_KINDS)
def test_every_condition_is_told_in_words_with_what_to_do(kind: SubjectKind):
    for condition in every_condition(kind):
        one = found(condition, "the facts of it")
        document = overview(
            [backup(of=verdict(one) if kind == "backup" else WELL)],
            [vault(of=verdict(one) if kind == "vault" else WELL)],
        )
        if kind == "daemon":
            document["status"]["daemon"]["verdict"] = verdict(one)
        text = harmless(first(document)).text
        assert condition.level in text.split("What needs a person")[0]
        assert condition.says in text
        assert "the facts of it" in text
        assert one["next"] in text
        if kind != "daemon":
            assert one["state"] in text


def test_each_condition_that_is_no_mere_unknown_leads_to_a_runbook_that_is_there():
    books = Runbooks.read()
    for kind in SUBJECT_KINDS:
        for condition in every_condition(kind):
            if condition.level != "unknown":
                name = books.of[kind, condition.key]
                assert name in first(overview([backup(of=verdict(found(condition)))])) or kind != "backup"


def test_every_runbook_is_shown_whole():
    books = Runbooks.read()
    assert len(books.texts) > 30
    for name, text in books.texts.items():
        shown = re.sub(r"\W+", "", harmless(renderer().runbook(name)).text)
        for word in re.findall(r"zvaultctl [a-z]+", text):
            assert re.sub(r"\W+", "", word) in shown


def test_all_well_is_said_and_nothing_needs_a_person():
    text = harmless(first(overview(running=[]))).text
    assert "all is well: 1 backup, 1 vault" in text
    assert "What needs a person Nothing." in text


def test_the_worst_is_first_and_what_is_not_known_is_not_called_well():
    late, new = every_condition("backup")[0], found(every_condition("backup")[-1])
    document = overview(
        [
            backup("a"),
            backup("b", verdict(new), lag_seconds=None, proofs=None, last_success=None),
            backup("c", verdict(found(late))),
        ]
    )
    html = renderer().parts(document)["backups"]
    assert [html.index(f"name={name}") for name in "cba"] == sorted(
        html.index(f"name={name}") for name in "abc"
    )
    row = Page(
        "<tr" + next(one for one in html.split("<tr") if "name=b" in one).partition("</tr>")[0] + "</tr>"
    ).text
    assert "unknown of 3h" in row
    assert "never" in row
    assert "ok" not in row.split()


def test_a_thousand_backups_and_datasets_make_no_page_of_megabytes():
    document = overview([backup(f"b{one}") for one in range(1000)], [vault(f"v{one}") for one in range(1000)])
    html = first(document)
    assert len(html) < 1_000_000
    assert "And 800 more" in html
    assert len(json.dumps(renderer().parts(document))) < 1_000_000
    html = renderer().backup(backup_page(rows=100, total=1000, page=3, pages=10))
    assert len(html) < 300_000
    assert "page=2" in html
    assert "page=4" in html


def test_every_table_has_a_caption_and_scopes_and_every_drawing_a_name_or_is_hidden():
    for html in pages("tank"):
        page = harmless(html)
        shape = page.shape()
        assert shape.count("table") == shape.count("caption")
        for tag, attributes in page.elements:
            if tag == "th":
                assert attributes.get("scope") in ("col", "row")
            if tag == "svg":
                assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")
        ids = [one["id"] for _, one in page.elements if "id" in one]
        assert len(ids) == len(set(ids))
        for _, attributes in page.elements:
            if "aria-labelledby" in attributes:
                assert attributes["aria-labelledby"] in ids
        assert shape.count("h1") == 1
        assert shape.count("main") == 1


def test_without_a_past_or_a_schedule_it_says_so():
    text = harmless(first(overview([], [], running=[], week=[], days=[]))).text
    assert "nothing is configured" in text
    assert "Nothing is due by itself." in text
    assert "No run has ended yet." in text


def test_times_are_of_the_configured_zone():
    # 13:52 UTC is 14:52 in Vienna.
    assert "as of 14:52" in Page(first(overview())).text
    assert "as of 13:52" in Page(PageRenderer("UTC", Runbooks()).parts(overview())["state"]).text


@pytest.mark.parametrize("when", [float("1e300"), -5.0, 253402300799.0, 0.0])
def test_a_time_that_is_none_breaks_no_page(when: float):
    document = overview([backup(last_success=when, next_run=when)], now=NOW)
    harmless(first(document))


def test_the_parts_that_are_told_live_are_those_of_the_page():
    html = first(overview())
    live = [one["id"] for _, one in Page(html).elements if "data-live" in one]
    assert live == list(LIVE_PARTS)


def test_what_makes_snapshots_only_is_no_backup_with_a_lag():
    alone = {
        "vault": None,
        "into": None,
        "lag_seconds": None,
        "max_lag_seconds": None,
        "snapshot_age_seconds": 3600.0,
    }
    page = harmless(first(overview(backups=[backup("lab", **alone)])))
    assert "tank, snapshots only" in page.text
    assert "none newest snapshot 1h old" in page.text
    assert "1 source with snapshots only" in page.text
    document = backup_page()
    page = harmless(renderer().backup({**document, "backup": backup("lab", **alone), "datasets": None}))
    assert (
        "It makes snapshots only, and backs nothing up; the newest is 1h old. Nobody has listed them yet."
        in page.text
    )
    page = harmless(renderer().backup({**document, "backup": backup("lab", **alone)}))
    assert "3 in all dataset newest snapshot tank0 now" in page.text
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    assert "/dataset?backup=lab&name=tank0" in links


def test_what_a_vault_costs_is_shown_beside_what_fills_it():
    asked = {"put": 41_204, "get": 0, "list": 0, "delete": 0}
    cost = {"cost": 7.3512, "forecast": 9.6, "currency": "<$>", **asked}
    page = harmless(first(overview(vaults=[vault("cloud", cost=cost)])))
    assert "<$>7.35 this month, <$>9.60 at this pace; 41,204 put; not counted: nbd" in page.text
    assert "this month" not in harmless(first(overview(vaults=[vault("cloud")]))).text


def test_nothing_that_another_end_said_turns_or_hides_what_is_read() -> None:
    template = renderer()._environment.from_string("{{ said }}|{{ ours }}")
    shown = template.render(said="a\x1b[8m<b>\u202e\x9b\n", ours=Markup("<i>\u202fx</i>"))
    assert shown == "a\\x1b[8m&lt;b&gt;\\u202e\\x9b\n|<i>\u202fx</i>"


def test_how_long_a_restore_takes_stands_beside_the_lag_with_what_it_rests_on():
    known = backup()["restore"]
    assert known is not None
    unknown = known | {"seconds": None, "told": "unknown: nothing was read"}
    rows = [
        backup("slow", max_restore_seconds=3600.0),
        backup("new", restore=unknown, max_restore_seconds=3600.0),
        backup("free"),
    ]
    page = harmless(renderer().parts(overview(rows))["backups"])
    assert page.text.count("6h 20m") == 2
    assert "6h 20m of 1h" in page.text
    assert "unknown of 1h" in page.text
    document = backup_page()
    for one, words in (
        (rows[0], "longer than max_restore 6h 20m at 41M/s, by the drill of 3d ago max_restore is 1h"),
        (rows[1], "unknown unknown: nothing was read max_restore is 1h"),
        (backup("quick", max_restore_seconds=30000.0), "within max_restore 6h 20m at 41M/s"),
        (rows[2], "to restore it whole 6h 20m at 41M/s, by the drill of 3d ago"),
    ):
        assert words in harmless(renderer().backup({**document, "backup": one})).text
