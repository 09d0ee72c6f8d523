"""Which programs wait in the kernel, so that no more are sent after them.

A program that asks for a pool that hangs sleeps in the kernel and cannot be killed. Every further one does the same: 42
unkillable ``zpool list`` were seen after 11 minutes, two more every 30 seconds. So one look at a pool goes at a time
until it is seen that the kernel answers, and while one stands still no other is begun, whatever it would ask for. What
changes something is always begun, also a second time: of two ``zpool clear`` the first may wait for a sync that never
ends, and the next one works (ops/vaults/clear_suspended_pool.py). So is the ``zpool list`` that has to come before it,
behind what hangs in a dataset (``allow_rescue_looks``). But no second import of a pool follows one that was given up:
it would wait for the same devices, or for the first.

An import holds the lock that every look at any pool takes, for as long as it reads from its devices (spa_import in
spa.c, OpenZFS up to 2.3): a minute or more where they are slow. While this process imports one, a look at another that
stands still shows nothing, and its time does not run.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from zvault.core.errors import DeadlineExceeded

YOUNG = 0.5
"""Seconds for which the next look waits in any case for one that has just begun: nearly all have ended by then, and
before that nobody can tell whether it gets on."""

STANDS_STILL = 30.0
"""Seconds without a step in the kernel after which a look counts as one that hangs, and others are refused at once.
Until then they wait for it: storage that is slow today may take that long over one request."""

PROOF_LASTS = 1.0
"""Seconds for which a look that got on shows that the kernel answers."""

SAMPLE_EVERY = 0.2
"""Seconds between two looks at whether a program gets on. What was not looked at counts as no more than this: the whole
machine may have stood still."""

ALL_POOLS = ""
"""What a look at no certain pool asks for."""

LIBZFS_CORE = "libzfs_core"
"""What stands for a program where one of its calls was left to the kernel."""

WAITS_PROC = Path("/proc")

_helps: ContextVar[bool] = ContextVar("helps", default=False)
"""Whether who looks is about to bring a pool back."""

_TAKES_VALUE = re.compile("-[A-Za-z]*[otdSs]", re.ASCII)
"""Options of ``list`` and ``get`` whose value is the next word: ``-o name``, ``-Hpo name``."""

_LOOKS = {
    "zfs": frozenset({"list", "get", "holds", "diff", "userspace", "groupspace"}),
    "zpool": frozenset({"list", "get", "status", "iostat", "history"}),
}


class EndingProcess(Protocol):
    """A process, as asyncio has it."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None:
        """Its exit status; None while it has not ended, as far as is known."""
        ...


@contextmanager
def allow_rescue_looks() -> Iterator[None]:
    """Look within the block to bring a pool back: no ``zpool`` command waits for what hangs in a dataset of it.

    A ``zfs list``, or a hold that a run was making, sleeps in the kernel from the moment when the storage is lost until
    the pool goes on. Were the look that its revival begins with refused for that, it would never go on.
    """
    before = _helps.set(True)
    try:
        yield
    finally:
        _helps.reset(before)


def _command(argv: Sequence[str]) -> list[str]:
    """What is run, without ``env`` and the variables that it sets."""
    words = list(argv)
    if words[:1] == ["env"]:
        words = words[1:]
        while words and "=" in words[0]:
            words = words[1:]
    return words


def _is_of_pool(argv: Sequence[str]) -> bool:
    """True if a command asks for a pool itself (``zpool``), and not for what is in it."""
    return Path((_command(argv) or [""])[0]).name == "zpool"


def find_examined_pool(argv: Sequence[str]) -> str | None:
    """The pool that a command looks at, ``ALL_POOLS`` where it names none; None where it is no look at a pool."""
    words = _command(argv)
    if len(words) < 2 or words[1] not in _LOOKS.get(Path(words[0]).name, ()):
        return None
    names, rest = [], iter(words[2:])
    for word in rest:
        if _TAKES_VALUE.fullmatch(word):
            next(rest, None)
        elif word[:1].isalpha():
            names.append(word)
    if words[1] == "get":
        if not names:
            return None  # it only tells which properties there are
        names = names[1:]  # the first are properties
    # What follows the name of a pool is a device of it.
    name = "" if not names else names[0] if _is_of_pool(argv) else names[-1]
    return re.split(r"[/@#]", name, maxsplit=1)[0] if name else ALL_POOLS


