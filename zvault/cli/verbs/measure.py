"""zvaultctl tune measure: the measurement of a vault's device, the settings tried out, and the fastest of them."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, TypeVar

import typer

from zvault.api import routes
from zvault.api.tuning import ChoiceDocument, MeasuredDocument, TryDocument
from zvault.cli import completion
from zvault.cli.daemon_client import connect_daemon
from zvault.cli.options import AsJson, TableForm
from zvault.cli.output import (
    clean_line,
    find_width,
    format_labelled,
    print_document,
    print_lines,
    print_trouble,
    wrap_text,
)
from zvault.cli.tables import TableColumn, format_table
from zvault.core.units import format_rate, format_size

A = TypeVar("A")


def _rate(key: str) -> TableColumn:
    return TableColumn(key, get=lambda row: format_rate(row[key]))


POINT_COLUMNS = [
    TableColumn("size", "size"),
    TableColumn("depth", get=lambda row: str(row["depth"])),
    _rate("bandwidth"),
    TableColumn("latency", get=lambda row: f"{row['latency'] * 1000:.1f}ms"),
]


def list_trial_columns(what: str) -> list[TableColumn]:
    """The columns of trials of ``what``: receives, sends or scrubs."""
    return [
        TableColumn("settings", key="what"),
        TableColumn(what, get=lambda row: ("<" if row["stopped"] else "") + format_rate(row["rate"])),
        TableColumn("result", get=lambda row: "kept" if row["won"] else "stopped" if row["stopped"] else ""),
    ]


CHOICE_COLUMNS = [
    TableColumn("parameter", key="name"),
    TableColumn("value", get=lambda row: _figure(row["name"], row["value"])),
]


def _figure(name: str, value: str) -> str:
    from zvault.core.tuning.parameters import KNOWN_PARAMETERS

    return (
        format_size(int(value))
        if name in KNOWN_PARAMETERS and KNOWN_PARAMETERS[name].unit == "size"
        else value
    )


def measure(
    vault: Annotated[
        str,
        typer.Argument(
            help="A vault whose profile is auto.",
            show_default=False,
            autocompletion=completion.complete_vaults,
        ),
    ],
    json: AsJson = False,
) -> None:
    """Measure the device of VAULT, try settings out on its pool, and keep the fastest.

    This takes three or four minutes. The measurement only reads from the device. To try settings out, zvault receives a
    stream of some seconds into a scratch dataset of the pool, sends it to nowhere, and destroys it afterwards; a pool
    with little else in it is scrubbed, too. Ctrl-C ends the measurement; an earlier result stays.
    """
    answer = follow_messages(connect_daemon().followed(routes.MEASURE, vault=vault))
    if json:
        print_document("tune measure", answer)
    else:
        print_lines(format_measurement(answer["measured"]))


def follow_messages(telling: Generator[str, None, A], *, quiet: bool = False) -> A:
    """Print progress messages and return the answer. On a terminal each message replaces the last one."""
    live = sys.stderr.isatty()
    try:
        while True:
            text = clean_line(next(telling))
            if quiet:
                continue
            if live:
                columns = find_width(sys.stderr) or len(text)
                sys.stderr.write(f"\r\x1b[K{text[: columns - 1]}")
                sys.stderr.flush()
            else:
                print_trouble(text)
    except StopIteration as end:
        answer: A = end.value
        return answer
    finally:
        if live:
            sys.stderr.write("\r\x1b[K")


def format_measurement(found: MeasuredDocument) -> Iterator[str]:
    """The measured points, the trials, and the values kept, each with its reason: of writes, then of reads."""
    columns, form = find_width(sys.stdout), TableForm(False, False)
    yield from format_labelled(
        [("measured", f"by {found['way']}s of {', '.join(found['devices'])}")], columns
    )
    yield ""
    yield from format_table(POINT_COLUMNS, found["points"], form)
    yield ""
    yield from _trials("receive", found["tries"])
    yield from _choices(found["choices"])
    if found["advice"]:
        yield ""
        yield from wrap_text(found["advice"], "", columns)
    if reading := found["reading"]:
        yield ""
        yield from format_labelled([("reads", "for restores, verifications and scrubs")], columns)
        yield ""
        if found["way"] != "read":
            yield from format_table(POINT_COLUMNS, reading["points"], form)
            yield ""
        yield from _trials("send", reading["sends"])
        if reading["scrubs"]:
            yield from _trials("scrub", reading["scrubs"])
        yield from _choices(reading["choices"])


def _trials(what: str, tries: Sequence[TryDocument]) -> Iterator[str]:
    if tries:
        yield from format_table(list_trial_columns(what), tries, TableForm(False, False))
    else:
        yield "not tried out"
    yield ""


def _choices(choices: Sequence[ChoiceDocument]) -> Iterator[str]:
    if not choices:
        yield "OpenZFS's defaults are kept: nothing else was faster"
    columns = find_width(sys.stdout)
    yield from format_table(
        CHOICE_COLUMNS,
        choices,
        TableForm(False, False),
        notes=lambda row: wrap_text(row["why"], "    ", columns, "    "),
    )
