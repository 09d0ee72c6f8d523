"""A program whose lines are passed on as it says them."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.unit.patience import FOR_EVER, eventually
from zvault.core.errors import ToolFailed, ToolMissing
from zvault.system.process.line_follower import follow_lines

TALK = f"""
import os, time
print("twö")
print(os.getpid(), flush=True)
print("half", end="", flush=True)
time.sleep({FOR_EVER})
"""


async def test_lines_come_as_they_are_said_and_the_end_is_ours():
    heard: list[str] = []
    following = asyncio.create_task(follow_lines([sys.executable, "-X", "utf8", "-c", TALK], heard.append))
    await eventually(lambda: len(heard) >= 2)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    one, pid = heard
    assert one == "twö"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


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
