"""The planner: what to send so that a vault's dataset follows its source, and why.

A base is found by GUID among the snapshots and bookmarks of the source, never by name. Nothing here touches
a pool: a plan is a value that can be shown, tested and then carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from zvault.core.model import Base, Bookmark, Dataset, Snapshot

Ours = Callable[[Snapshot], bool]
"""Tells whether a snapshot is one that zvault made for this backup."""


class Action(StrEnum):
    """What a run does with one dataset."""

    FULL = "full"
    INCREMENTAL = "incremental"
    RESUME = "resume"
    NOTHING = "nothing"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What is known of an interrupted receive's token: its target's GUID, and whether it can be resumed.

    ``problem`` is empty when the source can still serve the token, else it says why not.
    """

    token: str
    to_guid: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One stream. ``to`` is what the vault has after it; ``intermediates`` sends all between (``-I``)."""

    kind: Action
    to: Snapshot
    base: Base | None = None
    intermediates: bool = False
    token: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What one dataset needs. ``pending`` counts the snapshots the vault lacks.

    ``abort`` is set when the vault's resume token is of no use and has to go first, and says why.
    """

    dataset: str
    target: str
    action: Action
    reason: str
    steps: tuple[Step, ...] = ()
    base: Base | None = None
    pending: int = 0
    abort: str = ""
    next: str = ""


def find_base(source: Dataset, vault: Dataset) -> tuple[Base, Snapshot] | None:
    """The newest snapshot of the vault whose GUID the source still has, as (source side, vault side).

    A snapshot on the source is preferred to a bookmark of it: only it can start a ``-I``.
    """
    by_guid: dict[int, Base] = {mark.guid: mark for mark in source.bookmarks}
    by_guid.update({snap.guid: snap for snap in source.snapshots})
    for snap in reversed(vault.snapshots):
        if snap.guid in by_guid:
            return by_guid[snap.guid], snap
    return None


def plan_transfer(
    source: Dataset,
    vault: Dataset | None,
    target: str,
    *,
    ours: Ours,
    interrupted: Interrupted | None = None,
) -> TransferPlan:
    """Plan one dataset: resume, full, incremental, nothing or conflict, with the reason in words."""
    abort = ""
    if interrupted is not None:
        resumed = _plan_resume(source, vault, target, ours, interrupted)
        if isinstance(resumed, TransferPlan):
            return resumed
        abort = resumed
    wanted = [snap for snap in source.snapshots if ours(snap)]
    if vault is None or (abort and not vault.snapshots):
        return _plan_full(source, target, wanted, abort)
    if not vault.snapshots:
        return TransferPlan(
            source.name,
            target,
            Action.CONFLICT,
            f"{target} exists on the vault but holds no snapshot, so it is not a backup of {source.name}",
            pending=len(wanted),
            abort=abort,
            next=f"rename or destroy {target}, or choose another 'into' for this backup",
        )
    return _plan_incremental(source, vault, target, wanted, abort)


def _plan_full(source: Dataset, target: str, wanted: Sequence[Snapshot], abort: str) -> TransferPlan:
    if not wanted:
        return TransferPlan(
            source.name, target, Action.NOTHING, "the source has no snapshot made by zvault yet", abort=abort
        )
    first = wanted[0]
    full = Step(Action.FULL, first, reason="the vault has nothing of this dataset")
    rest = incremental_steps(source.snapshots, first, wanted[1:])
    reason = f"the vault has no {target}"
    return TransferPlan(
        source.name, target, Action.FULL, reason, (full, *rest), pending=len(wanted), abort=abort
    )


