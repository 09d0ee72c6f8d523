"""Whether a program that ended left open files behind, and short programs in Python."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.unit.patience import eventually
from zvault.system.process.runner import HostRunner

RUNNER = HostRunner()


def python(code: str) -> list[str]:
    # Without PYTHONUNBUFFERED: unbuffered, Python drops what a pipe does not take at once.
    return [sys.executable, "-E", "-S", "-c", code]


def fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.asynccontextmanager
async def no_more_fds() -> AsyncIterator[None]:
    await RUNNER.run(["true"])  # what asyncio opens once and keeps
    before = fds()
    yield
    await eventually(lambda: fds() <= before)
