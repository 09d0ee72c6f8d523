"""What 'zvaultctl blockstore check' says, and what it mends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, cast

from zvault.cli import places
from zvault.cli.narrate import plural
from zvault.cli.options import Form
from zvault.cli.output import OK, TROUBLE, document, labelled, say_all, tell, width
from zvault.cli.render import Column, table, written
from zvault.cli.steps import Steps

if TYPE_CHECKING:
    from zvault.blockstore.findings import Report
    from zvault.blockstore.objects import ObjectStore
    from zvault.blockstore.repair import Mending

REPAIR_HELP = """Check a store: its checkpoint, map, counts and segments, and that nothing lies beside them.

It changes nothing, and may run while the store is written to. It asks once for each segment; a share of them is read
whole, to verify each block: --all reads everything. It names what is damaged, and which bytes of the device are lost.

With --repair --yes it takes the store, which nobody may use meanwhile, and mends what can be mended: parts of the map
are made anew from the segments, counts from the map, and what belongs to nothing is removed. Reads of lost blocks
fail from then on: 'zpool scrub' finds what they belonged to, and 'zvaultctl heal' brings it back from the source.

Exit status: 0 all is well; 1 something is damaged.
"""

KEPT = 50
"""Rows of strays and of lost ranges that people are shown."""
PROBLEMS = [Column("kind", "state"), Column("object", key="key"), Column("why")]
RANGES = [Column("offset", "count"), Column("length", "size")]
STRAYS = [Column("stray", key="key"), Column("size", "size")]
Mend = tuple[str, bool, bool]
"""What becomes of doubtful blocks, whether the log may be cut, and whether to do it and not only show it."""


def check_store(
    place: places.Place, share: float, mend: Mend | None, form: Form, *, json: bool, quiet: bool
) -> int:
    """Check, and mend if that is asked for; the exit status. Raises ZvaultError."""
    from zvault.blockstore.check import check

    store, key = places.reach(place), place.spec.key
    with ThreadPoolExecutor(16) as pool, Steps(not quiet and not json, tell) as steps:
        report = check(store, key, share=share, pool=pool, progress=steps.see)
        mending, after = None, report
        if mend is not None and mend[2] and (not report.well or report.strays):
            mending, after = _mend(place, store, mend, pool, steps)
            # A repair does not read whole segments again.
            known = {one.key for one in after.problems}
            after.problems += [one for one in report.of("slots") if one.lost and one.key not in known]
    if json:
        _show_document(place, report, after, mending)
    elif not quiet or not after.well or after.strays:
        _show(place, report, after, mending, form)
    if mending is None and mend is not None and (not report.well or report.strays):
        tell("nothing is mended: do so with --repair --yes, while nobody uses the store")
    return OK if after.well else TROUBLE


def _mend(
    place: places.Place, store: ObjectStore, mend: Mend, pool: ThreadPoolExecutor, steps: Steps
) -> tuple[Mending, Report]:
    from zvault.blockstore.format import Damaged
    from zvault.blockstore.recovery import Epoch
    from zvault.blockstore.repair import Mending, repair

    try:
        owner = Epoch.read(store, place.spec.key).owner
    except Damaged:
        owner = ""
    places.refuse_in_use(place, "mended", owner, yes=True)
    with places.options(place) as options:
        doubtful = cast(Literal["", "fail", "data"], mend[0])
        mending = Mending(
            options, places.me("check"), place.spec.size, doubtful=doubtful, cut=mend[1], say=tell
        )
        return mending, repair(store, place.spec.key, mending, pool, steps.see)


def _show_document(place: places.Place, report: Report, after: Report, mending: Mending | None) -> None:
    done = None if mending is None else {"done": mending.done, "after": after.as_dict()}
    document("blockstore check", {"place": str(place), **report.as_dict(), "repair": done})


def _show(place: places.Place, report: Report, after: Report, mending: Mending | None, form: Form) -> None:
    if form.tabs:
        say_all(table(PROBLEMS, _rows(after.problems), form))
        return
    say_all(_page(place, report, form))
    if mending is not None:
        say_all(["", *labelled([("mended", "\n".join(mending.done) or "nothing")], width(sys.stdout))])
        if not after.well:
            say_all(["", "what stays:", *table(PROBLEMS, _rows(after.problems), form)])


def _rows(found: Any) -> list[dict[str, Any]]:
    return [{name: getattr(one, name) for name in ("kind", "key", "why")} for one in found]


def _page(place: places.Place, report: Report, form: Form) -> Iterator[str]:
    from zvault.blockstore.check_words import advice

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
