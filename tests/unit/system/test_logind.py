"""A logind that cannot be asked, on a real socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from zvault.core.errors import ToolMissing
from zvault.system import logind


async def test_a_bus_that_does_not_answer_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stock Debian, emulated and busy, took longer as it booted; what was told was "TimeoutError"."""
    gone = asyncio.Event()

    async def stay_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_unix_server(stay_silent, str(tmp_path / "bus"))
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    monkeypatch.setattr(logind, "LOGIND_DEADLINE", 0.1)
    try:
        with pytest.raises(ToolMissing, match=r"did not answer within 0\.1 s"):
            async with logind.hear_announcements():
                pass
    finally:
        gone.set()
        server.close()
