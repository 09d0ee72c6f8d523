"""What systemd is asked of units, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from zvault.system import system_bus
from zvault.system.system_bus import UnitState, read_unit_states


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each conversation with systemd; ``x.service`` is not known there, and of ``broken`` nothing is told."""
    found: list[list[str]] = []

    async def told(units: Sequence[str]) -> dict[str, UnitState] | None:
        found.append(list(units))
        await asyncio.sleep(0.01)
        if "broken" in units:
            return None
        return {unit: UnitState(unit, True, "active", "success", 7) for unit in units if unit != "x.service"}

    monkeypatch.setattr(system_bus, "_told", told)
    return found


async def test_who_asks_at_once_asks_together_and_is_told_of_their_own(asked: list[list[str]]) -> None:
    one, other, none = await asyncio.gather(
        read_unit_states(["a.service", "b.service"]),
        read_unit_states(["b.service"]),
        read_unit_states(["x.service"]),
    )
    assert asked == [["a.service", "b.service", "x.service"]]
    assert one is not None
    assert other is not None
    assert (set(one), set(other), none) == ({"a.service", "b.service"}, {"b.service"}, {})


async def test_who_asks_later_is_told_what_is_then(asked: list[list[str]]) -> None:
    first = asyncio.ensure_future(read_unit_states(["a.service"]))
    while not asked:
        await asyncio.sleep(0)
    await asyncio.gather(first, read_unit_states(["a.service"]))
    assert asked == [["a.service"], ["a.service"]]


async def test_who_gives_up_keeps_no_other_from_the_answer(asked: list[list[str]]) -> None:
    first = asyncio.ensure_future(read_unit_states(["a.service"]))
    second = asyncio.ensure_future(read_unit_states(["b.service"]))
    while not asked:
        await asyncio.sleep(0)
    first.cancel()
    assert set(await second or {}) == {"b.service"}
    assert await read_unit_states(["broken"]) is None
