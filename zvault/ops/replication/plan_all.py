"""The plan of a run, from a look at both sides: what to send, and what is asked of the pools for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

from zvault.config.schema import Backup
from zvault.core.errors import NotFound, ToolFailed
from zvault.core.model import Dataset
from zvault.core.names import parse_snapname_time
from zvault.core.policy.min_age import list_too_young
from zvault.core.policy.retention import decide_retention
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.name_length import find_name_conflict
from zvault.core.replication.older_vault import keep_older_vault
from zvault.core.replication.plan_model import (
    InterruptedReceive,
    TransferAction,
    TransferPlan,
    TransferPolicy,
    UnencryptedSource,
    UnknownDataset,
)
from zvault.core.replication.planner import PlanObstacle, PoolAnswers, plan_tree
from zvault.core.replication.send_record import FlagConflict, find_key_conflict
from zvault.core.replication.unlisted_datasets import find_doubtful
from zvault.core.snapshot_list import list_newer_snapshots
from zvault.ops.context import Context
from zvault.ops.replication import backup_send_record
from zvault.ops.replication.listing import BothListings, make_own_filter, make_sent_filter
from zvault.ops.replication.vault_encryption import list_exposed, refuse_unencrypted
from zvault.ops.state.environment import Environment
from zvault.ops.state.older_vault import advise_older_vault, find_older_vault
from zvault.zfs.client import Zfs


def _conflicts(backup: Backup, sides: BothListings) -> dict[str, PlanObstacle]:
    """What keeps each dataset that is planned from being followed: its name, that it is not encrypted, or a backup that
    lies elsewhere.
    """
    length = backup.snapshot.names.length
    pairs = sides.pairing.pairs
    found = [find_name_conflict(pair.source.name, pair.target, length) for pair in pairs]
    named = compress(zip(pairs, found, strict=True), found)
    doubtful = find_doubtful(pairs, sides.source.unlisted)
    required = backup.send.encrypted == "required"
    plain = (pair.source.name for pair in pairs if required and not pair.source.encrypted)
    return {
        **{name: UnencryptedSource.of(name) for name in plain},
        **sides.stray,
        **doubtful,
        **{pair.source.name: one for pair, one in named if one is not None},
    }


async def plan_all(context: Context, backup: Backup, sides: BothListings) -> Sequence[TransferPlan]:
    """Plan every selected dataset, parents first."""
    stamp = context.env.clock.now().strftime("%Y%m%dT%H%M%SZ")
    answers, untold = await _ask(context, backup, sides)
    conflicts = {**untold, **await sides.compute(_conflicts, backup, sides)}
    planned = await sides.compute(
        plan_tree,
        sides.pairing,
        sides.vault,
        wanted=make_sent_filter(backup),
        policy=TransferPolicy(
            backup.backlog == "newest",
            backup.on_conflict,
            stamp,
            backup.prunes_vault,
            make_own_filter(backup),
        ),
        answers=answers,
        conflicts=conflicts,
    )
    planned = await refuse_unencrypted(
        context.clients.source_of(backup), context.clients.vault_of(backup), sides, planned
    )
    if older := find_older_vault(context.env, context.records, backup.its_vault):
        return keep_older_vault(planned, older, advise_older_vault(backup.its_vault))
    return planned


@dataclass
class _Asked:
    """What was asked for a plan so far: see PoolAnswers."""

    interrupted: dict[str, InterruptedReceive] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    misfits: dict[str, FlagConflict] = field(default_factory=dict)

    def answers(self) -> PoolAnswers:
        return PoolAnswers(self.interrupted, self.unchanged, self.held, self.kept, self.misfits)


async def _ask(
    context: Context, backup: Backup, sides: BothListings
) -> tuple[PoolAnswers, dict[str, UnknownDataset]]:
    """What a plan needs besides the listings, asked only of datasets where something is unusual; and those of the
    source of which it was not told. It is no reason to plan nothing of the others.
    """
    asked, untold = _Asked(), dict[str, UnknownDataset]()
    exposed = await sides.compute(list_exposed, sides)
    for pair in await sides.compute(lambda: list(_to_be_asked(backup, sides))):
        if pair.vault is None:
            continue
        try:
            await _ask_of(context, backup, sides, pair, pair.vault, exposed, asked)
        except ToolFailed as error:
            untold[pair.source.name] = UnknownDataset(
                f"what is to be done with {pair.vault.name} is not known: {error.what}"
                + (f": {error.why}" if error.why else ""),
                error.next or "see 'zpool status' of both sides, and the kernel's log",
            )
    return asked.answers(), untold


async def _ask_of(
    context: Context,
    backup: Backup,
    sides: BothListings,
    pair: DatasetPair,
    there: Dataset,
    exposed: Mapping[str, str],
    asked: _Asked,
) -> None:
    """Ask what a plan needs of one dataset that the vault has. Raises ToolFailed where one does not tell."""
    source, vault, base = context.clients.source_of(backup), context.clients.vault_of(backup), pair.base
    if there.resume_token:
        token = await source.interrupted(there.resume_token)
        token = backup_send_record.check_backup_token(backup, sides.vault, pair, token)
        if there.name in exposed and not there.snapshots and not token.problem:
            token = replace(token, problem=_in_the_clear(exposed[there.name]))
        asked.interrupted[there.name] = token
    if (odd := backup_send_record.find_backup_conflict(backup, sides.vault, pair)) is not None:
        asked.misfits[there.name] = odd
    elif base is not None and backup_send_record.is_key_unproven(sides.vault, pair):
        here, copied = await _read_key_mark(source, base[0].name), await _read_key_mark(vault, base[1].name)
        if (other := find_key_conflict(pair.source, there, here, copied)) is not None:
            asked.misfits[there.name] = other
    newer = [snap.name for snap in list_newer_snapshots(there.snapshots, base[1].createtxg)] if base else []
    if base is not None and newer:
        since = f"written@{base[1].snapname}"
        if not there.written and (await vault.get(there.name, since)).get(since) == "0":
            asked.unchanged.add(there.name)
        # A listing may be older than a hold: that moves nothing by which one could tell.
        # What zvault holds there itself is told by what retention keeps.
        asked.held.update(name for name, tags in (await vault.holds(newer)).items() if tags - {KEEP_HOLD})
        # A source that destroyed all but its oldest snapshot had every later one rolled away on the vault.
        asked.kept |= await sides.compute(_not_to_be_lost, context.env, backup, there)


async def _read_key_mark(zfs: Zfs, point: str) -> str:
    """What ZFS goes by to tell whether a raw stream may follow on a snapshot; "-" where it is not known."""
    try:
        return (await zfs.get(point, "ivsetguid"))["ivsetguid"]
    except NotFound:  # it was destroyed since it was listed: the stream will say so
        return "-"


def _in_the_clear(key: str) -> str:
    return f"what it received lies in the clear, below {key}, which is encrypted"


def _to_be_asked(backup: Backup, sides: BothListings) -> Iterator[DatasetPair]:
    """The pairs of which the pools have to be asked something for a plan."""

    def odd(pair: DatasetPair) -> bool:
        there, base = pair.vault, pair.base
        if there is None:
            return False
        newer = base is not None and not pair.at_base
        return bool(
            newer
            or there.resume_token
            or backup_send_record.find_backup_conflict(backup, sides.vault, pair) is not None
            or backup_send_record.is_key_unproven(sides.vault, pair)
        )

    return filter(odd, sides.pairing.pairs)


def _not_to_be_lost(env: Environment, backup: Backup, there: Dataset) -> dict[str, str]:
    """The snapshots of a vault's dataset that a rollback must not give up, with the reason: what was backed up and
    retention would not prune. A source that lost them must not make the vault lose them, too.
    """
    ours, wanted = make_own_filter(backup), make_sent_filter(backup)
    verdicts = decide_retention(
        there.snapshots,
        backup.keep.vault,
        now=env.clock.time(),
        zone=env.zone,
        protected={},
        ours=ours,
        lasting=backup.snapshot.skip_unchanged,
    )
    min_age = env.vault(backup.its_vault).min_age
    young = list_too_young(there.snapshots, min_age, env.clock.time())
    recent: dict[str, str] = {snap.name: young[snap.guid] for snap in there.snapshots if snap.guid in young}
    return recent | {
        verdict.snapshot.name: verdict.reason
        for verdict in verdicts
        # One of another prefix was made by another backup, or by this one before its prefix was changed.
        if verdict.keep
        and (
            wanted(verdict.snapshot)
            or parse_snapname_time(verdict.snapshot.snapname) is not None
            or any(one.snapshot.names.known(verdict.snapshot.snapname) for one in env.config.backup.values())
        )
    }


def moves_bytes(plan: TransferPlan) -> bool:
    """True if a plan moves any byte."""
    return plan.action in {TransferAction.FULL, TransferAction.INCREMENTAL, TransferAction.RESUME}
