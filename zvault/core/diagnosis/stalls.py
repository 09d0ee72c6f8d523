"""Signs that storage hangs or returns errors: which vault they belong to, how often they came, what to report. Pure.

Signs come from the kernel's log (hung_tasks.py), OpenZFS's events (zfs/pool/stall_events.py) and its transaction
groups.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from zvault.core.units import format_duration

StallKind = Literal[
    "hung_task",
    "stuck_request",
    "txg_sync",
    "deadman",
    "delay",
    "suspended",
    "probe_failure",
    "io",
    "checksum",
    "data",
]
"""The kernel's hung tasks and stuck requests; a transaction group whose sync hangs; then OpenZFS's events by their own
names (zpool-events(8)), except io_failure, which is called "suspended" here: the pool was suspended.
"""

STALL_KINDS: tuple[StallKind, ...] = get_args(StallKind)

WAIT_KINDS: Collection[StallKind] = ("hung_task", "stuck_request", "txg_sync", "deadman", "delay")
"""Signs that something waits. All others also show in the state of the vault or its pool, or as damage."""

HUNG_TASK_PATIENCE = 120.0
"""Seconds after which a wait counts as a stall if the kernel sets no limit (hung_task_timeout_secs)."""

STALL_END_AFTER = 600.0
"""Seconds without a new sign after which a stall counts as over."""

TOLD_EVERY = 300.0
"""Seconds between two journal lines of the same kind: a dead device can give many signs a second."""

_POOL = re.compile(r"[A-Za-z][\w.: -]*")


@dataclass(frozen=True, slots=True)
class StallSign:
    """One sign. It names a ``pool``, ``devices`` (kernel names: nbd0) or a process.

    ``pid``: that process. ``zfs``: it hangs in OpenZFS, so it may wait for any pool.
    """

    kind: StallKind
    text: str
    pool: str | None = None
    devices: tuple[str, ...] = ()
    pid: int | None = None
    zfs: bool = False


@dataclass(frozen=True, slots=True)
class VaultDevices:
    """A vault on this host: its pool, and the kernel's names of all devices below it."""

    vault: str
    pool: str
    devices: Collection[str] = ()


def find_stalled_vault(
    sign: StallSign,
    places: Sequence[VaultDevices],
    words: Sequence[str] = (),
    waiting: Mapping[str, float] | None = None,
) -> str | None:
    """The vault that a sign belongs to; None if it belongs to no vault, or the vault is unknown.

    ``words``: command line of the hung process, which may name the pool (``zfs receive cold/tank``). ``waiting``:
    seconds since each vault's oldest transaction group began to sync. A thread such as txg_sync hangs in OpenZFS and
    names no pool; its sign is assigned to the vault with the longest wait.
    """
    for place in places:
        if sign.pool == place.pool or set(sign.devices) & set(place.devices):
            return place.vault
    if sign.pool is not None or sign.devices:
        return None
    pools = {place.pool: place.vault for place in places}
    named = [pools[pool] for word in words if (pool := _pool_of(word)) in pools]
    if named:
        return named[0]
    if sign.zfs and waiting:
        return max(waiting, key=lambda vault: waiting[vault])
    return None


def _pool_of(word: str) -> str | None:
    """The pool in a word of a command line: ``cold``, ``cold/tank``, ``cold/tank@a``."""
    found = _POOL.match(word)
    return found[0] if found and word[found.end() :][:1] in ("", "/", "@", "#") else None


@dataclass
class SlowGroups:
    """Slow transaction groups: by pool, the number of the group last reported and its sync time then, in seconds."""

    told: dict[str, tuple[int, float]] = field(default_factory=dict)

    def note(self, pool: str, number: int, seconds: float, limit: float) -> StallSign | None:
        """A sign whenever a group's sync has taken another ``limit`` seconds."""
        before, at = self.told.get(pool, (number, 0.0))
        if seconds - (at if before == number else 0.0) < limit:
            return None
        self.told[pool] = number, seconds
        text = f"transaction group {number} has been syncing for {format_duration(seconds)}"
        return StallSign("txg_sync", text, pool=pool)


@dataclass
class StallPeriod:
    """A stall of one kind while its signs keep coming. Times are seconds since the epoch; ``count`` counts signs."""

    text: str
    began: float
    last: float
    count: int = 0
    told: float | None = None
    told_count: int = 0


@dataclass
class StallLog:
    """All signs since the daemon started: ``counts`` by vault (empty: unknown) and kind.

    ``crashes``: where the kernel crashed in this boot, in words. They end with the boot, and with nothing else.
    """

    counts: Counter[tuple[str, StallKind]] = field(default_factory=Counter)
    spells: dict[tuple[str, StallKind], StallPeriod] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)

    def note(self, vault: str | None, sign: StallSign, now: float) -> str | None:
        """Count a sign. Returns the line for the journal; None within TOLD_EVERY seconds of the last one."""
        key = vault or "", sign.kind
        self.counts[key] += 1
        spell = self.spells.get(key)
        if spell is None or now - spell.last > STALL_END_AFTER:
            spell = self.spells[key] = StallPeriod(sign.text, now, now)
        spell.text, spell.last, spell.count = sign.text, now, spell.count + 1
        if spell.told is not None and now - spell.told < TOLD_EVERY:
            return None
        more = spell.count - spell.told_count - 1
        spell.told, spell.told_count = now, spell.count
        return f"{_whose(vault)}{sign.text}" + (f" (and {more} such signs before)" if more > 0 else "")

    def warnings(self, now: float) -> Iterator[tuple[str, str]]:
        """The vault (empty: unknown) of each stall that is not over, and a sentence."""
        for (vault, kind), spell in self.spells.items():
            if kind in WAIT_KINDS and now - spell.last <= STALL_END_AFTER:
                times = f"{spell.count} times, the last " if spell.count > 1 else ""
                when = f"{times}{format_duration(now - spell.last)} ago"
                yield vault, f"{_whose(vault)}{spell.text} ({kind}, {when})"


def _whose(vault: str | None) -> str:
    return f"vault {vault}: " if vault else "unknown vault: "
