"""Why something is as it is with a dataset or snapshot, as a document. Brings no pool up and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zvault.api.explain import AccountDocument, ExplainDocument, ReasonDocument
from zvault.config.schema import Backup
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.explanation import ExplainedDecision
from zvault.core.model import Tree
from zvault.core.name_rules import DatasetChoice, check_dataset_name
from zvault.core.names import DatasetName, split_snapshot
from zvault.ops.context import Context
from zvault.ops.explain.dataset_place import DatasetPlace, find_place, is_concerned, refuse_unknown
from zvault.ops.explain.dataset_reasons import ExplainCase, explain_dataset
from zvault.ops.explain.knowledge import KnowledgeSource
from zvault.ops.explain.snapshot_reasons import explain_snapshot
from zvault.ops.replication.listing import BothListings, list_both_sides


async def make_explain_document(context: Context, knowledge: KnowledgeSource, name: str) -> ExplainDocument:
    """All that is known of a dataset, or of a snapshot (``DATASET@SNAPNAME``).

    Raises NotFound for what is no name, or none that anybody knows.
    """
    dataset, snapname = split_snapshot(name)
    try:
        check_dataset_name(dataset)
        if snapname is not None:
            # It has the characters of a part of a dataset's name, and no more of them.
            check_dataset_name(dataset.child(snapname or "/"))
    except ValueError as error:
        raise NotFound(
            f"'{name}' is no name of a dataset or snapshot", str(error), "zvaultctl list"
        ) from None
    backups = [one for one in context.env.config.backup.values() if is_concerned(context.env, one, dataset)]
    accounts = [await _account(context, knowledge, one, dataset, snapname) for one in backups]
    if not backups and not await _exists(context, name):
        raise NotFound(
            f"there is no dataset or snapshot '{name}'",
            "no backup reads or writes there, and this host has none of that name",
            "'zvaultctl list' names what is backed up",
        )
    return {
        "name": name,
        "at": context.env.clock.time(),
        "uncovered": _uncovered(context, dataset, accounts),
        "accounts": accounts,
    }


async def _exists(context: Context, name: str) -> bool:
    """True if this host has it; in doubt it has."""
    try:
        return await context.clients.source_at(None).exists(name)
    except ZvaultError:
        return True


def _uncovered(context: Context, dataset: DatasetName, accounts: Sequence[AccountDocument]) -> str:
    """Why nothing backs a dataset up; empty where something does, where it is a copy itself, or nobody knows."""
    if any(one["takes"] is not False or one["dataset"] is None for one in accounts):
        return ""
    if accounts:
        return f"none of the backups that read there takes {dataset}"
    sources = ", ".join(str(one.source) for one in context.env.config.backup.values())
    return f"it lies in no backup's source: {sources}" if sources else "no backup is configured"


async def _account(
    context: Context, knowledge: KnowledgeSource, backup: Backup, name: DatasetName, snapname: str | None
) -> AccountDocument:
    """What one backup has to do with it."""
    seen = False
    try:
        sides = await _seen(context, backup)
        seen = sides.vault_seen
        refuse_unknown(context.env, backup, sides, name)
        case = ExplainCase(context, knowledge, backup, sides, find_place(context.env, backup, sides, name))
        reasons = await (explain_dataset(case) if snapname is None else explain_snapshot(case, snapname))
        place = case.place
        takes: bool | None = _takes(place)
    except ZvaultError as error:
        place, reasons, takes = _unseen(context, backup, name, error)
    return {
        "backup": backup.name,
        "source": str(backup.source),
        "vault": backup.vault,
        "dataset": place.named,
        "vault_dataset": place.target if backup.vault is not None else None,
        "takes": takes,
        "vault_seen": seen,
        "vault_seen_at": context.env.clock.time() if seen else knowledge.vault_seen(backup),
        "reasons": [_document(one) for one in reasons],
    }


def _takes(place: DatasetPlace) -> bool:
    """True if the backup takes it: nothing that is not on the source."""
    return place.taken and place.source is not None


async def _seen(context: Context, backup: Backup) -> BothListings:
    """Both sides, as far as they are there."""
    if backup.vault is None:
        return await list_both_sides(context, backup, None)
    vault = context.env.vault(backup.vault)
    up = await context.clients.pool_is_up(vault)
    there = context.clients.vault_of(backup) if up else None
    sides = await list_both_sides(context, backup, there, elsewhere=True)
    if up and not await context.clients.pool_is_up(vault):
        # Exported while it was listed: ZFS then says the same as of a pool that is empty.
        return replace(sides, vault=Tree(), vault_seen=False)
    return sides


def _unseen(
    context: Context, backup: Backup, name: DatasetName, error: ZvaultError
) -> tuple[DatasetPlace, list[ExplainedDecision], bool | None]:
    """What is known where a side could not be listed: what the patterns say."""
    on_source = name.is_within(backup.source.dataset)
    choice = backup.choice(name) if on_source else DatasetChoice(False, "")
    place = DatasetPlace(
        False,
        choice,
        named=name if on_source else None,
        target=context.env.counterpart_of(backup, name) if on_source else name,
    )
    if on_source and not choice.taken:
        return place, [ExplainedDecision("selected", "no", choice.reason)], False
    why = f"{error.what}: {error.why}" if error.why else error.what
    return place, [ExplainedDecision("selected", "unknown", why, error.next, "unknown")], None


def _document(reason: ExplainedDecision) -> ReasonDocument:
    return {
        "topic": reason.topic,
        "side": reason.side,
        "state": reason.state,
        "why": reason.why,
        "next": reason.next,
        "level": reason.level,
    }
