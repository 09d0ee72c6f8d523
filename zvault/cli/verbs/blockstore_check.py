"""What 'zvaultctl blockstore check' says, and what it repairs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import typer

from zvault.cli.event_text import plural
from zvault.cli.options import TableForm
from zvault.cli.output import OK, TROUBLE, document, labelled, say_all, tell, width
from zvault.cli.progress import Steps
from zvault.cli.tables import Column, table, written
from zvault.cli.verbs import blockstore_place

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from zvault.blockstore.maintenance.findings import Report
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

KEPT = 50
"""Rows of strays and of lost ranges that people are shown."""
PROBLEMS = [Column("kind", "state"), Column("object", key="key"), Column("why")]
RANGES = [Column("offset", "count"), Column("length", "size")]
STRAYS = [Column("stray", key="key"), Column("size", "size")]


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
    from zvault.blockstore.maintenance.check import check

    store, key = blockstore_place.reach(place), place.spec.key
    with blockstore_place.workers(16) as pool, Steps(not quiet and not json, tell) as steps:
        report = check(store, key, share=share, pool=pool, progress=steps.see)
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
        tell("nothing is repaired: do so with --repair --yes, while nobody uses the store")
    return OK if after.well else TROUBLE


def _repair(
    place: blockstore_place.StorePlace,
    store: ObjectStore,
    wanted: RepairWish,
    pool: ThreadPoolExecutor,
    steps: Steps,
) -> tuple[RepairJob, Report]:
    from zvault.blockstore.format import Damaged
    from zvault.blockstore.maintenance.repair import RepairJob, repair
    from zvault.blockstore.recovery import Epoch

    try:
        owner = Epoch.read(store, place.spec.key).owner
    except Damaged:
        owner = ""
    blockstore_place.refuse_in_use(place, "repaired", owner, yes=True)
    with blockstore_place.options(place) as options:
        doubtful = cast(Literal["", "fail", "data"], wanted.doubtful)
        job = RepairJob(
            options,
            blockstore_place.me("check"),
            place.spec.size,
            doubtful=doubtful,
            cut=wanted.cut,
            say=tell,
        )
        return job, repair(store, place.spec.key, job, pool, steps.see)


def _confirm_cut(report: Report) -> bool:
    """Show what the end of the log costs, and ask; False where nobody is there to answer."""
    if report.cut is None or not sys.stdin.isatty():
        return False
    tell(f"with --cut-log is lost {report.cut.describe()}")
    return typer.confirm("Cut the log there?", err=True)


def _show_document(
    place: blockstore_place.StorePlace, report: Report, after: Report, job: RepairJob | None
) -> None:
    done = None if job is None else {"done": job.done, "after": after.as_dict()}
    document("blockstore check", {"place": str(place), **report.as_dict(), "repair": done})


def _show(
    place: blockstore_place.StorePlace, report: Report, after: Report, job: RepairJob | None, form: TableForm
) -> None:
    if form.tabs:
        say_all(table(PROBLEMS, _rows(after.problems), form))
        return
    say_all(_page(place, report, form))
    if job is not None:
        say_all(["", *labelled([("repaired", "\n".join(job.done) or "nothing")], width(sys.stdout))])
        if not after.well:
            say_all(["", "what stays:", *table(PROBLEMS, _rows(after.problems), form)])


def _rows(found: Any) -> list[dict[str, Any]]:
    return [{name: getattr(one, name) for name in ("kind", "key", "why")} for one in found]


def _page(place: blockstore_place.StorePlace, report: Report, form: TableForm) -> Iterator[str]:
    from zvault.blockstore.maintenance.check_advice import advice

    def size(value: int) -> str:
        return written(value, "size", form.exact)

    lost, strays = report.lost, report.strays
    checkpoint = "none" if report.root is None else f"number {report.root[1]} of epoch {report.root[0]}"
    read = f"{report.read_segments} of them read whole ({size(report.verified_bytes)})"
    state = "all is well" if report.well else plural(len(report.problems), "problem")
    told = [
        ("store", str(place)),
        ("checkpoint", f"{checkpoint}, and {plural(report.log, 'segment')} of log after it"),
        (
            "checked",
            f"{plural(report.parts, 'part')} of the map, {plural(report.segments, 'segment')}, {read}",
        ),
        ("state", state),
        (
            "lost",
            f"{size(sum(length for _, length in lost))} in {plural(len(lost), 'range')}" if lost else "",
        ),
        ("strays", f"{plural(len(strays), 'object')}, {size(report.stray_bytes)}" if strays else ""),
        ("cut", f"with --cut-log is lost {report.cut.describe()}" if report.cut is not None else ""),
        ("next", advice(report)),
    ]
    yield from labelled(told, width(sys.stdout))
    if report.problems:
        yield from ("", *table(PROBLEMS, _rows(report.problems), form))
    if lost:
        rows = [{"offset": offset, "length": length} for offset, length in lost[:KEPT]]
        yield from ("", *table(RANGES, rows, form), *_more(len(lost)))
    if strays:
        kept = [{"key": one.key, "size": one.size} for one in strays[:KEPT]]
        yield from ("", *table(STRAYS, kept, form), *_more(len(strays)))


def _more(number: int) -> list[str]:
    return [f"… and {number - KEPT} more: see -j"] if number > KEPT else []
