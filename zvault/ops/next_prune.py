"""What the next run would prune of one dataset, from a listing that is there already: no pool is asked.

So holds and clones on other datasets' behalf, which a run asks for right before it prunes, are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zvault.api.backups import Side
from zvault.config.schema import Backup
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepDecision
from zvault.core.replication.forecast import add_snapshot, apply_plans, is_predictable
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import TransferPolicy
from zvault.core.replication.planner import PoolAnswers, plan_tree
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.unchanged_datasets import NOTHING_UNCHANGED
from zvault.ops.context import Context
from zvault.ops.replication import backup_send_record
from zvault.ops.replication.listing import (
    BothListings,
    choose_snapshots,
    find_name_conflicts,
    make_own_filter,
    make_sent_filter,
)
from zvault.ops.retention.arrivals import list_arrivals
from zvault.ops.retention.prune_plan import plan_prune


@dataclass(frozen=True)
class NextPrune:
    """A dataset's snapshots on both sides by GUID, and by side and GUID what becomes of each once a run has ended.

    ``vault`` names the dataset that holds its backup, None where there is none. A side of which that is not known is
    not in ``decided``. ``ours`` are those that zvault made for the backup, ``waiting`` those that are still to be sent.
    """

    vault: DatasetName | None
    on_source: Mapping[int, Snapshot]
    on_vault: Mapping[int, Snapshot]
    ours: frozenset[int]
    waiting: frozenset[int] = frozenset()
    base: int | None = None
    decided: Mapping[Side, Mapping[int, KeepDecision]] = field(default_factory=dict)


def predict_prune(context: Context, backup: Backup, seen: BothListings, name: str) -> NextPrune | None:
    """Foresee what a run that began now would leave of a dataset of the source; None where the backup takes none of
    that name.

    A run makes a snapshot first, and sends what the vault lacks: as if that went well, and the dataset had changed.
    """
    pair = next((one for one in seen.pairing.pairs if one.source.name == name), None)
    if pair is None:
        return None
    there, base, ours = pair.vault, pair.base, make_own_filter(backup)
    on_source = {snap.guid: snap for snap in pair.source.snapshots}
    on_vault = {snap.guid: snap for snap in there.snapshots} if there is not None else {}
    found = NextPrune(
        there.name if there is not None else None,
        on_source,
        on_vault,
        frozenset(guid for guid, snap in (on_source | on_vault).items() if ours(snap)),
        base=base[1].guid if base is not None else None,
    )
    if backup.vault is not None and not seen.vault_seen:
        return found  # which one is the base is not known, so neither is what a run would prune
    wanted, newest = make_sent_filter(backup), base[0].createtxg if base is not None else -1
    waiting = (snap.guid for snap in pair.source.snapshots if snap.createtxg > newest and wanted(snap))
    return replace(
        found,
        waiting=frozenset(waiting if backup.vault is not None else ()),
        decided=_decided(context, backup, _alone(seen, pair), pair.source.name),
    )


def _alone(seen: BothListings, pair: DatasetPair) -> BothListings:
    """The same look, had there been nothing but one dataset, its backup, and what was cloned from either."""
    there = pair.vault
    target = there.name if there is not None else pair.target
    return BothListings(
        _with_clones(seen.source, pair.source),
        _with_clones(seen.vault, there) if there is not None else Tree(),
        ((pair.source, target),),
        seen.vault_seen,
    )


def _with_clones(tree: Tree, dataset: Dataset) -> Tree:
    clones = (
        replace(one, snapshots=(), bookmarks=())
        for one in tree
        if one.origin is not None and one.origin.dataset == dataset.name and one.name != dataset.name
    )
    return Tree({one.name: one for one in (dataset, *clones)})


def _decided(
    context: Context, backup: Backup, before: BothListings, name: DatasetName
) -> dict[Side, dict[int, KeepDecision]]:
    """By side and GUID, what a run would do to each snapshot: of the vault nothing where it would change that first."""
    (dataset,) = (one for one, _ in before.pairs)
    now = context.env.clock.now()
    made = before
    if choose_snapshots(context.env, backup, [dataset], NOTHING_UNCHANGED)[name].taken:
        snapname = backup.snapshot.names.make(now)
        source = add_snapshot(before.source, [name], snapname, int(now.timestamp()))
        made = before.with_trees(source, before.vault)
    after, known = made, True
    if backup.vault is not None:
        (plan,) = plan_tree(
            made.pairing,
            made.vault,
            wanted=make_sent_filter(backup),
            policy=TransferPolicy(
                backup.backlog == "newest",
                backup.on_conflict,
                f"{now:%Y%m%dT%H%M%SZ}",
                ours=make_own_filter(backup),
            ),
            answers=PoolAnswers(misfits=_misfits(backup, made)),
            conflicts=find_name_conflicts(context.env, backup, [dataset]),
        )
        known = is_predictable(plan)
        sent = [(plan, made.counterparts.get(plan.dataset))]
        after = made.with_trees(made.source, apply_plans(made.vault, made.source, sent))
    plans = plan_prune(context, backup, after, arrived=list_arrivals(before, after))
    return {
        one.side: {verdict.snapshot.guid: verdict for verdict in one.verdicts}
        for one in plans
        if known or one.side == "source"
    }


def _misfits(backup: Backup, sides: BothListings) -> dict[str, FlagConflict]:
    found = (
        (pair.vault.name, backup_send_record.find_backup_conflict(backup, sides.vault, pair))
        for pair in sides.pairing.pairs
        if pair.vault is not None
    )
    return {name: misfit for name, misfit in found if misfit is not None}
