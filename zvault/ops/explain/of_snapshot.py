"""The reasons about one snapshot: who made it, whether it is sent, what keeps it, who holds it, what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zvault.core.explanation import Reason, Side, kept, sent
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.base_names import KEEP_HOLD, vault_of_tag
from zvault.core.replication.sent_reason import snapshot_fate
from zvault.ops.explain.of_dataset import PRUNED_ELSEWHERE, Case, damages, nothing_sent, selection
from zvault.ops.replication.sides import ours_of, wanted_of
from zvault.ops.replication.snapshot_holders import held_by, needed_by
from zvault.ops.retention.vault_holds import why_held


@dataclass(frozen=True, slots=True)
class Points:
    """A snapshot on both sides: one by its GUID. ``other`` is what the vault has of the same name besides."""

    source: Snapshot | None
    vault: Snapshot | None
    other: Snapshot | None = None

    @property
    def any(self) -> Snapshot | None:
        return self.source or self.vault


def found(case: Case, snapname: str) -> Points:
    """The snapshot of that name, on either side."""
    here, there = _named(case.place.source, snapname), _named(case.place.vault, snapname)
    if here is None or there is None or here.guid == there.guid:
        if here is not None and there is None and case.place.vault is not None:
            # On the vault it may have another name.
            same = (one for one in case.place.vault.snapshots if one.guid == here.guid)
            there = next(same, None)
        return Points(here, there)
    return Points(here, None, there)


def _named(dataset: Dataset | None, snapname: str) -> Snapshot | None:
    snapshots = dataset.snapshots if dataset is not None else ()
    return next((snap for snap in snapshots if snap.snapname == snapname), None)


async def about_snapshot(case: Case, snapname: str) -> list[Reason]:
    """All that is to be said of a snapshot."""
    points = found(case, snapname)
    reasons = [] if case.place.taken else [selection(case)]
    if points.any is None:
        return [*reasons, *_gone(case, snapname)]
    reasons += [_made(case, points.any), *_there(case, points, snapname), *await _sent(case, points)]
    reasons += [*_base(case, points), *await _kept(case, points), *await _held(case, points)]
    return [*reasons, *damages(case, snapname)]


def _made(case: Case, snap: Snapshot) -> Reason:
    when = f"made {case.when(snap.creation)}"
    if ours_of(case.backup)(snap):
        return Reason("made", "by zvault", f"{when}; its name is one that backup {case.backup.name} gives")
    return Reason("made", "by others", f"{when}; its name is none that backup {case.backup.name} gives")


def _there(case: Case, points: Points, snapname: str) -> Iterator[Reason]:
    """On which side it is, and why not on the other."""
    if points.source is None and case.place.named is not None:
        why = _pruned(case, case.place.named, snapname, "source")
        marks = case.place.source.bookmarks if case.place.source is not None else ()
        if points.vault is not None and any(mark.guid == points.vault.guid for mark in marks):
            why += "; a bookmark of it is left there, from which a stream can go on"
        yield Reason("there", "no", why, side="source")
    elif points.source is not None:
        yield Reason("there", "yes", side="source")
    if points.vault is not None:
        yield Reason("there", "yes", f"as {points.vault.name}", side="vault")
    elif not case.sends:
        return
    elif not case.sides.vault_seen:
        yield Reason("there", "unknown", case.down, case.look, "unknown", "vault")
    else:
        target = case.place.target
        why = _pruned(case, target, snapname, "vault") if target is not None else ""
        if points.other is not None:
            why = f"{points.other.name} is another snapshot, by its GUID; {why}"
        yield Reason("there", "no", why, side="vault")


def _pruned(case: Case, dataset: DatasetName, snapname: str, side: Side) -> str:
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


async def _sent(case: Case, points: Points) -> list[Reason]:
    snap, planned = points.source, await case.plan()
    if snap is None or case.place.source is None or not case.place.taken:
        return []
    if not case.sends:
        return [nothing_sent(case.backup)]
    if planned.plan is None:
        why = f"{case.down}, so what a run would send is not known"
        return [Reason("sent", "unknown", why, case.look, "unknown")]
    there = {one.guid for one in case.place.vault.snapshots} if case.place.vault is not None else set()
    newest_only = case.backup.backlog == "newest"
    wanted = wanted_of(case.backup)
    fate = snapshot_fate(
        snap,
        planned.plan,
        case.place.source,
        there,
        wanted=wanted,
        newest_only=newest_only,
        blocked_by=planned.blocked_by,
    )
    return [sent(fate)]


def _base(case: Case, points: Points) -> Iterator[Reason]:
    """Whether the next stream goes on from it."""
    base = case.place.pair.base if case.place.pair is not None else None
    guids = {one.guid for one in (points.source, points.vault) if one is not None}
    if base is not None and base[1].guid in guids:
        yield Reason("base", "yes", "it is the newest that both sides share: the next stream goes on from it")


async def _kept(case: Case, points: Points) -> list[Reason]:
    """What the next pruning makes of it, on each side where it is."""
    if case.sends and not case.sides.vault_seen:
        why = f"{case.down}; a run judges what to prune once it is up"
        return [Reason("kept", "unknown", why, case.look, "unknown", "source")]
    verdicts = await case.verdicts()
    names = {one.name for one in (points.source, points.vault) if one is not None}
    judged = [
        kept(verdict, side)
        for side, of_side in verdicts.items()
        for verdict in of_side
        if verdict.snapshot.name in names
    ]
    elsewhere = points.vault is not None and case.backup.prune.vault == "elsewhere"
    return [*judged, PRUNED_ELSEWHERE] if elsewhere else judged


async def _held(case: Case, points: Points) -> list[Reason]:
    """Who holds it, and what is cloned from it, on each side where it is."""
    clients, reasons = case.context.clients, list[Reason]()
    if points.source is not None:
        zfs, name = clients.source_of(case.backup), points.source.name
        tags = (await zfs.holds([name])).get(name, set())
        clones = (await zfs.clones([name])).get(name, [])
        why = [_of_base(case, tag) or _of_replica(case, tag, name) for tag in sorted(tags)]
        others = {tag for tag, text in zip(sorted(tags), why, strict=True) if not text}
        reasons += _holders([*filter(None, why), held_by(name, others), needed_by(clones)], "source")
    if points.vault is not None:
        zfs, name = clients.vault_of(case.backup), points.vault.name
        tags = (await zfs.holds([name])).get(name, set())
        clones = (await zfs.clones([name])).get(name, [])
        own = _held_because(case, name, case.sides.vault) if KEEP_HOLD in tags else ""
        reasons += _holders([own, held_by(name, tags - {KEEP_HOLD}), needed_by(clones)], "vault")
    return reasons


def _held_because(case: Case, name: SnapshotName, there: Tree) -> str:
    _, because = why_held(case.context.env, name, [(case.backup, there)])
    return f"zvault holds it: {because or 'no rule needs that any more, and the next run releases it'}"


def _of_replica(case: Case, tag: str, name: SnapshotName) -> str:
    """The hold of a backup that only prunes what others send, in words; empty for any other."""
    own = case.backup.prunes_only and tag == KEEP_HOLD
    return _held_because(case, name, case.sides.source) if own else ""


def _of_base(case: Case, tag: str) -> str:
    """A hold of zvault's on a source in words; empty for any other."""
    guid = vault_of_tag(tag)
    if guid is None:
        return ""
    seen = case.context.records.pools.all().get(guid)
    whose = f"vault {seen.vault}" if seen is not None else f"a vault whose pool has the GUID {guid:x}"
    return f"zvault holds it for {whose} ({tag})"


def _holders(told: list[str], side: Side) -> list[Reason]:
    why = "; ".join(filter(None, told))
    return [Reason("held", "yes", why, side=side)] if why else []


def _gone(case: Case, snapname: str) -> Iterator[Reason]:
    """What is known of a snapshot that is on neither side."""
    if case.sends and not case.sides.vault_seen:
        yield Reason("there", "unknown", case.down, case.look, "unknown", "vault")
    for side, dataset in (("source", case.place.named), ("vault", case.place.target)):
        if dataset is None or (side == "vault" and not case.sides.vault_seen):
            continue
        on: Side = "source" if side == "source" else "vault"
        yield Reason("there", "no", _pruned(case, dataset, snapname, on), side=on)