@dataclass
class WaitingProgram:
    """A program: the pool that it looks at (None: none), when it began, and how far it was when last seen.

    ``proven``: when it was last seen to get on (monotonic seconds); ``still``: for how long it has not since.
    ``hangs_from``: for one that was cancelled, when it counts as one that hangs (monotonic seconds). ``limit`` ends it
    when its time is over, ``deadline`` seconds.
    """

    argv: tuple[str, ...]
    pool: str | None
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)
    process: EndingProcess | None = None
    steps: str = ""
    still: float = 0.0
    proven: float = -math.inf
    hangs_from: float = -math.inf
    limit: asyncio.Timeout | None = None
    deadline: float = math.inf
    sampled: float = field(default_factory=time.monotonic)

    def sample(self, proc: Path) -> None:
        """See whether it gets on: what does not sleep in the kernel does, and so does what was woken since.

        While it is young nothing is seen by that: it may not have asked the kernel yet.
        """
        now = time.monotonic()
        if self.process is None or now - self.began < YOUNG or now - self.sampled < SAMPLE_EVERY / 2:
            return
        before, (state, self.steps) = self.steps, read_steps(self.process.pid, proc)
        if state != "D" or (before and before != self.steps):
            self.proven, self.still = now, 0.0
        elif before:
            self.still += min(now - self.sampled, SAMPLE_EVERY)
        self.sampled = now

    def stop_time(self) -> None:
        """Its time does not run until it is started anew."""
        self._end_at(None)

    def start_time(self) -> None:
        """Its time begins anew, and nothing that was seen of it before shows that it stands still."""
        self.still = 0.0
        self._end_at(asyncio.get_running_loop().time() + self.deadline)

    def _end_at(self, when: float | None) -> None:
        # What is over just now stays so.
        if self.limit is not None:
            with suppress(RuntimeError):
                self.limit.reschedule(when)

    def gone(self, proc: Path) -> bool:
        """True if it has ended, maybe without having been reaped yet."""
        if self.process is None:
            return False
        return self.process.returncode is not None or read_steps(self.process.pid, proc)[0] in {"", "Z", "X"}


def read_steps(pid: int, proc: Path = WAITS_PROC) -> tuple[str, str]:
    """A process's state, and how often it has been put to sleep; empty where there is none. Never waits for it."""
    try:
        lines = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "", ""
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    switches = [
        found.get(key, "").strip() for key in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    ]
    return found.get("State", " ").strip()[:1], " ".join(switches)


