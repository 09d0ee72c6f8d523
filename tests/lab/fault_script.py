"""Scripts of faults that a storage has, drawn by chance; how the storage behaves at each moment of one. Pure.

A script has an operation of zvault's, and the faults that the storage has while that goes on. Each line of text is one
script (``format_script``, ``parse_script``), so that what failed can be tried again and made smaller
(``shrink_script``). faulty_nbd.py is a server that behaves by a script, test_fault_scripts.py judges zvault by it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

KINDS = ("read", "write", "flush", "trim", "zero")
"""Kinds of requests, as NBD has them."""

WRITING = frozenset(KINDS[1:])

OPERATIONS = ("run", "restore", "scrub", "export")

STALL, SLOW, ERROR, READ_ONLY = "stall", "slow", "error", "read-only"
SHRINK, GROW, VANISH, RENAME, HALF = "shrink", "grow", "vanish", "rename", "half"
BACK, POWER = "back", "power"

NAMES = (STALL, SLOW, ERROR, READ_ONLY, SHRINK, GROW, VANISH, RENAME, HALF, BACK, POWER)
"""``stall``: requests of some kinds are answered when it ends. ``slow``: each is answered ``amount`` seconds late.
``error``: each fails with EIO, as all that write do with EPERM of ``read-only``. ``shrink``, ``grow``: the device is
``amount`` MiB smaller or larger than it was. ``vanish``: nothing listens, and no connection lives. ``rename``: the
export has another name for new connections, and the old ones have ended. ``half``: every second connection is answered
when it ends. ``back``: the disk is as it was ``amount`` seconds ago, for good, and the connections have ended.
``power``: the same, of what was not flushed.
"""

BY_KIND = frozenset({STALL, SLOW, ERROR})

BY_AMOUNT = frozenset({SLOW, SHRINK, GROW, BACK})

FOR_GOOD = frozenset({BACK, POWER})
"""They befall the disk at one moment, and last for ever."""

TIMEOUT = 3.0
"""Seconds until the kernel gives a device up: faults are drawn shorter and longer than that."""

FAULTS_AT_MOST = 3
LATEST = 4.0
LONGEST = 9.0


@dataclass(frozen=True, order=True)
class Fault:
    """One fault: from ``at`` seconds after the script's start, for ``lasts`` seconds (0: it befalls the disk)."""

    at: float
    name: str
    lasts: float = 0.0
    kinds: tuple[str, ...] = ()
    amount: float = 0.0

    def is_on(self, now: float) -> bool:
        """True while it lasts."""
        return self.at <= now < self.at + self.lasts

    @property
    def end(self) -> float:
        """When it is over."""
        return self.at + self.lasts


@dataclass(frozen=True)
class Script:
    """What zvault does, and what befalls its storage meanwhile, in the order in which that begins."""

    operation: str
    faults: tuple[Fault, ...] = ()

    @property
    def end(self) -> float:
        """When the storage is sound again, in seconds after the start."""
        return max((fault.end for fault in self.faults), default=0.0)

    def has(self, *names: str) -> bool:
        """True if a fault of any of these names is in it."""
        return any(fault.name in names for fault in self.faults)


@dataclass(frozen=True)
class Behaviour:
    """How a storage behaves at one moment."""

    stalled: frozenset[str] = frozenset()
    delays: dict[str, float] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    read_only: bool = False
    grown: int = 0
    """MiB, negative where it shrank."""
    listens: bool = True
    renamed: bool = False
    half: bool = False


def behave_at(faults: Iterable[Fault], now: float) -> Behaviour:
    """How a storage with these faults behaves ``now`` seconds after the start: all that last are so at once."""
    on = [fault for fault in faults if fault.is_on(now)]
    delays: dict[str, float] = {}
    errors: dict[str, int] = {}
    for fault in on:
        for kind in fault.kinds:
            if fault.name == SLOW:
                delays[kind] = max(delays.get(kind, 0.0), fault.amount)
            if fault.name == ERROR:
                errors[kind] = errno.EIO
    names = {fault.name for fault in on}
    if READ_ONLY in names:
        errors |= dict.fromkeys(WRITING, errno.EPERM)
    grown = sum(
        fault.amount * (1 if fault.name == GROW else -1) for fault in on if fault.name in {GROW, SHRINK}
    )
    return Behaviour(
        stalled=frozenset(kind for fault in on if fault.name == STALL for kind in fault.kinds),
        delays=delays,
        errors=errors,
        read_only=READ_ONLY in names,
        grown=round(grown),
        listens=VANISH not in names,
        renamed=RENAME in names,
        half=HALF in names,
    )


def list_breaks(faults: Iterable[Fault]) -> list[float]:
    """The moments at which every connection ends: a server that is another one afterwards, or none."""
    return sorted(fault.at for fault in faults if fault.name in {VANISH, RENAME, SHRINK, GROW, *FOR_GOOD})


def draw_script(seed: int, names: Sequence[str] = NAMES) -> Script:
    """A script by chance, of faults of these names; the same seed gives the same.

    At most one fault of a script befalls the disk for good, and with one that shrinks it none grows it.
    """
    chance = random.Random(seed)
    operation = chance.choice(OPERATIONS)
    faults: list[Fault] = []
    for _ in range(chance.randint(1, FAULTS_AT_MOST)):
        taken = {fault.name for fault in faults}
        shut = FOR_GOOD if taken & FOR_GOOD else frozenset()
        shut |= {SHRINK, GROW} if taken & {SHRINK, GROW} else frozenset()
        faults.append(draw_fault(chance, [name for name in names if name not in shut]))
    return Script(operation, tuple(sorted(faults)))


