"""How values that are not ours are borrowed: what to write so that they are as wanted, and later as they were.

A value is taken over once, from whoever had set it, and goes back to that when nobody wants another. What somebody
else has changed in the meantime is theirs. Whoever carries this out writes ``Moves.during`` down first, then the
values, then ``after``; a crash at any point leaves a note from which the next call goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeasedValue:
    """A value that was borrowed: what it was ``before``, and the values it may have if only we have touched it.

    That is one value at rest; while it is being written two, the old and the new.
    """

    before: str
    ours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moves:
    """What to write, in this order; the note to keep meanwhile; and what somebody ``else`` has put there."""

    write: Mapping[str, str]
    during: Mapping[str, LeasedValue]
    others: Mapping[str, str]


def moves(target: Mapping[str, str], held: Mapping[str, LeasedValue], now: Mapping[str, str]) -> Moves:
    """How to get from what is ``now`` to ``target``, and back to what was before for what is held but not in it.

    Names that are not in ``now`` do not exist any more, and are forgotten.
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
    return Moves(_in_order(write, now), during, others)


def after(done: Moves, target: Mapping[str, str], now: Mapping[str, str]) -> dict[str, LeasedValue]:
    """The note to keep when all is written; ``now`` is what the values have become."""
    kept = {}
    for name, one in done.during.items():
        if name in done.others or name not in now:
            kept[name] = one
        elif name in target:
            # Whatever was made of what we wrote is ours; if it was refused, that is what was before.
            kept[name] = LeasedValue(one.before, (now[name],))
        elif now[name] != one.before:
            kept[name] = one
    return kept


def _in_order(write: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """A minimum falls before its maximum does, and rises after it, so that it is never above it."""

    def turn(name: str) -> tuple[int, str]:
        if not name.endswith("_min_active"):
            return 1, name
        return (0 if _number(write[name]) < _number(now[name]) else 2), name

    return {name: write[name] for name in sorted(write, key=turn)}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
