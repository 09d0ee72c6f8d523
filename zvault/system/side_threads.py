"""Work that computes for long, done beside the event loop.

The loop feeds the watchdog, answers scrapes and reads what streams say. A listing of two million snapshots takes a
minute to understand: in the loop that was longer than the watchdog waits, and zvaultd was killed, started, and killed
over the same listing again. In a thread the interpreter itself gives the loop its turns, every few milliseconds; but
not within one call of C code, such as the sorting or splitting of the whole. So who computes here does it in parts.
"""

from __future__ import annotations

import asyncio
import codecs
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar, cast

from zvault.system.tasks import finish_work

MOST_IN_LOOP = 2000
"""Snapshots, datasets or lines that are worked through in the loop: a pass over one takes up to 20 us, so 40 ms."""

GARBAGE_HEAVY_COUNT = 10_000
"""Things whose objects are too many to look for garbage among them: some 10 ms."""

DECODE_PART = 1 << 18
"""Bytes that one call of C code is given: it takes them in milliseconds, also where all of them are malformed."""

_worker = ThreadPoolExecutor(1, "compute")
"""One thread, however much there is to do: what is known of a backup from look to look is never worked on by two, and
the interpreter would let only one of them go on anyway."""

_at_work: Counter[int] = Counter()
"""How many computations wait or go on that may change an object, by its id."""

_dying: SimpleQueue[list[Any] | dict[Any, Any]] = SimpleQueue()
"""What nobody has any more, on its way to the thread that frees it. Of all queues this one alone may be put to while
this thread is at it already, as where the garbage collector finds something in the middle of that."""

PutDying = Callable[[list[Any] | dict[Any, Any]], None]
"""Puts to the queue; known to each such object itself, for the names of this module go before the last of them."""

MOST_RESULTS = 8
"""Results of one computation, in a tuple."""

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")


async def compute_aside(
    size: int, owner: object, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Compute ``work`` on its arguments, by a thread where it is about more than MOST_IN_LOOP things.

    ``owner`` is an object that it may change, or None: while one is at work on it in the thread, no other is in the
    loop. Whoever is cancelled meanwhile waits for the end: nobody may find what was changed in half. The lists and
    dictionaries that are computed of very much are a LongList and a LongDict.
    """
    if size <= MOST_IN_LOOP and not _at_work[id(owner)]:
        return work(*args, **kwargs)
    if owner is not None:
        _at_work[id(owner)] += 1
    try:
        loop = asyncio.get_running_loop()
        if size >= GARBAGE_HEAVY_COUNT:
            return await finish_work(
                loop.run_in_executor(_worker, _uncollected, lambda: work(*args, **kwargs))
            )
        return await finish_work(loop.run_in_executor(_worker, lambda: work(*args, **kwargs)))
    finally:
        if owner is not None:
            _at_work[id(owner)] -= 1
            if not _at_work[id(owner)]:
                del _at_work[id(owner)]


class LongList(list[T]):
    """A list whose items die beside the event loop, one by one, whoever lets go of it last and wherever.

    A million rows die in one go with a plain list that has them, and no thread goes on meanwhile: that took up to 1.7 s
    of the event loop, at the end of whichever function had the list.
    """

    __slots__ = ()

    def __init__(self, items: Iterable[T] = ()) -> None:
        super().__init__(items)
        _start_freeing()

    def __del__(self, put: PutDying = _dying.put) -> None:
        """It lives on in the queue, and is empty when it dies there: Python asks each object this only once."""
        if self:
            put(self)


class LongDict(dict[K, T]):
    """As LongList."""

    __slots__ = ()

    def __init__(self, items: Mapping[K, T] | Iterable[tuple[K, T]] = ()) -> None:
        super().__init__(items)
        _start_freeing()

    def __del__(self, put: PutDying = _dying.put) -> None:
        """As of LongList."""
        if self:
            put(self)


_LONG: Mapping[type, Callable[[Any], Any]] = {list: LongList, dict: LongDict}


@cache
def _start_freeing() -> None:
    threading.Thread(target=_free_all, name="free", daemon=True).start()


def _free_all() -> None:
    """Free what comes, for ever. The interpreter gives the other threads their turns between two items."""
    while True:
        items = _dying.get()
        take: Callable[[], object] = items.popitem if isinstance(items, dict) else items.pop
        while items:
            take()
        del items, take


def _make_long(found: T) -> T:
    """What was computed of very much, with its lists and dictionaries as such that die beside the loop. All else is the
    same object: by that somebody may know it.
    """
    some: Any = found
    if type(some) is tuple and len(some) <= MOST_RESULTS and any(type(one) in _LONG for one in some):
        some = tuple(_LONG[type(one)](one) if type(one) in _LONG else one for one in some)
    elif type(some) in _LONG:
        some = _LONG[type(some)](some)
    return cast(T, some)


def _uncollected(work: Callable[[], T]) -> T:
    """Do it while nobody looks for garbage: among millions of objects that takes seconds, in which no thread goes on.

    If many are left of it, they are not looked at later either. They are plain values, which go as soon as nobody has
    them any more. What became garbage lately is collected first: it would stay for ever.
    """
    if not gc.isenabled():
        return _make_long(work())
    gc.collect(1)
    gc.disable()
    try:
        return _make_long(work())
    finally:
        if gc.get_count()[0] >= GARBAGE_HEAVY_COUNT:
            gc.freeze()
        gc.enable()


async def decode_text(data: bytes | bytearray) -> str:
    """Bytes as text, in which what is no UTF-8 is replaced."""
    if len(data) <= DECODE_PART:
        return data.decode(errors="replace")
    return await compute_aside(len(data), None, _decode_in_parts, data)


def _decode_in_parts(data: bytes | bytearray) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    view = memoryview(data)
    parts = [decoder.decode(view[start : start + DECODE_PART]) for start in range(0, len(data), DECODE_PART)]
    return "".join((*parts, decoder.decode(b"", final=True)))


def split_lines(text: str) -> list[str]:
    """As str.splitlines has them, in parts."""
    lines: list[str] = []
    for part in _whole_lines(text):
        lines += part.splitlines()
    return lines


def _whole_lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + DECODE_PART) + 1 or len(text)
        yield text[start:end]
        start = end
