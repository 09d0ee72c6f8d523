"""What is known of a vault's scrubs and damage: as last seen, and kept for the time that the vault is down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from zvault.api.vaults import DamageDocument, ScrubDocument
from zvault.core.integrity.damage import DamagedFile, HealTarget, count_damaged_files
from zvault.core.policy.scrub import PoolScan
from zvault.system.record_store import RecordStore
from zvault.zfs.pool.scrub import PoolErrors


@cache
def _wounds_adapter() -> TypeAdapter[tuple[HealTarget, ...]]:
    """Made when it is first needed: that takes as long as importing a dozen modules."""
    return TypeAdapter(tuple[HealTarget, ...])


KEPT_DAMAGES = 1000
"""Damages kept by name; of more than that only the number is told."""


@dataclass(frozen=True, slots=True)
class PoolCondition:
    """A vault's pool as it was last seen, at ``at`` (seconds since the epoch).

    ``last`` is when its last whole scrub ended, ``born`` when the pool was made, ``damages`` what is damaged by name.
    That was when there were ``named`` errors. ``pausing`` is why a scrub that has begun does not go on.

    ``foreign`` are devices that the pool needs and that are not the vault's own (core/integrity/pool_devices.py).

    ``checksums`` are the reads of its devices that gave wrong bytes since it was imported.

    ``half_received`` are datasets that a full stream has reached in part, and ``excused`` the errors that are theirs or
    may be: a receive that an outage cut off leaves such, and they are no damage to anything that was there. They are
    looked at again once nothing is half received (ops/vaults/examine_pool.py); where ZFS has no way to do that, the
    next whole scrub does (``leave_to_scrub``).

    ``doubted``: when the pool went on after a server of somebody else's was lost below it, and no whole scrub that
    began later has ended: what such a server had confirmed and not flushed may be gone. None: there is no such doubt.

    ``wounds`` are the damaged blocks, noted at ``noted``, and count as errors until the next whole scrub has ended: ZFS
    forgets what is in old snapshots only as soon as somebody has it listed (``zpool status -v``, seen with 2.3.9).
    """

    at: float
    scan: PoolScan = field(default_factory=PoolScan)
    errors: int = 0
    last: float | None = None
    born: float | None = None
    held: bool = False
    damages: tuple[DamagedFile, ...] = ()
    named: int = 0
    pausing: str = ""
    wounds: tuple[HealTarget, ...] = ()
    noted: float = 0.0
    checksums: int = 0
    half_received: tuple[str, ...] = ()
    excused: int = 0
    foreign: tuple[str, ...] = ()
    doubted: float | None = None

    @classmethod
    def of(
        cls,
        health: PoolErrors,
        at: float,
        born: float | None,
        before: PoolCondition | None,
        half_received: Sequence[str] | None = None,
        foreign: Sequence[str] | None = None,
    ) -> PoolCondition:
        """From a look; names and reasons are those of the look before, as long as there are errors at all.

        ``foreign`` None: not known, so they are those of the look before.

        ``half_received``: what is now, where that was asked; new errors are not damage then before they are named.
        """
        kept = before if before is not None else cls(at)
        scrubbed = health.last is not None and health.last > kept.noted
        wounds = () if scrubbed else kept.wounds
        errors = max(health.errors, len(wounds))
        damages, names = (kept.damages, kept.named) if errors else ((), 0)
        pausing = kept.pausing if health.scan.open else ""
        if half_received is None:
            half, excused = kept.half_received, kept.excused
            if excused and not half and _has_begun_since(health.scan, kept.noted):
                excused = names = 0
        else:
            half, excused = tuple(half_received), errors - len(wounds) if half_received else 0
        return cls(
            *(at, health.scan, errors, health.last, born, health.held),
            *(damages, names, pausing, wounds, kept.noted, health.checksums),
            *((half, min(excused, errors)) if errors else ((), 0)),
            kept.foreign if foreign is None else tuple(foreign),
            None if kept.doubted is None or _has_begun_since(health.scan, kept.doubted) else kept.doubted,
        )

    def hurt(
        self, damages: Iterable[DamagedFile], wounds: Iterable[HealTarget], half_received: Sequence[str] = ()
    ) -> PoolCondition:
        """The same with what is damaged, as it was just found out; of ``half_received`` datasets nothing is named."""
        blocks = tuple(wound for wound in wounds if wound.logged is not None)
        errors = max(self.errors, len(blocks))
        return replace(
            self,
            errors=errors,
            damages=tuple(damages),
            named=errors,
            wounds=blocks,
            noted=self.at,
            half_received=tuple(half_received),
            excused=errors - len(blocks) if half_received else 0,
        )

    def leave_to_scrub(self, at: float) -> PoolCondition:
        """The same once nothing is half received any more (``at``), for errors that cannot be read again alone.

        A whole scrub that begins after that reads all there is: what is on the list at its end is damage.
        """
        return replace(self, half_received=(), noted=at)

    def accuse(self) -> PoolCondition:
        """The same with no error excused any more: what is on the list was read again, with nothing half received."""
        return replace(self, half_received=(), excused=0, named=0)

    @property
    def damaging(self) -> int:
        """The errors that are damage, as far as is known: those that are not excused."""
        return self.errors - self.excused

    @property
    def since(self) -> float | None:
        """The time that a scrub's age counts from: the last one's end, or the making of a pool that had none yet."""
        return self.last if self.last is not None else self.born

    def document(self) -> ScrubDocument:
        """As the API sends it."""
        scan = self.scan
        return {
            "seen": self.at,
            "state": "resilver" if scan.resilver and scan.open else scan.state,
            "started": scan.started,
            "ended": scan.ended,
            "last": self.last,
            "share": scan.share,
            "bytes_done": scan.done,
            "bytes_total": scan.total,
            "rate": scan.rate,
            "left_seconds": scan.left,
            "found": scan.errors,
            "held": self.held,
            "pausing": self.pausing,
            "errors": self.damaging,
            "unexplained": self.excused,
            "half_received": list(self.half_received),
            "files": count_damaged_files(self.damages),
            "damages": [make_damage_document(one) for one in self.damages],
        }


def make_damage_document(damage: DamagedFile) -> DamageDocument:
    """One damage as the API sends it."""
    return {"dataset": damage.dataset, "snapshot": damage.snapname, "file": damage.path}


def _has_begun_since(scan: PoolScan, at: float) -> bool:
    """True if a scrub has ended that began after this time."""
    return scan.state == "finished" and not scan.resilver and scan.started is not None and scan.started > at


class PoolConditions:
    """The conditions of all vaults. On disk is what a decision needs while a vault is down: without it none is made."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: dict[str, PoolCondition] = {}
        self._given_up: dict[str, int] = {}

    def get(self, vault: str) -> PoolCondition | None:
        """Return what was last seen of a vault, None where it was never up."""
        if vault not in self._known:
            if (found := self._store.recall(vault, _loaded)) is None:
                return None
            self._known[vault] = found
        return self._known[vault]

    def put(self, vault: str, condition: PoolCondition) -> None:
        """Note what was seen. It goes to disk where something in it changed that is kept there."""
        before = self.get(vault)
        self._known[vault] = condition
        if before is None or _kept(before) != _kept(condition):
            self._store.note(vault, _kept(condition))

    def given_up(self, vault: str) -> None:
        """Another host has its pool now, and is told what ZFS lists there. What it listed here may be reads that had no
        answer: only blocks that were named stay.
        """
        self._given_up[vault] = self.times_given_up(vault) + 1
        if (known := self.get(vault)) is not None:
            damages, errors = known.damages if known.wounds else (), len(known.wounds)
            left = replace(known, errors=errors, named=errors, damages=damages)
            self.put(vault, replace(left, checksums=0, half_received=(), excused=0))

    def times_given_up(self, vault: str) -> int:
        """Return how often its pool was given up: a look that began before says nothing of what the vault has."""
        return self._given_up.get(vault, 0)

    def doubt(self, vault: str, at: float) -> None:
        """Note that its storage was lost and given back, and may have lost what it had confirmed."""
        self.put(vault, replace(self.get(vault) or PoolCondition(at), doubted=at))

    def forget(self, vault: str) -> None:
        """Its pool is another from now on. Raises OSError."""
        self._known.pop(vault, None)
        self._store.drop(vault)

    def pausing(self, vault: str, why: str) -> None:
        """Note why a scrub of the vault does not go on; empty: it does."""
        if (known := self.get(vault)) is not None:
            self._known[vault] = replace(known, pausing=why)


