"""A program's deadline that is over when a test says so: once it has come to what it is to be doing then."""

from __future__ import annotations

import asyncio

import pytest


class Deadline:
    """The next deadline of so many seconds, in place of real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self._timeout: asyncio.Timeout | None = None
        real = asyncio.timeout

        def timeout(wanted: float | None) -> asyncio.Timeout:
            if self._timeout is not None or wanted != seconds:
                return real(wanted)
            self._timeout = real(None)
            return self._timeout

        monkeypatch.setattr(asyncio, "timeout", timeout)

    def over(self) -> None:
        """It is over now."""
        assert self._timeout is not None, "nothing has this deadline"
        if not self._timeout.expired():
            self._timeout.reschedule(0)
