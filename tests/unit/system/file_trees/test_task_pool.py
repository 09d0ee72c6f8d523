"""Tasks run side by side, with all that they add, and end with the first that fails."""

import threading

import pytest

from zvault.system.file_trees.task_pool import TaskPool


def test_all_threads_work_at_once() -> None:
    """Each task waits until all others are there."""
    pool, together = TaskPool(8), threading.Barrier(8, timeout=60)
    for _ in range(8):
        pool.add_file(lambda: together.wait() and None)
    pool.run()


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_what_tasks_add_is_run_too_and_folders_go_ahead(threads: int) -> None:
    pool, ran, lock = TaskPool(threads), list[str](), threading.Lock()

    def note(what: str) -> None:
        with lock:
            ran.append(what)

    def folder(depth: int) -> None:
        note(f"d{depth}")
        for _ in range(3):
            pool.add_file(lambda: note("f"))
        if depth:
            pool.add_folder(lambda: folder(depth - 1))

    pool.add_folder(lambda: folder(50))
    pool.run()
    assert ran.count("f") == 3 * 51
    assert sum(one.startswith("d") for one in ran) == 51
    if threads == 1:
        assert ran[:51] == [f"d{depth}" for depth in range(50, -1, -1)]


def test_the_first_failure_ends_it() -> None:
    pool, ran = TaskPool(1), list[int]()

    def fail() -> None:
        raise OSError("no")

    pool.add_file(lambda: ran.append(1))
    pool.add_file(fail)
    pool.add_file(lambda: ran.append(2))
    with pytest.raises(OSError, match="no"):
        pool.run()
    assert ran == [1]


def test_nothing_to_do_is_done() -> None:
    TaskPool(4).run()
