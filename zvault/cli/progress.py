"""Progress of long work: live bars on stderr if it is a terminal, else a line at intervals."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from zvault.api.events import (
    DatasetFailed,
    PlannedEvent,
    ProgressMade,
    RetryEvent,
    RunEvent,
    TransferFinished,
    TransferStarted,
)
from zvault.cli.output import clean_line
from zvault.core.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

NAME_SHARE = 0.35
"""Share of the terminal's width that a dataset's name may take."""


BUFFER_SHOWN_WIDTH = 100
"""Width in columns from which on the fill level of the buffer is shown."""

LINE_EVERY = 60.0
"""Seconds between two lines without a terminal."""


class ProgressBar(Protocol):
    """Shows the progress of a run while it is open as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def see(self, event: RunEvent) -> None:
        """Take in an event, and show what it changes."""
        ...


class NoBar:
    """The bar where nothing is shown."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def see(self, event: RunEvent) -> None:
        """See ProgressBar.see."""


class ProgressLines(NoBar):
    """Prints a line every minute, for a log or pipe: ``34%, 1.20G of 3.50G, 80M/s, eta 29s; sending tank/home``."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._said = clock()
        self._streams: list[str] = []

    def see(self, event: RunEvent) -> None:
        """See ProgressBar.see."""
        match event:
            case TransferStarted():
                self._streams.append(event.dataset)
            case TransferFinished() | DatasetFailed() if event.dataset in self._streams:
                self._streams.remove(event.dataset)
            case ProgressMade() if self._clock() - self._said >= LINE_EVERY:
                self._said = self._clock()
                done, total, rate = event.run_bytes, event.run_total, sum_rates(event)
                told = [
                    format_percent_done(done, total),
                    format_amount(done, total),
                    format_speed(rate),
                    format_remaining(done, total, rate),
                ]
                streams = clean_line(", ".join(self._streams))
                self._say(f"{', '.join(filter(None, told))}; sending {streams}")


def make_progress_bar(wanted: bool, say: Callable[[str], None]) -> ProgressBar:
    """Live bars if stderr is a terminal that can move its cursor, else lines to ``say``; nothing if not wanted."""
    if not wanted:
        return NoBar()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveBar()
    return ProgressLines(say)


def shorten_name(name: str, room: int) -> str:
    """A dataset's name in ``room`` characters. Keeps the end of a long name, because the ends differ."""
    return name if len(name) <= room else f"...{name[-(room - 3) :]}"


def format_amount(done: int, total: int | None) -> str:
    """``1.20G of 2.67G``, or ``1.20G`` if the total is unknown."""
    return format_size(done) if total is None else f"{format_size(done)} of {format_size(total)}"


def format_remaining(done: int, total: int | None, rate: float) -> str:
    """``eta 3m 12s``; empty if unknown."""
    if total is None or rate <= 0 or done >= total:
        return ""
    return f"eta {format_duration(max(1.0, (total - done) / rate))}"


def format_percent_done(done: int, total: int | None) -> str:
    """``34%``; never 100% before the end, and empty if unknown."""
    return "" if not total else f"{min(99, 100 * done // total)}%"


def format_speed(rate: float) -> str:
    """``80M/s``; empty while nothing moves."""
    return format_rate(rate) if rate > 0 else ""


def format_fill(marks: tuple[int, int] | None) -> str:
    """``buffer 3-97%``: its recent fill level. If it is full, the vault is slower; if it is empty, the source is."""
    if marks is None:
        return ""
    low, high = marks
    return f"buffer {high}%" if low == high else f"buffer {low}-{high}%"


def sum_rates(event: ProgressMade) -> float:
    """Bytes a second of all streams of a run; a restore has only one."""
    return event.run_rate if event.run_rate is not None else event.rate


