"""zvaultctl doctor: a vault's bottleneck in one sentence, the setting to change, and the evidence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.diagnosis import DiskDocument, DoctorDocument, StageDocument
from zvault.cli.daemon_client import read_document
from zvault.cli.options import AsJson, Exact, TableForm, Tabs, VaultName
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    clean_line,
    find_width,
    format_labelled,
    print_document,
    print_line,
    print_lines,
)
from zvault.cli.tables import TableColumn, TableRow, format_cell, format_table
from zvault.core.units import format_rate

LONGEST_WATCH = 60.0

STAGE_COLUMNS = [TableColumn("stage", key="name"), TableColumn("cpu"), TableColumn("input")]
DOCTOR_DEVICE_COLUMNS = [
    TableColumn("device", key="name"),
    TableColumn("of", key="role"),
    TableColumn("operation"),
    TableColumn("each second", "figure", key="each"),
    TableColumn("size", "size"),
    TableColumn("latency"),
    TableColumn("in flight", "figure", key="in_flight"),
    TableColumn("bandwidth", "size"),
    TableColumn("busy"),
]
QUEUE_COLUMNS = [
    TableColumn("pending", "figure"),
    TableColumn("active", "figure"),
    TableColumn("wait"),
    TableColumn("request", "size"),
    TableColumn("txg", "size"),
    TableColumn("open"),
    TableColumn("sync"),
]


def doctor(
    vault: VaultName,
    seconds: Annotated[
        float, typer.Option(min=1, max=LONGEST_WATCH, metavar="S", help="Seconds to watch it.")
    ] = 5.0,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Find the bottleneck of VAULT, and the one setting to change.

    This watches the streams, OpenZFS's queue and transaction groups, and the block devices for some seconds. It changes
    nothing. Below the verdict is the evidence. CPU is the share of one processor. INPUT is how full a stage's input
    pipe is; the slowest stage is the last one with a full input. IN FLIGHT / LATENCY x SIZE is the BANDWIDTH.

    With -H it prints one line: vault, bottleneck, setting, its value now, the value to try, the sentence.

    Of a vault on RBD images it also tries whether their Ceph users may do all that zvault needs: write to each pool,
    and shut a dead client out, which breaking its lock needs. What is LACKING is told with the command that gives it.

    Exit status: 0 there is a verdict; 1 the vault's pool is suspended, or rights are lacking.
    """
    found = read_document(routes.DOCTOR, vault=vault, seconds=seconds, rights=1)
    if json:
        print_document("doctor", found)
    elif tabs:
        print_line(_line(found))
    else:
        print_lines(_page(found, TableForm(exact=exact)))
    trouble = found["verdict"]["bound"] == "suspended" or found["lacking"]
    raise typer.Exit(TROUBLE_STATUS if trouble else OK_STATUS)


def _line(found: DoctorDocument) -> str:
    verdict = found["verdict"]
    knob = verdict["knob"]
    words = [(one or "-") for one in (knob["name"], knob["now"], knob["value"])] if knob else ["-"] * 3
    return "\t".join(
        [found["vault"], verdict["bound"], *map(clean_line, words), clean_line(verdict["sentence"])]
    )


def _page(found: DoctorDocument, form: TableForm) -> Iterator[str]:
    verdict, knob = found["verdict"], found["verdict"]["knob"]
    now = f", now {knob['now']}" if knob and knob["now"] else ""
    turn = f"{knob['name']} to {knob['value']} in {knob['where']}{now}" if knob else ""
    yield from format_labelled(
        [
            ("vault", found["vault"]),
            ("bound by", verdict["bound"]),
            ("verdict", verdict["sentence"]),
            ("turn", turn),
            ("why", verdict["why"]),
            *(("lacking", words) for words in found["lacking"]),
        ],
        find_width(sys.stdout),
    )
    for stream in found["streams"]:
        yield ""
        yield f"{clean_line(stream['dataset'])}, {format_rate(stream['rate'])}{_marks(stream['marks'])}"
        yield from format_table(STAGE_COLUMNS, [_stage(one) for one in stream["stages"]], form)
    if rows := [row for one in found["devices"] for row in _device(one)]:
        yield ""
        yield from format_table(DOCTOR_DEVICE_COLUMNS, rows, form)
    if found["queue"] is not None or found["groups"]:
        yield ""
        yield from format_table(QUEUE_COLUMNS, [_queue(found)], form)


def _marks(marks: tuple[int, int] | None) -> str:
    return "" if marks is None else f", mbuffer {marks[0]} to {marks[1]}% full"


def _stage(one: StageDocument) -> TableRow:
    return {"name": one["name"], "cpu": _percent(one["cpu"]), "input": _percent(one["full"])}


def _device(one: DiskDocument) -> Iterator[TableRow]:
    seconds = one["seconds"]
    for operation, count, moved, spent in (
        ("write", one["writes"], one["written"], one["write_time"]),
        ("read", one["reads"], one["read"], one["read_time"]),
    ):
        if count and seconds:
            yield {
                "name": one["name"],
                "role": one["role"],
                "operation": operation,
                "each": count / seconds,
                "size": moved / count,
                "latency": _time(spent / count),
                "in_flight": spent / seconds,
                "bandwidth": moved / seconds,
                "busy": _percent(one["busy"]),
            }


def _queue(found: DoctorDocument) -> TableRow:
    queue = found["queue"]
    last = found["groups"][-1] if found["groups"] else None
    return {
        "pending": queue and queue["pending"],
        "active": queue and queue["active"],
        "wait": _time(queue and queue["wait"]),
        "request": found["request"],
        "txg": last and last["written"],
        "open": _time(last and last["opened"]),
        "sync": _time(last and last["sync"]),
    }


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"


def _time(value: float | None) -> str | None:
    """As ``zpool iostat -l`` prints it."""
    if value is None:
        return None
    if value >= 1:
        return f"{format_cell(value, 'figure', False)}s"
    return f"{value * 1e3:.0f}ms" if value >= 0.001 else f"{value * 1e6:.0f}us"
