"""'zvaultctl blockstore probe': what an object store can do, before anything is kept there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zvault.cli.options import AsJson, Exact, Quiet, Store, TableForm, Tabs
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    find_width,
    format_labelled,
    print_document,
    print_lines,
    print_trouble,
)
from zvault.cli.tables import TableColumn, format_cell, format_table
from zvault.cli.verbs import blockstore_place

if TYPE_CHECKING:
    from zvault.object_store.probe import ProbeReport

COLUMNS = [TableColumn("held"), TableColumn("tried"), TableColumn("came")]
SPEEDS = [TableColumn("at_once", "count"), TableColumn("put", "size"), TableColumn("get", "size")]
VERDICTS = [TableColumn("good"), TableColumn("for"), TableColumn("why")]
WORDS = {True: "yes", False: "NO", None: "?"}


def probe(
    place: Store,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave speed out, and try puts at once in a few rounds only.")
    ] = False,
    quiet: Quiet = False,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Try what an object store can do, before anything is kept there, and say what it is good for.

    It puts objects below KEY.probe/ and removes them again: it tries conditional puts, one after the other and by
    twelve at once; parts, overwrites, listings over several pages and removals; whether a changed put is refused;
    versions, their dates and locks; and how fast 8 MiB objects are put and had, 1, 4, 16 and 64 at once, which moves
    some hundreds of MiB. It finds the style and the region by trying. This host keeps the result for 'blockstore info'.

    Exit status: 0 it is good for a block store of one host at least; 1 it is not.
    """
    from zvault.blockstore.reached_store import make_s3_settings
    from zvault.object_store import conditions
    from zvault.object_store import probe as it

    found = blockstore_place.find_store(place)
    settings = make_s3_settings(found.spec)
    writers = None
    if found.spec.lease_bucket != found.spec.bucket:
        from dataclasses import replace

        writers = replace(settings, bucket=found.spec.lease_bucket)
    report = it.probe_store(
        settings,
        f"{found.spec.key}.probe/",
        writers=writers,
        rounds=conditions.ROUNDS if quick else conditions.LONG_ROUNDS,
        speed=not quick,
        say=(lambda _: None) if quiet or json or tabs else print_trouble,
    )
    _keep(found, report)
    if json:
        print_document("blockstore probe", {**report.as_dict(), "place": str(found)})
    else:
        print_lines(_page(report, TableForm(tabs, exact), settings.style, settings.region or ""))
    raise typer.Exit(OK_STATUS if report.verdicts()[0].good else TROUBLE_STATUS)


def read_kept(place: blockstore_place.StorePlace) -> dict[str, Any] | None:
    """What the last probe of a place found on this host; None where there was none."""
    from zvault.blockstore.kept_probe import read_probe
    from zvault.config.paths import Paths

    return read_probe(Paths().blockstore_probes, place.spec.identity)


def _keep(place: blockstore_place.StorePlace, report: ProbeReport) -> None:
    from zvault.blockstore.kept_probe import keep_probe
    from zvault.config.paths import Paths

    try:
        keep_probe(Paths().blockstore_probes, place.spec.identity, report.as_dict())
    except OSError as error:
        print_trouble(f"the result is not kept for 'blockstore info': {error}")


def _page(report: ProbeReport, form: TableForm, style: str, region: str) -> Iterator[str]:
    rows = [{"held": WORDS[one.held], "tried": one.name, "came": one.came} for one in report.tries]
    yield from format_table(COLUMNS, rows, form)
    if form.tabs:
        return
    if report.speeds:
        yield ""
        yield from format_table(SPEEDS, list(_speeds(report)), form)
    yield ""
    good = [{"good": WORDS[one.good], "for": one.use, "why": one.why or "-"} for one in report.verdicts()]
    yield from format_table(VERDICTS, good, form)
    yield from ("", *format_labelled(_words(report, style, region, exact=form.exact), find_width(sys.stdout)))


def _speeds(report: ProbeReport) -> Iterator[dict[str, object]]:
    for depth in sorted({one.depth for one in report.speeds}):
        rates = {one.kind: int(one.rate) for one in report.speeds if one.depth == depth}
        yield {"at_once": depth, "put": rates.get("put"), "get": rates.get("get")}


def _words(report: ProbeReport, style: str, region: str, *, exact: bool) -> list[tuple[str, str]]:
    small = ""
    if report.put_seconds is not None and report.get_seconds is not None:
        small = (
            f"{report.put_seconds * 1000:.0f} ms to put 4 KiB, {report.get_seconds * 1000:.0f} ms to get it"
        )
    found = [f"style={report.style}"] if report.style != style else []
    found += [f"region={report.region}"] if report.region != region else []
    depth = report.best_depth()
    fastest = max((int(one.rate) for one in report.speeds if one.kind == "put"), default=0)
    return [
        ("small", small),
        (
            "uploads",
            ""
            if depth is None
            else f"{depth} at once do, for {format_cell(fastest, 'size', exact)} a second",
        ),
        ("settings", f"write {' '.join(found)}: with these it answers" if found else ""),
        ("left", ", ".join(report.left)),
    ]