class LiveBar:
    """A bar for each active stream; above them one for the whole run if it sends several datasets."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True, highlight=False)
        self._room = max(12, int(console.width * NAME_SHARE))
        self._wide = console.width >= BUFFER_SHOWN_WIDTH
        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None, style="dim", complete_style="default", finished_style="default"),
            TextColumn("{task.fields[percent]:>4}", markup=False),
            TextColumn("{task.fields[amount]}", markup=False),
            TextColumn("{task.fields[rate]}", markup=False),
            TextColumn("{task.fields[eta]}", markup=False),
            console=console,
            transient=True,
            expand=True,
            # Lines on stdout appear above the bar; if stdout is a file, they go to the file.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._run: TaskID | None = None
        self._datasets: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def see(self, event: RunEvent) -> None:
        """See ProgressBar.see."""
        match event:
            case PlannedEvent():
                sending = [d for d in event.datasets if d["action"] in ("full", "incremental", "resume")]
                if len(sending) > 1 and self._run is None:
                    self._run = self._add(f"all of {event.backup}", event.bytes_total)
            case TransferStarted():
                self._drop(event.dataset)
                self._datasets[event.dataset] = self._add(event.dataset, event.bytes)
            case ProgressMade():
                if event.dataset not in self._datasets:
                    self._datasets[event.dataset] = self._add(event.dataset, event.total)
                task = self._datasets[event.dataset]
                buffer = format_fill(event.buffer) if self._wide else ""
                self._move(task, event.bytes, event.total, event.rate, buffer)
                if self._run is not None:
                    self._move(self._run, event.run_bytes, event.run_total, sum_rates(event))
            case RetryEvent() if self._run is not None:
                self._progress.update(self._run, rate="", eta="waiting")
            case TransferFinished() | DatasetFailed():
                self._drop(event.dataset)

    def _add(self, name: str, total: int | None) -> TaskID:
        return self._progress.add_task(
            shorten_name(name, self._room),
            total=total,
            percent="",
            amount=format_amount(0, total),
            rate="",
            eta="",
        )

    def _move(self, task: TaskID, done: int, total: int | None, rate: float, more: str = "") -> None:
        self._progress.update(
            task,
            completed=done,
            # The estimate may be too low; the bar must not run beyond its end.
            total=None if total is None else max(total, done),
            percent=format_percent_done(done, total),
            amount=format_amount(done, total),
            rate=" ".join(filter(None, (format_speed(rate), more))),
            eta=format_remaining(done, total, rate),
        )

    def _drop(self, dataset: str) -> None:
        task = self._datasets.pop(dataset, None)
        if task is not None:
            self._progress.remove_task(task)


STEP_WORDS = {
    "map": "reading the map",
    "segments": "checking segments",
    "tables": "reading tables",
    "gc": "clearing segments",
    "copy": "copying",
}


class StepProgress:
    """Shows the progress of work in steps. Open as a context manager; call ``see`` with step, amount done and total."""

    def __init__(self, wanted: bool, say: Callable[[str], None]) -> None:
        """``say`` prints the lines without a terminal; unless ``wanted``, nothing is shown."""
        self._say = say
        self._wanted = wanted
        self._live = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._said = self._began = time.monotonic()
        self._what = ""
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None, style="dim", complete_style="default", finished_style="default"),
                TextColumn("{task.fields[told]}", markup=False),
                console=Console(stderr=True, highlight=False),
                transient=True,
                expand=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def see(self, what: str, done: int, total: int) -> None:
        """Show the progress of a step."""
        if not self._wanted:
            return
        now = time.monotonic()
        if what != self._what:
            self._what, self._began = what, now
            if self._progress is not None:
                if self._task is not None:
                    self._progress.remove_task(self._task)
                self._task = self._progress.add_task(STEP_WORDS.get(what, what), total=total, told="")
        rate = done / (now - self._began) if now > self._began else 0.0
        told = ", ".join(
            filter(None, [format_percent_done(done, total), format_remaining(done, total, rate)])
        )
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total, told=told)
        elif now - self._said >= LINE_EVERY:
            self._said = now
            self._say(f"{STEP_WORDS.get(what, what)}: {told}")
