"""Tasks that end when something below them goes away, and tasks that must end whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from zvault.core.errors import ZvaultError

Look = Callable[[], Awaitable[ZvaultError | None]]
"""Asked again and again whether what a task stands on is still there."""

WATCH_EVERY = 2.0
"""Seconds between two looks."""

T = TypeVar("T")


async def find_first_trouble(look: Look) -> ZvaultError:
    """Look until there is trouble, and return it. A look that fails tells nothing: the next one may."""
    while True:
        await asyncio.sleep(WATCH_EVERY)
        with contextlib.suppress(ZvaultError):
            if (trouble := await look()) is not None:
                return trouble


@contextlib.asynccontextmanager
async def watch_block(look: Look) -> AsyncIterator[None]:
    """Run a block only as long as ``look`` finds no trouble, then stop it and raise that.

    Whatever the block waits for may never come once the ground is gone: a listing, a destroy, a stream.
    A look that breaks (a bug) ends it too: nobody would watch any more.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - inside a coroutine there is one
    already = task.cancelling()
    trouble: Exception | None = None

    async def watch() -> None:
        nonlocal trouble
        try:
            trouble = await find_first_trouble(look)
        except Exception as error:
            trouble = error
        task.cancel()

    watcher = asyncio.ensure_future(watch())
    try:
        yield
    except asyncio.CancelledError:
        # As asyncio.timeout does it: only the cancellation that is ours becomes an error.
        if trouble is not None and task.uncancel() <= already:
            raise trouble from None
        raise
    except BaseException:
        if trouble is not None:
            task.uncancel()
        raise
    else:
        if trouble is not None:
            task.uncancel()
    finally:
        watcher.cancel()


async def finish_work(work: Awaitable[T]) -> T:
    """Wait until ``work`` is over, also while this task is being cancelled; its result.

    A cancellation that came meanwhile is raised once the work is over, with the work's failure as its cause: it is
    never lost, so whatever must happen in any case belongs into the work. Every wait in the work needs a deadline.
    """
    task = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation from (None if task.cancelled() else task.exception())
    return task.result()


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until each of them is over, as ``finish_work`` does.

    A ZvaultError that one raises then is dropped; the event loop's handler logs any other. The result of a task that
    was over before is its owner's to look at.
    """
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await finish_work(asyncio.wait(running))
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if error is not None and task in running and not isinstance(error, ZvaultError):
            context = {"message": "a task failed while it was cancelled", "exception": error, "future": task}
            asyncio.get_running_loop().call_exception_handler(context)
