"""zvaultctl tune measure: the measurement of a vault's device, the settings tried out, and the fastest of them."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Annotated, TypeVar

import typer

from zvault.api import routes
from zvault.api.tuning import MeasuredDocument
from zvault.cli import completion
from zvault.cli.client import connect
from zvault.cli.options import AsJson, TableForm
from zvault.cli.output import clean, document, labelled, say_all, tell, width, wrapped
from zvault.cli.tables import Column, table
from zvault.core.units import format_rate, format_size

A = TypeVar("A")


def _rate(key: str) -> Column:
    return Column(key, get=lambda row: format_rate(row[key]))


POINTS = [
    Column("size", "size"),
    Column("depth", get=lambda row: str(row["depth"])),
    _rate("bandwidth"),
    Column("latency", get=lambda row: f"{row['latency'] * 1000:.1f}ms"),
]
TRIES = [
    Column("settings", key="what"),
    Column("receive", get=lambda row: ("<" if row["stopped"] else "") + format_rate(row["rate"])),
    Column("result", get=lambda row: "kept" if row["won"] else "stopped" if row["stopped"] else ""),
]
CHOICES = [
    Column("parameter", key="name"),
    Column("value", get=lambda row: _figure(row["name"], row["value"])),
]


def _figure(name: str, value: str) -> str:
    from zvault.core.tuning.parameters import KNOWN

    return format_size(int(value)) if name in KNOWN and KNOWN[name].unit == "size" else value


def measure(
    vault: Annotated[
        str,
        typer.Argument(
            help="A vault whose profile is auto.", show_default=False, autocompletion=completion.vaults
        ),
    ],
    json: AsJson = False,
) -> None:
    """Measure the device of VAULT, try settings out on its pool, and keep the fastest.

    This takes two or three minutes. The measurement only reads from the device. To try settings out, zvault receives a
    stream of some seconds into a scratch dataset of the pool and destroys it afterwards. Ctrl-C ends the measurement;
    an earlier result stays.
    """
    answer = follow(connect().followed(routes.MEASURE, vault=vault))
    if json:
        document("tune measure", answer)
    else:
        say_all(page(answer["measured"]))


def follow(telling: Generator[str, None, A], *, quiet: bool = False) -> A:
    """Print progress messages and return the answer. On a terminal each message replaces the last one."""
    live = sys.stderr.isatty()
    try:
        while True:
            text = clean(next(telling))
            if quiet:
                continue
            if live:
                columns = width(sys.stderr) or len(text)
                sys.stderr.write(f"\r\x1b[K{text[: columns - 1]}")
                sys.stderr.flush()
            else:
                tell(text)
    except StopIteration as end:
        answer: A = end.value
        return answer
    finally:
        if live:
            sys.stderr.write("\r\x1b[K")


def page(found: MeasuredDocument) -> Iterator[str]:
    """The measured points, the trials, and the values kept, each with its reason."""
    columns, form = width(sys.stdout), TableForm(False, False)
    yield from labelled([("measured", f"by {found['way']}s of {', '.join(found['devices'])}")], columns)
    yield ""
    yield from table(POINTS, found["points"], form)
    yield ""
    if found["tries"]:
        yield from table(TRIES, found["tries"], form)
    else:
        yield "not tried out"
    yield ""
    if not found["choices"]:
        yield "OpenZFS's defaults are kept: nothing else was faster"
    yield from table(
        CHOICES, found["choices"], form, notes=lambda row: wrapped(row["why"], "    ", columns, "    ")
    )
    if found["advice"]:
        yield ""
        yield from wrapped(found["advice"], "", columns)
