"""Tasks that end when something below them goes away, and tasks that must end whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from zvault.core.errors import ZvaultError

Look = Callable[[], Awaitable[ZvaultError | None]]
"""Asked again and again whether what a task stands on is still there."""

WATCH_EVERY = 2.0
"""Seconds between two looks."""

T = TypeVar("T")


async def first_trouble(look: Look) -> ZvaultError:
    """Look until there is trouble, and return it. A look that fails tells nothing: the next one may."""
    while True:
        await asyncio.sleep(WATCH_EVERY)
        with contextlib.suppress(ZvaultError):
            if (trouble := await look()) is not None:
                return trouble


@contextlib.asynccontextmanager
async def watched(look: Look) -> AsyncIterator[None]:
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
            trouble = await first_trouble(look)
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


async def to_its_end(work: Awaitable[T]) -> T:
    """Do what must be done even while this task is being cancelled. Everything in it has a deadline."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
