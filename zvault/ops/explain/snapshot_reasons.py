"""The reasons about one snapshot: who made it, whether it is sent, what keeps it, who holds it, what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zvault.core.explanation import ExplainedDecision, ExplainedSide, explain_retention, explain_sent_snapshot
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.base_names import KEEP_HOLD, parse_hold_tag
from zvault.core.replication.sent_reason import find_snapshot_fate
from zvault.ops.explain.dataset_reasons import (
    PRUNED_ELSEWHERE,
    ExplainCase,
    explain_damages,
    explain_nothing_sent,
    explain_selection,
)
from zvault.ops.replication.listing import make_own_filter, make_sent_filter
from zvault.ops.replication.snapshot_holders import describe_clones, describe_holds
from zvault.ops.retention.vault_holds import explain_hold


@dataclass(frozen=True, slots=True)
class SnapshotPair:
    """A snapshot on both sides: one by its GUID. ``other`` is what the vault has of the same name besides."""

    source: Snapshot | None
    vault: Snapshot | None
    other: Snapshot | None = None

    @property
    def any(self) -> Snapshot | None:
        return self.source or self.vault


def find_snapshot(case: ExplainCase, snapname: str) -> SnapshotPair:
    """The snapshot of that name, on either side."""
    here, there = _named(case.place.source, snapname), _named(case.place.vault, snapname)
    if here is None or there is None or here.guid == there.guid:
        if here is not None and there is None and case.place.vault is not None:
            # On the vault it may have another name.
            same = (one for one in case.place.vault.snapshots if one.guid == here.guid)
            there = next(same, None)
        return SnapshotPair(here, there)
    return SnapshotPair(here, None, there)


def _named(dataset: Dataset | None, snapname: str) -> Snapshot | None:
    snapshots = dataset.snapshots if dataset is not None else ()
    return next((snap for snap in snapshots if snap.snapname == snapname), None)


async def explain_snapshot(case: ExplainCase, snapname: str) -> list[ExplainedDecision]:
    """All that is to be said of a snapshot."""
    points = find_snapshot(case, snapname)
    reasons = [] if case.place.taken else [explain_selection(case)]
    if points.any is None:
        return [*reasons, *_gone(case, snapname)]
    reasons += [_made(case, points.any), *_there(case, points, snapname), *await _sent(case, points)]
    reasons += [*_base(case, points), *await _kept(case, points), *await _held(case, points)]
    return [*reasons, *explain_damages(case, snapname)]


def _made(case: ExplainCase, snap: Snapshot) -> ExplainedDecision:
    when = f"made {case.when(snap.creation)}"
    if make_own_filter(case.backup)(snap):
        return ExplainedDecision(
            "made", "by zvault", f"{when}; its name is one that backup {case.backup.name} gives"
        )
    return ExplainedDecision(
        "made", "by others", f"{when}; its name is none that backup {case.backup.name} gives"
    )


def _there(case: ExplainCase, points: SnapshotPair, snapname: str) -> Iterator[ExplainedDecision]:
    """On which side it is, and why not on the other."""
    if points.source is None and case.place.named is not None:
        why = _pruned(case, case.place.named, snapname, "source")
        marks = case.place.source.bookmarks if case.place.source is not None else ()
        if points.vault is not None and any(mark.guid == points.vault.guid for mark in marks):
            why += "; a bookmark of it is left there, from which a stream can go on"
        yield ExplainedDecision("there", "no", why, side="source")
    elif points.source is not None:
        yield ExplainedDecision("there", "yes", side="source")
    if points.vault is not None:
        yield ExplainedDecision("there", "yes", f"as {points.vault.name}", side="vault")
    elif not case.sends:
        return
    elif not case.sides.vault_seen:
        yield ExplainedDecision("there", "unknown", case.down, case.look, "unknown", "vault")
    else:
        target = case.place.target
        why = _pruned(case, target, snapname, "vault") if target is not None else ""
        if points.other is not None:
            why = f"{points.other.name} is another snapshot, by its GUID; {why}"
        yield ExplainedDecision("there", "no", why, side="vault")


def _pruned(case: ExplainCase, dataset: DatasetName, snapname: str, side: ExplainedSide) -> str:
    """What is on record of a snapshot that is not there."""
    records = [one for one in case.knowledge.pruned(dataset.snapshot(snapname)) if one.side == side]
    if records:
        one = records[0]
        return f"run {one.run} of {one.backup} pruned it {case.when(one.at)}: no rule kept it"
    if not case.knowledge.known:
        return "zvaultd is not running, so it is not known whether zvault pruned it"
    return "there is no record of zvault having pruned it" + (
        ", nor of it having come" if side == "vault" else ""
    )


async def _sent(case: ExplainCase, points: SnapshotPair) -> list[ExplainedDecision]:
    snap, planned = points.source, await case.plan()
    if snap is None or case.place.source is None or not case.place.taken:
        return []
    if not case.sends:
        return [explain_nothing_sent(case.backup)]
    if planned.plan is None:
        why = f"{case.down}, so what a run would send is not known"
        return [ExplainedDecision("sent", "unknown", why, case.look, "unknown")]
    there = {one.guid for one in case.place.vault.snapshots} if case.place.vault is not None else set()
    newest_only = case.backup.backlog == "newest"
    wanted = make_sent_filter(case.backup)
    fate = find_snapshot_fate(
        snap,
        planned.plan,
        case.place.source,
        there,
        wanted=wanted,
        newest_only=newest_only,
        blocked_by=planned.blocked_by,
    )
    return [explain_sent_snapshot(fate)]


def _base(case: ExplainCase, points: SnapshotPair) -> Iterator[ExplainedDecision]:
    """Whether the next stream goes on from it."""
    base = case.place.pair.base if case.place.pair is not None else None
    guids = {one.guid for one in (points.source, points.vault) if one is not None}
    if base is not None and base[1].guid in guids:
        yield ExplainedDecision(
            "base", "yes", "it is the newest that both sides share: the next stream goes on from it"
        )


async def _kept(case: ExplainCase, points: SnapshotPair) -> list[ExplainedDecision]:
    """What the next pruning makes of it, on each side where it is."""
    if case.sends and not case.sides.vault_seen:
        why = f"{case.down}; a run judges what to prune once it is up"
        return [ExplainedDecision("kept", "unknown", why, case.look, "unknown", "source")]
    verdicts = await case.verdicts()
    names = {one.name for one in (points.source, points.vault) if one is not None}
    judged = [
        explain_retention(verdict, side)
        for side, of_side in verdicts.items()
        for verdict in of_side
        if verdict.snapshot.name in names
    ]
    elsewhere = points.vault is not None and case.backup.prune.vault == "elsewhere"
    return [*judged, PRUNED_ELSEWHERE] if elsewhere else judged


async def _held(case: ExplainCase, points: SnapshotPair) -> list[ExplainedDecision]:
    """Who holds it, and what is cloned from it, on each side where it is."""
    clients, reasons = case.context.clients, list[ExplainedDecision]()
    if points.source is not None:
        zfs, name = clients.source_of(case.backup), points.source.name
        tags = (await zfs.holds([name])).get(name, set())
        clones = (await zfs.clones([name])).get(name, [])
        why = [_of_base(case, tag) or _of_replica(case, tag, name) for tag in sorted(tags)]
        others = {tag for tag, text in zip(sorted(tags), why, strict=True) if not text}
        reasons += _holders(
            [*filter(None, why), describe_holds(name, others), describe_clones(clones)], "source"
        )
    if points.vault is not None:
        zfs, name = clients.vault_of(case.backup), points.vault.name
        tags = (await zfs.holds([name])).get(name, set())
        clones = (await zfs.clones([name])).get(name, [])
        own = _held_because(case, name, case.sides.vault) if KEEP_HOLD in tags else ""
        reasons += _holders([own, describe_holds(name, tags - {KEEP_HOLD}), describe_clones(clones)], "vault")
    return reasons


def _held_because(case: ExplainCase, name: SnapshotName, there: Tree) -> str:
    _, because = explain_hold(case.context.env, name, [(case.backup, there)])
    return f"zvault holds it: {because or 'no rule needs that any more, and the next run releases it'}"


def _of_replica(case: ExplainCase, tag: str, name: SnapshotName) -> str:
    """The hold of a backup that only prunes what others send, in words; empty for any other."""
    own = case.backup.prunes_only and tag == KEEP_HOLD
    return _held_because(case, name, case.sides.source) if own else ""


def _of_base(case: ExplainCase, tag: str) -> str:
    """A hold of zvault's on a source in words; empty for any other."""
    guid = parse_hold_tag(tag)
    if guid is None:
        return ""
    seen = case.context.records.pools.all().get(guid)
    whose = f"vault {seen.vault}" if seen is not None else f"a vault whose pool has the GUID {guid:x}"
    return f"zvault holds it for {whose} ({tag})"


def _holders(told: list[str], side: ExplainedSide) -> list[ExplainedDecision]:
    why = "; ".join(filter(None, told))
    return [ExplainedDecision("held", "yes", why, side=side)] if why else []


def _gone(case: ExplainCase, snapname: str) -> Iterator[ExplainedDecision]:
    """What is known of a snapshot that is on neither side."""
    if case.sends and not case.sides.vault_seen:
        yield ExplainedDecision("there", "unknown", case.down, case.look, "unknown", "vault")
    for side, dataset in (("source", case.place.named), ("vault", case.place.target)):
        if dataset is None or (side == "vault" and not case.sides.vault_seen):
            continue
        on: ExplainedSide = "source" if side == "source" else "vault"
        yield ExplainedDecision("there", "no", _pruned(case, dataset, snapname, on), side=on)
