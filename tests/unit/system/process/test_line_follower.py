"""A program whose lines are passed on as it says them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed, ToolMissing
from zvault.system.process.line_follower import follow_lines

TALK = "import sys, time; print('one'); print('twö', flush=True); print('half', end='', flush=True); time.sleep(60)"


async def test_lines_come_as_they_are_said_and_the_end_is_ours():
    heard: list[str] = []
    following = asyncio.create_task(follow_lines([sys.executable, "-X", "utf8", "-c", TALK], heard.append))
    async with asyncio.timeout(10):
        while len(heard) < 2:
            await asyncio.sleep(0.01)
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert heard == ["one", "twö"]
    assert not any("time.sleep(60)" in path.read_text() for path in cmdlines()), "it was not put down"


def cmdlines() -> list[Path]:
    me = Path("/proc/self").resolve().name
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = status.read_text().rpartition(")")[2].split()
            if words[1] == me and words[0] != "Z":
                found.append(status.parent / "cmdline")
    return found


async def test_one_that_ends_is_told_with_its_last_words():
    with pytest.raises(ToolFailed) as failure:
        await follow_lines(["sh", "-c", "echo a; echo 'no module' >&2; exit 3"], lambda _: None)
    assert failure.value.why == "no module"
    with pytest.raises(ToolFailed) as failure:
        await follow_lines(["sh", "-c", "exit 3"], lambda _: None)
    assert failure.value.why == "exit status 3"


async def test_one_that_is_not_there():
    with pytest.raises(ToolMissing):
        await follow_lines(["no-such-program"], lambda _: None)
