"""Runs many small tasks in threads, until none is left. Each waits most of its time, for a slow pool to answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

PoolTask = Callable[[], None]

MOST_WAITING = 20_000
"""Tasks that wait before folders are no longer gone through ahead of them: each is a closure in memory."""


class OpenFiles(Protocol):
    """Descriptors that several tasks share, and the last of them closes."""

    def close(self) -> None:
        """Close them."""
        ...


class TaskPool:
    """Threads that take tasks; a task may add others. Folders go ahead, so that files are known before their turn.

    At the end of a ``with`` block all is closed that tasks had open which were not run, or failed.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._folders: list[PoolTask] = []
        self._files: deque[PoolTask] = deque()
        self._open: dict[int, OpenFiles] = {}
        self._running = 0
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def add_folder(self, task: PoolTask) -> None:
        """Add a task that goes through a folder. The one added last is begun first: so few are open at once."""
        with self._changed:
            self._folders.append(task)
            self._changed.notify()

    def add_file(self, task: PoolTask, *, next_one: bool = False) -> None:
        """Add a task for an entry; ``next_one``: before all others that wait, as a part of a file that is open."""
        with self._changed:
            if next_one:
                self._files.appendleft(task)
            else:
                self._files.append(task)
            self._changed.notify()

    def note_open(self, files: OpenFiles) -> None:
        """Remember what tasks have open, until ``note_closed``."""
        with self._changed:
            self._open[id(files)] = files

    def note_closed(self, files: OpenFiles) -> None:
        """Forget what its last task has closed."""
        with self._changed:
            self._open.pop(id(files), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The process goes on after a task that failed. What was left open of a snapshot would keep it mounted.
        for files in self._open.values():
            files.close()
        self._open.clear()

    def run(self) -> None:
        """Run all tasks, with those that they add. Raises what the first that failed raised; no other is begun."""
        others = [threading.Thread(target=self._work, daemon=True) for _ in range(self.threads - 1)]
        for one in others:
            one.start()
        self._work()
        for one in others:
            one.join()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _next(self) -> PoolTask | None:
        with self._changed:
            while self._error is None:
                if self._folders and len(self._files) < MOST_WAITING:
                    self._running += 1
                    return self._folders.pop()
                if self._files:
                    self._running += 1
                    return self._files.popleft()
                if not self._running:
                    return None
                self._changed.wait()
            return None
