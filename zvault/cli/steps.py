"""How far long work on objects is: a bar on stderr where that is a terminal, else a line now and then."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from zvault.cli.progress import LINE_EVERY, percent, remaining

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

WORDS = {
    "map": "reading the map",
    "segments": "checking segments",
    "tables": "reading tables",
    "gc": "clearing segments",
    "copy": "copying",
}


class Steps:
    """Open as a context manager; ``see`` is told what is being done, how much of it is done, and how much there is."""

    def __init__(
        self, wanted: bool, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``say`` takes the lines where there is no terminal; nothing is shown if it is not ``wanted``."""
        self._say, self._clock = say, clock
        self._wanted = wanted
        self._live = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._said = self._began = clock()
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
        """Show it."""
        if not self._wanted:
            return
        now = self._clock()
        if what != self._what:
            self._what, self._began = what, now
            if self._progress is not None:
                if self._task is not None:
                    self._progress.remove_task(self._task)
                self._task = self._progress.add_task(WORDS.get(what, what), total=total, told="")
        rate = done / (now - self._began) if now > self._began else 0.0
        told = ", ".join(filter(None, [percent(done, total), remaining(done, total, rate)]))
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total, told=told)
        elif now - self._said >= LINE_EVERY:
            self._said = now
            self._say(f"{WORDS.get(what, what)}: {told}")