def draw_fault(chance: random.Random, names: list[str]) -> Fault:
    """One fault of these names; figures are of tenths of seconds, so that they can be read."""
    name = chance.choice(names)
    at, lasts = round(chance.uniform(0, LATEST), 1), round(chance.uniform(0.3, LONGEST), 1)
    kinds = tuple(kind for kind in KINDS if chance.random() < 0.5) or (chance.choice(KINDS),)
    amounts = {
        SLOW: round(chance.uniform(0.1, 2 * TIMEOUT), 1),
        SHRINK: float(chance.randint(1, 200)),
        GROW: float(chance.randint(1, 200)),
        BACK: round(chance.uniform(0.5, 20), 1),
    }
    return Fault(
        at,
        name,
        0.0 if name in FOR_GOOD else lasts,
        kinds if name in BY_KIND else (),
        amounts.get(name, 0.0),
    )


def format_script(script: Script) -> str:
    """A script in one line, as ``run: 0.5 stall write,flush for 4; 2 back by 3``."""
    return f"{script.operation}: " + "; ".join(map(_format_fault, script.faults))


def _format_fault(fault: Fault) -> str:
    words = [f"{fault.at:g}", fault.name]
    words += [",".join(fault.kinds)] if fault.kinds else []
    words += ["by", f"{fault.amount:g}"] if fault.name in BY_AMOUNT else []
    words += ["for", f"{fault.lasts:g}"] if fault.name not in FOR_GOOD else []
    return " ".join(words)


def parse_script(text: str) -> Script:
    """The script of a line. Raises ValueError where it is none."""
    operation, colon, rest = text.strip().partition(":")
    if not colon or operation not in OPERATIONS:
        raise ValueError(f"{text!r} begins with none of {', '.join(OPERATIONS)}, and a colon")
    faults = [_parse_fault(part.split()) for part in rest.split(";") if part.strip()]
    return Script(operation, tuple(sorted(faults)))


def _parse_fault(words: list[str]) -> Fault:
    at, name, *rest = words
    if name not in NAMES:
        raise ValueError(f"{name!r} is none of {', '.join(NAMES)}")
    kinds = tuple(rest.pop(0).split(",")) if name in BY_KIND else ()
    if not set(kinds) <= set(KINDS):
        raise ValueError(f"{','.join(kinds)!r} are not all of {', '.join(KINDS)}")
    figures = dict(zip(rest[::2], map(float, rest[1::2]), strict=True))
    amount = figures.pop("by") if name in BY_AMOUNT else 0.0
    lasts = figures.pop("for") if name not in FOR_GOOD else 0.0
    if figures:
        raise ValueError(f"{' '.join(words)!r} has {', '.join(figures)}, which {name!r} has not")
    return Fault(float(at), name, lasts, kinds, amount)


def shrink_script(script: Script) -> Iterator[Script]:
    """Smaller scripts that may fail in the same way, the smallest first: fewer faults, then kinds, then seconds."""
    for number in range(len(script.faults)):
        if len(script.faults) > 1:
            yield replace(script, faults=script.faults[:number] + script.faults[number + 1 :])
    for number, fault in enumerate(script.faults):
        for smaller in _shrink_fault(fault):
            faults = (*script.faults[:number], smaller, *script.faults[number + 1 :])
            yield replace(script, faults=tuple(sorted(faults)))


def _shrink_fault(fault: Fault) -> Iterator[Fault]:
    if len(fault.kinds) > 1:
        for kind in fault.kinds:
            yield replace(fault, kinds=tuple(one for one in fault.kinds if one != kind))
    for name in ("at", "lasts", "amount"):
        value: float = getattr(fault, name)
        for smaller in (float(int(value)), float(int(value / 2))):
            if smaller < value and (smaller or name == "at"):
                changed: dict[str, Any] = {name: smaller}
                yield replace(fault, **changed)


def minimize_script(script: Script, fails: Callable[[Script], bool], tries: int = 40) -> Script:
    """The smallest script found that ``fails`` still, by at most ``tries`` tries."""
    while True:
        for smaller in shrink_script(script):
            if tries <= 0:
                return script
            tries -= 1
            if fails(smaller):
                script = smaller
                break
        else:
            return script


@dataclass(frozen=True)
class Outcome:
    """How zvault and its host are some time after a script has ended.

    ``well``: the vault is as it should be and nothing is wrong with it. ``advice``: what status tells a person to do,
    if it is not. ``well_after``: whether it was well when that had been done (None: it was not done).
    ``lost``: datasets whose files differ from what a run that was ok had copied, or are not there. ``slowest``:
    seconds that the host's other pools took for an answer. ``stuck``: children of zvault's that are in D.
    """

    well: bool
    advice: str = ""
    well_after: bool | None = None
    lost: tuple[str, ...] = ()
    slowest: float = 0.0
    stuck: tuple[str, ...] = ()
    daemon_died: bool = False


ANSWER_DEADLINE = 15.0
"""Seconds within which another pool of the host has answered, on a busy guest."""


def judge_outcome(outcome: Outcome) -> list[str]:
    """What zvault did wrong, in words; empty where it did all that it promises."""
    wrong = []
    if not outcome.well and not outcome.advice:
        wrong.append("the vault is not well, and nothing tells what to do")
    if not outcome.well and outcome.advice and outcome.well_after is False:
        wrong.append(f"what it said to do did not help: {outcome.advice}")
    if outcome.lost:
        wrong.append(f"acknowledged and lost: {', '.join(outcome.lost)}")
    if outcome.slowest > ANSWER_DEADLINE:
        wrong.append(f"another pool took {outcome.slowest:.1f} s for an answer")
    if outcome.stuck:
        wrong.append(f"in D, with the storage sound: {', '.join(outcome.stuck)}")
    if outcome.daemon_died:
        wrong.append("zvaultd did not survive it")
    return wrong