class KernelWaits:
    """The programs of this process that are at work, or were given up and are still in the kernel."""

    def __init__(self, proc: Path = WAITS_PROC) -> None:
        self._proc = proc
        self._running: list[WaitingProgram] = []
        self._left: list[WaitingProgram] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._imports = 0

    @property
    def importing(self) -> bool:
        """Whether this process imports a pool: no look at any then shows whether that one hangs."""
        return self._imports > 0

    def count_left(self) -> int:
        """Count the programs that were given up and are still in the kernel."""
        self._forget_gone()
        return len(self._left)

    def refuse_look(self, pool: str, argv: Sequence[str] = ()) -> None:
        """Raise DeadlineExceeded while a look at a pool that was given up, or stands still, is in the kernel.

        ``argv``: the look that is to be begun.
        """
        self._forget_gone()
        for one in (*self._left, *self._running):
            if _is_before(one, pool, argv) and self._hangs(one):
                raise make_unanswered_error(one, pool)

    def _refuse_import(self, argv: Sequence[str]) -> None:
        """Raise DeadlineExceeded while an import of the same pool, the last word, was given up and is in the kernel."""
        self._forget_gone()
        for one in self._left:
            if _is_import(one.argv) and one.argv[-1] == argv[-1]:
                raise make_unanswered_error(one, argv[-1])

    @asynccontextmanager
    async def enter(self, argv: Sequence[str], patience: float) -> AsyncIterator[WaitingProgram]:
        """Run a program within the block, once it may be begun.

        Raises DeadlineExceeded where it may not, and for a look that had no turn within ``patience`` seconds.
        """
        if _is_import(argv):
            self._refuse_import(argv)
        waiting = WaitingProgram(tuple(argv), find_examined_pool(argv))
        if waiting.pool is not None:
            await self._wait_for_turn(waiting.pool, argv, patience)
            waiting.began, waiting.began_at, waiting.sampled = time.monotonic(), time.time(), time.monotonic()
            self._running.append(waiting)
        with self._import() if _is_import(argv) else nullcontext():
            try:
                yield waiting
            finally:
                if waiting in self._running:
                    self._running.remove(waiting)
                    self._wake()

    @contextmanager
    def _import(self) -> Iterator[None]:
        """Import a pool within the block: the time of looks does not run."""
        self._imports += 1
        for one in self._running:
            one.stop_time()
        try:
            yield
        finally:
            self._imports -= 1
            if not self._imports:
                for one in self._running:
                    one.start_time()

    @asynccontextmanager
    async def limit(self, waiting: WaitingProgram, deadline: float) -> AsyncIterator[None]:
        """Raise TimeoutError where a program has not ended within so many seconds."""
        waiting.deadline = deadline
        runs = waiting.pool is None or not self.importing
        async with asyncio.timeout(deadline if runs else None) as waiting.limit:
            yield

    def leave(self, waiting: WaitingProgram, *, cancelled: bool = False) -> None:
        """A program was killed and has not ended: it is left to the kernel.

        That of one that had its time is taken for one that hangs; one that was ``cancelled`` showed nothing so far.
        """
        waiting.hangs_from = time.monotonic() + STANDS_STILL if cancelled else -math.inf
        self._left.append(waiting)

    async def _wait_for_turn(self, pool: str, argv: Sequence[str], patience: float) -> None:
        """Wait until every look at the pool that goes has shown that the kernel answers. Raises DeadlineExceeded."""
        began = time.monotonic()
        while True:
            self.refuse_look(pool, argv)
            others = [one for one in (*self._left, *self._running) if _is_before(one, pool, argv)]
            doubtful = [one for one in others if self._in_doubt(one)]
            if not doubtful:
                return
            if self.importing:
                began = time.monotonic()
            if time.monotonic() - began >= patience:
                raise make_unanswered_error(doubtful[0], pool)
            await self._next_end(SAMPLE_EVERY)

    async def _next_end(self, seconds: float) -> None:
        """Wait until a look has ended, or so long."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(ended)
        try:
            await asyncio.wait({ended}, timeout=seconds)
        finally:
            self._waiters.remove(ended)

    def _wake(self) -> None:
        for ended in self._waiters:
            # The loop of who waited may be closed by now, where there were several.
            with suppress(RuntimeError):
                if not ended.done():
                    ended.set_result(None)

    def _in_doubt(self, one: WaitingProgram) -> bool:
        one.sample(self._proc)
        if one.process is None:
            return _young(one)
        return not one.gone(self._proc) and time.monotonic() - one.proven > PROOF_LASTS

    def _hangs(self, one: WaitingProgram) -> bool:
        if self.importing:
            return False
        return time.monotonic() >= one.hangs_from if one in self._left else self._stands_still(one)

    def _stands_still(self, one: WaitingProgram) -> bool:
        one.sample(self._proc)
        return not one.gone(self._proc) and one.still >= STANDS_STILL

    def _forget_gone(self) -> None:
        self._left = [one for one in self._left if not one.gone(self._proc)]


KERNEL_WAITS = KernelWaits()
"""Those of this process: what it has left to the kernel is nobody's who was passed in."""


def _is_import(argv: Sequence[str]) -> bool:
    """Whether a command imports a pool."""
    return _is_of_pool(argv) and _command(argv)[1:2] == ["import"]


def _young(one: WaitingProgram) -> bool:
    return time.monotonic() - one.began < YOUNG


def _is_before(one: WaitingProgram, pool: str, argv: Sequence[str]) -> bool:
    """True if a look, ``argv``, at a pool has to wait for this one."""
    if one.pool is None or not _concerns(one.pool, pool):
        return False
    if not _is_of_pool(argv) or _is_of_pool(one.argv):
        return True
    # A change waits for its transaction group, which on slow storage takes seconds: no sign that the pool hangs.
    return not _helps.get() and one.argv[:1] != (LIBZFS_CORE,)


def _concerns(one: str, other: str) -> bool:
    return one == other or ALL_POOLS in (one, other)


def make_unanswered_error(one: WaitingProgram, what: str) -> DeadlineExceeded:
    """The error for what is not begun because an earlier program has had no answer."""
    since = time.strftime("%H:%M", time.localtime(one.began_at))
    pid = f" (process {one.process.pid})" if one.process is not None else ""
    return DeadlineExceeded(
        f"'{what}' is not asked: the kernel has not answered since {since}",
        f"'{' '.join(one.argv[:2])}'{pid}, begun then, still waits in it and cannot be ended",
        "bring the storage back; where it has not ended some minutes after that, only a reboot helps: see"
        " 'zpool status' and the kernel's log",
    )
