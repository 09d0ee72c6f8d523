"""Leases of host settings: which values to write so that settings are as wanted, and later as they were.

zvault records a setting's original value once and restores it when no vault wants another value. If somebody else
changes the setting meanwhile, zvault leaves it alone. The caller stores ``ValueMoves.during`` first, then writes the
values, then stores the result of ``list_leases_after``. After a crash at any point the next call continues from the
stored note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeasedValue:
    """A leased setting: its value ``before``, and ``ours``: the values it can have if nobody but zvault changed it.

    ``ours`` is one value normally, and two during a write: the old and the new one.
    """

    before: str
    ours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueMoves:
    """The moves to a target: what to ``write``, in this order; the note to store ``during`` it; values that somebody
    else set (``others``).
    """

    write: Mapping[str, str]
    during: Mapping[str, LeasedValue]
    others: Mapping[str, str]


def plan_value_moves(
    target: Mapping[str, str], held: Mapping[str, LeasedValue], now: Mapping[str, str]
) -> ValueMoves:
    """Plan the moves from the values ``now`` to ``target``. Settings in ``held`` but not in ``target`` get their old
    value.

    Names that are missing in ``now`` no longer exist and are dropped.
    """
    write, during, others = {}, {}, {}
    for name in sorted((target.keys() | held.keys()) & now.keys()):
        current, wanted = now[name], target.get(name)
        one = held.get(name) or LeasedValue(current, (current,))
        if current not in one.ours:
            others[name] = current
            if wanted is not None:
                during[name] = one
            continue
        goal = one.before if wanted is None else wanted
        during[name] = LeasedValue(one.before, (current, goal))
        if goal != current:
            write[name] = goal
    return ValueMoves(_in_order(write, now), during, others)


def list_leases_after(
    done: ValueMoves, target: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, LeasedValue]:
    """The note to store when all is written; ``now`` has the values read back."""
    kept = {}
    for name, one in done.during.items():
        if name in done.others or name not in now:
            kept[name] = one
        elif name in target:
            # The value read back is ours, even if the kernel changed it. After a refusal it is the old value.
            kept[name] = LeasedValue(one.before, (now[name],))
        elif now[name] != one.before:
            kept[name] = one
    return kept


def _in_order(write: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Lower a minimum before its maximum, and raise it after, so that it is never above its maximum."""

    def turn(name: str) -> tuple[int, str]:
        if not name.endswith("_min_active"):
            return 1, name
        return (0 if _number(write[name]) < _number(now[name]) else 2), name

    return {name: write[name] for name in sorted(write, key=turn)}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