def _kept(condition: PoolCondition) -> dict[str, Any]:
    return {
        "state": condition.scan.state,
        "last": condition.last,
        "born": condition.born,
        "held": condition.held,
        "errors": condition.errors,
        "damages": [[one.dataset, one.snapname, one.path] for one in condition.damages[:KEPT_DAMAGES]],
        "wounds": _wounds_adapter().dump_python(condition.wounds[:KEPT_DAMAGES], mode="json"),
        "noted": condition.noted,
        "half_received": list(condition.half_received),
        "excused": condition.excused,
        "foreign": list(condition.foreign),
        "doubted": condition.doubted,
    }


def _loaded(data: dict[str, Any]) -> PoolCondition:
    return PoolCondition(
        float(data["time"]),
        PoolScan(data["state"]),
        int(data["errors"]),
        data["last"],
        data["born"],
        bool(data["held"]),
        tuple(DamagedFile(*one) for one in data["damages"]),
        wounds=_wounds_adapter().validate_python(data.get("wounds", ())),
        noted=float(data.get("noted", 0.0)),
        half_received=tuple(map(str, data.get("half_received", ()))),
        excused=int(data.get("excused", 0)),
        foreign=tuple(map(str, data.get("foreign", ()))),
        doubted=float(data["doubted"]) if data.get("doubted") is not None else None,
    )
