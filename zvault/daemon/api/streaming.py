"""Answers that tell how something goes while it goes: a JSON object a line, the last one its answer or its error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from zvault.api.answers import LongAnswerLine
from zvault.core.errors import ZvaultError
from zvault.daemon.api.handler import count_document_rows, encode_document
from zvault.daemon.job_runner import make_unexpected_error
from zvault.daemon.journald import log
from zvault.system.side_threads import compute_aside
from zvault.system.tasks import cancel_tasks

Say = Callable[[str], None]

ANSWER_INTERVAL = 1.0
"""Seconds after which something is said in any case: only by writing is it noticed that nobody listens any more."""


async def answer_with_progress(
    request: web.Request, work: Callable[[Say], Awaitable[object]], also: Say
) -> web.StreamResponse:
    """Do ``work`` and tell its client what it says; ``also`` hears it too. Cancelled when the client goes away."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    said: asyncio.Queue[str] = asyncio.Queue()

    def say(text: str) -> None:
        also(text)
        said.put_nowait(text)

    task = asyncio.ensure_future(_answer(work, say))
    try:
        while not task.done() or not said.empty():
            await _write(response, {"text": await _next(said, task)})
        await _write_last(response, task.result())
        await response.write_eof()
    except ConnectionError:
        also("nobody waits for it any more; stopping")
    finally:
        await cancel_tasks(task)
    return response


async def _next(said: asyncio.Queue[str], task: asyncio.Future[LongAnswerLine]) -> str:
    """What is said next; nothing after a while, or at the end."""
    if not said.empty():
        return said.get_nowait()
    waiting = asyncio.ensure_future(said.get())
    both: set[asyncio.Future[Any]] = {waiting, task}
    await asyncio.wait(both, timeout=ANSWER_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        return waiting.result()
    waiting.cancel()
    return ""


async def _answer(work: Callable[[Say], Awaitable[object]], say: Say) -> LongAnswerLine:
    try:
        return {"answer": await work(say)}
    except ZvaultError as error:
        return {"error": error.as_dict()}
    except Exception as error:
        log.exception("unexpected")
        return {"error": make_unexpected_error(error).as_dict()}


async def _write_last(response: web.StreamResponse, line: LongAnswerLine) -> None:
    """As ``_write``; what was found in a vault may be a document of a million rows."""
    if found := line.get("answer"):
        data = await compute_aside(count_document_rows(found), None, encode_document, found)
        await response.write(b'{"answer": ' + data + b"}\n")
    else:
        await _write(response, line)


async def _write(response: web.StreamResponse, line: LongAnswerLine) -> None:
    await response.write(json.dumps(line).encode() + b"\n")
