"""How long a test waits for what must come at last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds. It bounds nothing that a test is about: a machine may be slow, or stand still for some seconds."""

FOR_EVER = 600
"""Seconds of what must not be waited for: whoever does all the same is found to, for that is more than ``PATIENCE``."""


async def eventually(look: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not look():
            await asyncio.sleep(0.01)
