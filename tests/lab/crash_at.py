"""zvaultd, but killed between two calls to the world outside, or in the middle of one: by SIGKILL, or by a power cut.

A drop-in has systemd start this instead of zvaultd. It changes nothing of the daemon: from outside it wraps the
places where the daemon touches what outlives it, and counts. Those are the processes it starts, the requests to
libzfs_core, leases, logind and the history. Each such call is a boundary of its own, ``before`` it; one that
changes something is a second one, ``during`` it, when it was begun and has not been answered.

What happens is told through files below ``FOLDER``: ``trace`` gets a line a boundary, its name, a tab, and which one
of that name it is, from 1. The daemon that comes to the boundary of ``at`` renames that to ``died`` and dies.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

FOLDER = Path("/run/zvault-crash")

SERVER = "/usr/bin/python3 -P /src/tests/lab/crash_at.py"

phase: contextvars.ContextVar[str] = contextvars.ContextVar("phase", default="")
"""What the present task belongs to: ``start`` or ``run``. Whatever else the daemon does has no boundaries."""

counts: Counter[str] = Counter()

READS = re.compile(
    r"zfs (list|get|holds|send -nvP)|zpool list|systemctl show|journalctl|setpriv .* mbuffer|wipefs|blkid|udevadm"
    r"|dmesg|nbd-client --help|nbdkit \S+ --dump-plugin|cat /proc/|grep -srH|/usr/bin/python3 -I -S -c"
    r"|/usr/bin/python3 -I -S \S+/lzc_stream_child"  # what it is asked for has boundaries of its own
)
CALLS_THAT_READ = {"send_space", "range_space"}

_VARYING = (
    (re.compile(r"zvault_\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "SNAP"),
    (re.compile(r"1-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"), "TOKEN"),
    (re.compile(r"zvault[_-][0-9a-f]+_[0-9a-f]+"), "MARK"),
    (re.compile(r"zvault:[0-9a-f]+"), "HOLD"),
    (re.compile(r"@\d+\.\d+"), "@TIME"),
    (re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}"), "RUN"),
    (re.compile(r"org.zvault:sent=[0-9a-f]+"), "org.zvault:sent=GUID"),
)


def spoken(words: str) -> str:
    """The same for every run, in one line: without what is new in each."""
    for pattern, name in _VARYING:
        words = pattern.sub(name, words)
    return " ".join(words.split())


def arm(point: str, *, how: str = "kill", after: float = 0) -> None:
    """Have the daemon die at that line of the trace, or ``after`` seconds; ``how`` is kill or power."""
    (FOLDER / "at.new").write_text(json.dumps({"point": point, "how": how, "after": after}))
    (FOLDER / "at.new").rename(FOLDER / "at")


def die(how: str) -> None:
    """Now."""
    if how == "power":
        Path("/proc/sysrq-trigger").write_text("c")  # nothing is written out any more, all memory is lost
    os.kill(os.getpid(), signal.SIGKILL)


def reach(moment: str, what: str) -> None:
    """Note a boundary, and die there if that was asked for; ``moment`` is before or during."""
    if not (here := phase.get()):
        return
    name = f"{here}: {moment} {spoken(what)}"
    counts[name] += 1
    point = f"{name}\t{counts[name]}"
    with (FOLDER / "trace").open("a") as trace:
        trace.write(f"{point}\n")
    if (FOLDER / "at").exists() and (at := json.loads((FOLDER / "at").read_text()))["point"] == point:
        (FOLDER / "at").rename(FOLDER / "died")
        if at["after"]:
            threading.Timer(at["after"], die, [at["how"]]).start()
        else:
            die(at["how"])


def enters(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A coroutine all of which, tasks it starts included, belongs to a phase."""

    @functools.wraps(call)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        counts.clear()
        token = phase.set(name)
        try:
            return await call(*args, **kwargs)
        finally:
            reach("after", "the last call")
            phase.reset(token)

    return wrapped


def before(told: Callable[..., str], call: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a boundary before it."""

    @functools.wraps(call)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        reach("before", told(*args, **kwargs))
        return call(*args, **kwargs)

    return wrapped


def spawning(spawn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Before a process, and while it runs if it changes anything."""

    @functools.wraps(spawn)
    async def wrapped(argv: Any, **kwargs: Any) -> Any:
        words = " ".join(argv)
        reach("before", words)
        process = await spawn(argv, **kwargs)
        if not READS.match(words):
            reach("during", words)
        return process

    return wrapped


def call_words(request: Any) -> str:
    """A request, told by its pools: which datasets share a call with which is a matter of when each one asks."""
    names = request["arguments"]
    some = names.get("names") or names.get("marks") or names.get("snapshot_name") or names.get("ranges") or ()
    pools = {re.split("[/@#]", str(name))[0] for name in ([some] if isinstance(some, str) else some)}
    return " ".join([request["call"], *sorted(pools)])


def asking(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Before a request, and when it was sent and not yet answered if it changes anything."""

    @functools.wraps(ask)
    async def wrapped(self: Any, request: Any, deadline: float) -> Any:
        words = call_words(request)
        reach("before", words)
        answer = asyncio.ensure_future(ask(self, request, deadline))
        if request["call"] not in CALLS_THAT_READ:
            await asyncio.sleep(0)  # now it has begun: the request is in the pipe
            reach("during", words)
        return await answer

    return wrapped


def telling(tell: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Before a small stream that a helper is asked for, and when it was asked."""

    @functools.wraps(tell)
    async def wrapped(self: Any, request: Any) -> Any:
        if "parts" not in request:
            return await tell(self, request)
        words = f"stream in helper: {request['parts'][0]['snapshot']} {request['parts'][0]['into']}"
        reach("before", words)
        await tell(self, request)
        reach("during", words)
        return None

    return wrapped


def wrap() -> None:
    """Put a boundary at every place where the daemon touches the world outside."""
    from zvault.system.process import spawn

    spawn.spawn_program = spawning(spawn.spawn_program)  # before anybody imports it from there

    from zvault.daemon.app import ZvaultDaemon
    from zvault.daemon.history import RunHistory
    from zvault.daemon.job_runner import JobRunner
    from zvault.system import logind, tasks
    from zvault.system.process.json_child import JsonChild
    from zvault.system.record_store import RecordStore

    JsonChild.ask = asking(JsonChild.ask)
    JsonChild.tell = telling(JsonChild.tell)
    RecordStore.put = before(lambda _, name, data: f"lease put {name}", RecordStore.put)
    RecordStore.drop = before(lambda _, name: f"lease drop {name}", RecordStore.drop)
    RunHistory.begin = before(lambda *_: "history begin", RunHistory.begin)
    RunHistory.end = before(lambda *_: "history end", RunHistory.end)
    logind._call = before(lambda member, *_: f"logind {member}", logind._call)
    JobRunner._conduct = enters("run", JobRunner._conduct)
    ZvaultDaemon.reconcile = enters("start", ZvaultDaemon.reconcile)
    # It looks every two seconds: how often within a run would depend on how fast that is.
    tasks.WATCH_EVERY = 3600.0


def main() -> None:
    """Live as zvaultd does."""
    FOLDER.mkdir(exist_ok=True)
    wrap()
    from zvault.daemon.main import main as zvaultd

    sys.argv[0] = "zvaultd"
    zvaultd()


if __name__ == "__main__":
    main()
