"""The live progress bar of a run, on stderr and only on a terminal."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from zvault.cli.documents import Event
from zvault.core.units import format_duration, format_rate, format_size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

NAME_SHARE = 0.35
"""The part of the terminal's width a dataset's name may take."""


class Bar(Protocol):
    """Shows how far a run is, while it is open as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def see(self, event: Event) -> None:
        """Take an event in."""
        ...


class NoBar:
    """Shows nothing: for a log, a pipe, or ``-q``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def see(self, event: Event) -> None:
        """See Bar.see."""


def bar(wanted: bool = True) -> Bar:
    """A live bar where stderr is a terminal that can move its cursor."""
    if wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return LiveBar()
    return NoBar()


def shortened(name: str, room: int) -> str:
    """A dataset's name in ``room`` characters: of a long one the end is kept, for it tells datasets apart."""
    return name if len(name) <= room else f"...{name[-(room - 3) :]}"


def amount(done: int, total: int | None) -> str:
    """``1.20G of 2.67G``, or ``1.20G`` where the total is not known."""
    return format_size(done) if total is None else f"{format_size(done)} of {format_size(total)}"


def remaining(done: int, total: int | None, rate: float) -> str:
    """``eta 3m 12s``; empty where nobody can tell."""
    if total is None or rate <= 0 or done >= total:
        return ""
    return f"eta {format_duration((total - done) / rate)}"


class LiveBar:
    """A line for each dataset being sent and, when there are several, one for the whole run."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True, highlight=False)
        self._room = max(12, int(console.width * NAME_SHARE))
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
            # Lines said on stdout appear above the bar; if stdout is a file they belong in the file.
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

    def see(self, event: Event) -> None:
        """See Bar.see."""
        match event["event"]:
            case "plan":
                sending = [d for d in event["datasets"] if d["action"] in ("full", "incremental", "resume")]
                if len(sending) > 1 and self._run is None:
                    self._run = self._add(f"all of {event['backup']}", event["bytes_total"])
            case "transfer-started":
                self._drop(event["dataset"])
                self._datasets[event["dataset"]] = self._add(event["dataset"], event["bytes"])
            case "progress":
                if event["dataset"] not in self._datasets:
                    self._datasets[event["dataset"]] = self._add(event["dataset"], event["total"])
                self._move(self._datasets[event["dataset"]], event["bytes"], event["total"], event["rate"])
                if self._run is not None:
                    self._move(self._run, event["run_bytes"], event["run_total"], event["rate"])
            case "transfer-finished" | "dataset-failed":
                self._drop(event["dataset"])

    def _add(self, name: str, total: int | None) -> TaskID:
        return self._progress.add_task(
            shortened(name, self._room), total=total, percent="", amount=amount(0, total), rate="", eta=""
        )

    def _move(self, task: TaskID, done: int, total: int | None, rate: float) -> None:
        self._progress.update(
            task,
            completed=done,
            # An estimate may be too low; a bar beyond its end would say so badly.
            total=None if total is None else max(total, done),
            percent="" if not total else f"{min(done / total, 1):.0%}",
            amount=amount(done, total),
            rate=format_rate(rate) if rate > 0 else "",
            eta=remaining(done, total, rate),
        )

    def _drop(self, dataset: str) -> None:
        task = self._datasets.pop(dataset, None)
        if task is not None:
            self._progress.remove_task(task)
