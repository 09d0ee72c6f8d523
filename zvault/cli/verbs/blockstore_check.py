"""What 'zvaultctl blockstore check' says, and what it repairs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import typer

from zvault.cli.event_text import format_plural
from zvault.cli.options import TableForm
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    find_width,
    format_labelled,
    print_document,
    print_lines,
    print_trouble,
)
from zvault.cli.progress import StepProgress
from zvault.cli.tables import TableColumn, format_cell, format_table
from zvault.cli.verbs import blockstore_place

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from zvault.blockstore.maintenance.check_report import CheckReport
    from zvault.blockstore.maintenance.repair import RepairJob
    from zvault.object_store.interface import ObjectStore

REPAIR_HELP = """Check a store: its checkpoint, map, counts and segments, and that nothing lies beside them.

It changes nothing, and may run while the store is written to. It asks once for each segment; a share of them is read
whole, to verify each block: --all reads everything. It names what is damaged, and which bytes of the device are lost.

With --repair --yes it takes the store, which nobody may use meanwhile, and repairs what can be repaired: parts of the
map are made anew from the segments, counts from the map, and what belongs to nothing is removed. Reads of lost blocks
fail from then on: 'zpool scrub' finds what they belonged to, and 'zvaultctl heal' brings it back from the source.

Exit status: 0 all is well; 1 something is damaged.
"""

SHOWN_ROWS = 50
"""Rows of strays and of lost ranges that people are shown."""
PROBLEM_COLUMNS = [TableColumn("kind", "state"), TableColumn("object", key="key"), TableColumn("why")]
RANGE_COLUMNS = [TableColumn("offset", "count"), TableColumn("length", "size")]
STRAY_COLUMNS = [TableColumn("stray", key="key"), TableColumn("size", "size")]


class RepairWish(NamedTuple):
    """What a repair may do. ``doubtful``: what becomes of doubtful blocks; ``cut``: whether the log may be cut; ``do``:
    whether to do it and not only show it; ``ask``: whether a person may be asked before the log is cut.
    """

    doubtful: str
    cut: bool
    do: bool
    ask: bool = False


def check_store(
    place: blockstore_place.StorePlace,
    share: float,
    wanted: RepairWish | None,
    form: TableForm,
    *,
    json: bool,
    quiet: bool,
) -> int:
    """Check, and repair if that is asked for; the exit status. Raises ZvaultError."""
    from zvault.blockstore.maintenance.check import find_store_problems

    store, key = blockstore_place.reach_objects(place), place.spec.key
    with (
        blockstore_place.start_workers(16) as pool,
        StepProgress(not quiet and not json, print_trouble) as steps,
    ):
        report = find_store_problems(store, key, share=share, pool=pool, progress=steps.see)
        job, after = None, report
        if wanted is not None and wanted.cut and report.cut is not None and not wanted.do:
            wanted = wanted._replace(do=wanted.ask and _confirm_cut(report))
        if wanted is not None and wanted.do and (not report.well or report.strays):
            job, after = _repair(place, store, wanted, pool, steps)
            # A repair does not read whole segments again.
            known = {one.key for one in after.problems}
            after.problems += [one for one in report.of("slots") if one.lost and one.key not in known]
    if json:
        _show_document(place, report, after, job)
    elif not quiet or not after.well or after.strays:
        _show(place, report, after, job, form)
    if job is None and wanted is not None and (not report.well or report.strays):
        print_trouble("nothing is repaired: do so with --repair --yes, while nobody uses the store")
    return OK_STATUS if after.well else TROUBLE_STATUS


def _repair(
    place: blockstore_place.StorePlace,
    store: ObjectStore,
    wanted: RepairWish,
    pool: ThreadPoolExecutor,
    steps: StepProgress,
) -> tuple[RepairJob, CheckReport]:
    from zvault.blockstore.format import ObjectDamaged
    from zvault.blockstore.maintenance.repair import RepairJob, repair_store
    from zvault.blockstore.recovery import WriterEpoch

    try:
        owner = WriterEpoch.read(store, place.spec.key).owner
    except ObjectDamaged:
        owner = ""
    blockstore_place.refuse_store_in_use(place, "repaired", owner, yes=True)
    with blockstore_place.make_attach_options(place) as options:
        doubtful = cast(Literal["", "fail", "data"], wanted.doubtful)
        job = RepairJob(
            options,
            blockstore_place.name_this_writer("check"),
            place.spec.size,
            doubtful=doubtful,
            cut=wanted.cut,
            say=print_trouble,
        )
        return job, repair_store(store, place.spec.key, job, pool, steps.see)


def _confirm_cut(report: CheckReport) -> bool:
    """Show what the end of the log costs, and ask; False where nobody is there to answer."""
    if report.cut is None or not sys.stdin.isatty():
        return False
    print_trouble(f"with --cut-log is lost {report.cut.describe()}")
    return typer.confirm("Cut the log there?", err=True)


def _show_document(
    place: blockstore_place.StorePlace, report: CheckReport, after: CheckReport, job: RepairJob | None
) -> None:
    done = None if job is None else {"done": job.done, "after": after.as_dict()}
    print_document("blockstore check", {"place": str(place), **report.as_dict(), "repair": done})


def _show(
    place: blockstore_place.StorePlace,
    report: CheckReport,
    after: CheckReport,
    job: RepairJob | None,
    form: TableForm,
) -> None:
    if form.tabs:
        print_lines(format_table(PROBLEM_COLUMNS, _rows(after.problems), form))
        return
    print_lines(_page(place, report, form))
    if job is not None:
        print_lines(
            ["", *format_labelled([("repaired", "\n".join(job.done) or "nothing")], find_width(sys.stdout))]
        )
        if not after.well:
            print_lines(["", "what stays:", *format_table(PROBLEM_COLUMNS, _rows(after.problems), form)])


def _rows(found: Any) -> list[dict[str, Any]]:
    return [{name: getattr(one, name) for name in ("kind", "key", "why")} for one in found]


def _page(place: blockstore_place.StorePlace, report: CheckReport, form: TableForm) -> Iterator[str]:
    from zvault.blockstore.maintenance.check_advice import advise_on_check

    def size(value: int) -> str:
        return format_cell(value, "size", form.exact)

    lost, strays = report.lost, report.strays
    checkpoint = "none" if report.root is None else f"number {report.root[1]} of epoch {report.root[0]}"
    read = f"{report.read_segments} of them read whole ({size(report.verified_bytes)})"
    state = "all is well" if report.well else format_plural(len(report.problems), "problem")
    told = [
        ("store", str(place)),
        ("checkpoint", f"{checkpoint}, and {format_plural(report.log, 'segment')} of log after it"),
        (
            "checked",
            f"{format_plural(report.parts, 'part')} of the map, {format_plural(report.segments, 'segment')}, {read}",
        ),
        ("state", state),
        (
            "lost",
            f"{size(sum(length for _, length in lost))} in {format_plural(len(lost), 'range')}"
            if lost
            else "",
        ),
        ("strays", f"{format_plural(len(strays), 'object')}, {size(report.stray_bytes)}" if strays else ""),
        ("cut", f"with --cut-log is lost {report.cut.describe()}" if report.cut is not None else ""),
        ("next", advise_on_check(report)),
    ]
    yield from format_labelled(told, find_width(sys.stdout))
    if report.problems:
        yield from ("", *format_table(PROBLEM_COLUMNS, _rows(report.problems), form))
    if lost:
        rows = [{"offset": offset, "length": length} for offset, length in lost[:SHOWN_ROWS]]
        yield from ("", *format_table(RANGE_COLUMNS, rows, form), *_more(len(lost)))
    if strays:
        kept = [{"key": one.key, "size": one.size} for one in strays[:SHOWN_ROWS]]
        yield from ("", *format_table(STRAY_COLUMNS, kept, form), *_more(len(strays)))


def _more(number: int) -> list[str]:
    return [f"… and {number - SHOWN_ROWS} more: see -j"] if number > SHOWN_ROWS else []
