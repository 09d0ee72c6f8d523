"""What a run that began now would do, its snapshot included. It lists and asks for estimates, and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from zvault.api.backups import ForecastDocument, PlannedDocument, PruneDocument
from zvault.config.schema import Backup
from zvault.core.model import Dataset, Tree
from zvault.core.replication.base_names import make_hold_tag
from zvault.core.replication.forecast import (
    add_snapshot,
    apply_plans,
    estimate_step,
    is_predictable,
    trim_step_to_existing,
)
from zvault.core.replication.plan_model import TransferPlan, TransferStep
from zvault.core.replication.unchanged_datasets import NOTHING_UNCHANGED
from zvault.core.replication.vault_encryption import EncryptionOnVault
from zvault.core.snapshot_list import SnapnameIndex
from zvault.ops.context import Context
from zvault.ops.plan_documents import (
    list_gone_documents,
    list_unlisted_documents,
    make_not_sent_documents,
    make_planned_document,
)
from zvault.ops.replication.find_unchanged import list_unchanged_among
from zvault.ops.replication.listing import BothListings, choose_snapshots, list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.source_snapshot import SNAPNAME_TRIES
from zvault.ops.replication.vault_encryption import expect_encryptions
from zvault.ops.retention.arrivals import list_arrivals
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.prune_report import make_plans_document
from zvault.ops.state.snapshot_obstacles import (
    Obstacles,
    find_snapshot_obstacles,
    make_obstacle_documents,
)
from zvault.system.side_threads import LongList, compute_aside
from zvault.zfs.stream_argv import SendFlags


async def make_forecast_document(
    context: Context, backup: Backup, *, snapshot: bool = True, refused: str | None = None
) -> ForecastDocument:
    """Foresee what a run would do now. ``refused`` says why none could start. Raises NotFound, HostUnreachable."""
    if backup.vault is None:
        return await _snapshots_only(context, backup, snapshot=snapshot, refused=refused)
    up = await context.clients.pool_is_up(context.env.vault(backup.vault))
    vault = context.clients.vault_of(backup) if up else None
    seen = await list_both_sides(context, backup, vault, elsewhere=True)
    if up and not await context.clients.pool_is_up(context.env.vault(backup.vault)):
        # Exported while it was listed: ZFS then says the same as of a pool that is empty.
        up, seen = False, replace(seen, vault=Tree(), vault_seen=False)
    made = await _Imagined.of(context, backup, seen, snapshot=snapshot)
    document: ForecastDocument = {
        "backup": backup.name,
        "vault": backup.vault,
        "prune": [],
        "freed": {},
        "over_limit": [],
        "datasets": [_unknown(dataset, target) for dataset, target in seen.pairs],
        "excluded": [dataset.name for dataset, _ in seen.left_out],
        "gone": list_gone_documents(backup.name, seen) if up else [],
        "snapshot": made.snapname,
        "snapshotted": list(made.names),
        "not_snapshotted": make_obstacle_documents(made.obstacles),
        "vault_seen": up,
        "refused": refused,
        "not_foreseen": [],
    }
    if not up:
        return document
    plans = await plan_all(context, backup, made.sides)
    lying = await made.sides.compute(expect_encryptions, made.sides, plans)
    return {
        **document,
        **await _pruned(context, backup, made.sides, plans),
        "datasets": LongList(
            [
                *[
                    await _planned(context, backup, plan, seen, made.sides, lying.get(plan.dataset))
                    for plan in plans
                ],
                *list_unlisted_documents(context, backup, seen),
            ]
        ),
        "not_foreseen": [plan.dataset for plan in plans if not is_predictable(plan)],
    }


async def _snapshots_only(
    context: Context, backup: Backup, *, snapshot: bool, refused: str | None
) -> ForecastDocument:
    """The same where a backup has no vault: all is known without one."""
    seen = await list_both_sides(context, backup, None)
    made = await _Imagined.of(context, backup, seen, snapshot=snapshot)
    return {
        **await make_plans_document(
            context, backup, await made.sides.compute(plan_prune, context, backup, made.sides)
        ),
        "datasets": make_not_sent_documents(seen),
        "excluded": [dataset.name for dataset, _ in seen.left_out],
        "gone": [],
        "snapshot": made.snapname,
        "snapshotted": list(made.names),
        "not_snapshotted": make_obstacle_documents(made.obstacles),
        "vault_seen": True,
        "refused": refused,
        "not_foreseen": [],
    }


@dataclass(frozen=True)
class _Imagined:
    """Both sides once a run has made its snapshot of the datasets of these ``names``, which it cannot of those with
    ``obstacles``.
    """

    sides: BothListings
    snapname: str | None = None
    names: tuple[str, ...] = ()
    obstacles: Obstacles = field(default_factory=dict)

    @classmethod
    async def of(cls, context: Context, backup: Backup, seen: BothListings, *, snapshot: bool) -> _Imagined:
        now = context.env.clock.now()
        unchanged = NOTHING_UNCHANGED
        if seen.vault_seen and backup.snapshot.skip_unchanged:
            vault = context.clients.vault_of(backup)
            unchanged = await list_unchanged_among(context, backup, vault, seen, now.timestamp())
        chosen = [dataset for dataset, _ in seen.pairs]
        choices = choose_snapshots(context.env, backup, chosen, unchanged, make=snapshot)
        taken = [dataset.name for dataset in chosen]
        obstacles = await find_snapshot_obstacles(context.clients, backup, taken) if snapshot else {}
        names = tuple(name for name, one in choices.items() if one.taken and name not in obstacles)
        if not names:
            return cls(seen, obstacles=obstacles)
        moment = _free_moment(backup, seen, now)
        snapname = backup.snapshot.names.make(moment)
        source = await seen.compute(
            add_snapshot, seen.source, frozenset(names), snapname, int(moment.timestamp())
        )
        return cls(await _paired(seen.with_trees(source, seen.vault)), snapname, names, obstacles)


async def _paired(sides: BothListings) -> BothListings:
    """The same, once what follows what is known, which is long to find where nothing was known before."""
    await sides.compute(lambda: sides.pairing)
    return sides


def _free_moment(backup: Backup, seen: BothListings, now: datetime) -> datetime:
    """When a run would make its snapshot: it waits until no side has one of that name, for some seconds at most."""
    taken = SnapnameIndex(one.snapshots for tree in (seen.source, seen.vault) for one in tree)
    moments = (now + timedelta(seconds=waited) for waited in range(SNAPNAME_TRIES + 1))
    return next((at for at in moments if backup.snapshot.names.make(at) not in taken), now)


async def _pruned(
    context: Context, backup: Backup, before: BothListings, plans: Sequence[TransferPlan]
) -> PruneDocument:
    """What is pruned once the plans were carried out, but of what is not foreseen."""
    counterparts = before.counterparts
    sent = [(plan, counterparts.get(plan.dataset)) for plan in plans]
    after = before.with_trees(
        before.source, await before.compute(apply_plans, before.vault, before.source, sent)
    )
    unforeseen = {plan.dataset for plan in plans if not is_predictable(plan)}
    after = replace(after, pairs=tuple(pair for pair in after.pairs if pair[0].name not in unforeseen))
    vault = context.env.vault(backup.its_vault)
    pool = await context.clients.zpool_of(vault).state(vault.pool)
    # The hold of the last base goes as the base advances, before anything is pruned.
    lifted = {make_hold_tag(pool.guid)} if pool is not None else set()
    after = await _paired(after)
    arrived = await after.compute(list_arrivals, before, after)
    judged = await after.compute(plan_prune, context, backup, after, arrived=arrived)
    return await make_plans_document(context, backup, judged, lifted=lifted)


async def _planned(
    context: Context,
    backup: Backup,
    plan: TransferPlan,
    seen: BothListings,
    imagined: BothListings,
    lying: EncryptionOnVault | None,
) -> PlannedDocument:
    dataset = imagined.source.datasets[plan.dataset]
    written = seen.source.datasets[plan.dataset].written
    sizes = [await _size(context, backup, step, dataset, written) for step in plan.steps]
    return await compute_aside(len(sizes), None, make_planned_document, plan, written, sizes, lying)


async def _size(
    context: Context, backup: Backup, step: TransferStep, dataset: Dataset, written: int
) -> int | None:
    """A stream's bytes: ZFS's estimate, and for a snapshot that is only imagined what was written since the last."""
    part = trim_step_to_existing(step, dataset)
    if part is None:
        return estimate_step(step, written, 0)
    known = await context.clients.source_of(backup).estimate(part, SendFlags.of(backup.send, dataset))
    return estimate_step(step, written, known)


def _unknown(dataset: Dataset, target: str) -> PlannedDocument:
    return {
        "dataset": dataset.name,
        "vault_dataset": target,
        "action": "unknown",
        "written": dataset.written,
        "steps": [],
        "changes": [],
        "reason": "the vault is down, so what it has is not known",
        "next": "",
        "encryption": "",
    }
