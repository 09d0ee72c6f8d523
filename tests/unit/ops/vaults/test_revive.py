"""A stuck pool whose device fails each read: is the device lost, or does it answer after all?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import DeviceGone
from zvault.ops.vaults import revive
from zvault.ops.vaults.revive import Revival

UP = SimpleNamespace(state="up", path="/dev/nbd0")
GONE = SimpleNamespace(state="gone", path="/dev/nbd0")


class Device:
    """One that fails so many reads, and whose connection is seen to be gone after so many looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: int, gone_after: int) -> None:
        self.reads = self.looks = 0
        self.fails, self.gone_after = fails, gone_after
        self.slept = 0.0
        monkeypatch.setattr(revive, "answer", self.answer)
        monkeypatch.setattr(revive.asyncio, "sleep", self.sleep)
        monkeypatch.setattr(revive.time, "monotonic", lambda: self.slept)
        monkeypatch.setattr(revive, "is_lost", lambda one: one is GONE)

    async def answer(self, path: str, _: object) -> None:
        self.reads += 1
        if self.reads <= self.fails:
            raise DeviceGone(f"{path} does not answer", "Input/output error", "see its server")

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds

    async def probe(self) -> list[Any]:
        self.looks += 1
        return [GONE if self.looks > self.gone_after else UP]

    async def lost(self) -> list[Any]:
        it: Any = Revival("cold", "cold", None, self, None, None)  # type: ignore[arg-type]
        return await it._lost_after_all(["/dev/nbd0"])  # type: ignore[no-any-return]


async def test_one_that_answers_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, fails=0, gone_after=99)
    assert await device.lost() == []
    assert device.looks == 0


async def test_one_whose_server_sees_late_that_its_connection_is_gone_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await Device(monkeypatch, fails=99, gone_after=3).lost() == [GONE]


async def test_one_that_answers_in_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await Device(monkeypatch, fails=3, gone_after=99).lost() == []


async def test_one_that_stays_as_it_is_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(monkeypatch, fails=999, gone_after=999)
    with pytest.raises(DeviceGone, match="does not answer") as failure:
        await device.lost()
    assert "zvaultctl vault up cold" in failure.value.next
    assert revive.NOTICED <= device.slept <= revive.NOTICED + 1