def _plan_incremental(
    source: Dataset, vault: Dataset, target: str, wanted: Sequence[Snapshot], abort: str
) -> TransferPlan:
    found = find_base(source, vault)
    if found is None:
        return TransferPlan(
            source.name,
            target,
            Action.CONFLICT,
            f"{source.name} and {target} have no snapshot or bookmark in common",
            pending=len(wanted),
            abort=abort,
            next=f"rename {target} to keep what it holds and let the next run send in full",
        )
    base, on_vault = found
    missing = [snap for snap in wanted if snap.createtxg > base.createtxg]
    newest = vault.snapshots[-1]
    problem = ""
    if newest is not on_vault:
        problem = f"{target} has {newest.tag}, newer than the base {on_vault.tag} and unknown to the source"
    elif vault.written and missing:
        problem = f"{target} was written to after {on_vault.tag} ({vault.written} bytes)"
    if problem:
        return TransferPlan(
            source.name,
            target,
            Action.CONFLICT,
            problem,
            base=base,
            pending=len(missing),
            abort=abort,
            next=f"'zfs rollback -r {target}@{on_vault.tag}' gives up what came after the base; "
            f"'zfs rename {target} …' keeps all of it, and the next run sends in full",
        )
    if not missing:
        return TransferPlan(
            source.name,
            target,
            Action.NOTHING,
            f"the vault has {on_vault.tag}, the newest",
            base=base,
            abort=abort,
        )
    steps = tuple(incremental_steps(source.snapshots, base, missing))
    kind = "bookmark" if isinstance(base, Bookmark) else "snapshot"
    reason = f"the newest {kind} both sides share is {base.tag}"
    return TransferPlan(
        source.name, target, Action.INCREMENTAL, reason, steps, base, len(missing), abort=abort
    )


def _plan_resume(
    source: Dataset, vault: Dataset | None, target: str, ours: Ours, interrupted: Interrupted
) -> TransferPlan | str:
    """A plan that resumes, or the reason why the token must be given up."""
    if interrupted.problem:
        return interrupted.problem
    to = next((snap for snap in source.snapshots if snap.guid == interrupted.to_guid), None)
    if to is None:
        return "the snapshot it was sending is gone from the source"
    later = [snap for snap in source.snapshots if ours(snap) and snap.createtxg > to.createtxg]
    reason = f"an interrupted receive of {to.tag} waits on the vault"
    resume = Step(Action.RESUME, to, token=interrupted.token, reason=reason)
    found = find_base(source, vault) if vault is not None else None
    return TransferPlan(
        source.name,
        target,
        Action.RESUME,
        reason,
        (resume, *incremental_steps(source.snapshots, to, later)),
        base=found[0] if found else None,
        pending=len(later) + 1,
    )


def incremental_steps(
    snapshots: Sequence[Snapshot], base: Base, wanted: Sequence[Snapshot]
) -> Iterator[Step]:
    """The fewest ``-i``/``-I`` streams that bring exactly ``wanted`` (oldest first, all newer than ``base``).

    Neighbours in the source's own order go in one ``-I``; a snapshot that is not wanted is jumped with ``-i``.
    A bookmark cannot start a ``-I`` (zfs-send(8)), so the first step from one is a ``-i``.
    """
    wanted_guids = {snap.guid for snap in wanted}
    after = [snap for snap in snapshots if snap.createtxg > base.createtxg]
    current: Base = base
    run: list[Snapshot] = []
    adjacent = True
    for snap in after:
        if snap.guid not in wanted_guids:
            if run:
                yield _incremental(current, run)
                current, run = run[-1], []
            adjacent = False
            continue
        if not adjacent or (isinstance(current, Bookmark) and not run):
            yield _incremental(current, [snap])
            current, adjacent = snap, True
            continue
        run.append(snap)
    if run:
        yield _incremental(current, run)


def sent_by(step: Step, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Which of a dataset's snapshots a step sends: each may be the vault's newest when the stream breaks off."""
    if step.base is None or not step.intermediates:
        return [step.to]
    return [snap for snap in snapshots if step.base.createtxg < snap.createtxg <= step.to.createtxg]


def _incremental(base: Base, run: Sequence[Snapshot]) -> Step:
    several = len(run) > 1
    reason = f"{len(run)} snapshots after {base.tag}" if several else f"the snapshot after {base.tag}"
    return Step(Action.INCREMENTAL, run[-1], base, intermediates=several, reason=reason)
