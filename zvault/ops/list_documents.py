"""What `zvaultctl list` shows as documents: datasets and their snapshots on both sides. Changes nothing."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from zvault.api.backups import (
    DatasetDocument,
    GoneDocument,
    ListAnswer,
    SnapshotDocument,
    UnlistedDocument,
)
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.core.replication.lineage import find_base
from zvault.core.replication.unlisted_datasets import list_unlisted_lines
from zvault.ops.context import Context
from zvault.ops.plan_documents import list_gone_documents
from zvault.ops.replication.lag import measure_lags
from zvault.ops.replication.listing import BothListings, list_both_sides
from zvault.ops.vaults.vault import Vaults
from zvault.system.side_threads import compute_aside

PlacedDataset = tuple[Dataset, DatasetName]
"""A dataset of a source, and the name that its counterpart on the vault should have."""


@dataclass(frozen=True, slots=True)
class DatasetPagePart:
    """A part of the datasets of one backup: so many, those that follow one by name; from the first if that is empty."""

    limit: int
    after: str = ""

    def of(self, pairs: Sequence[PlacedDataset]) -> tuple[Sequence[PlacedDataset], str | None]:
        """The pairs on it, and after which the next one begins; None where it is the last.

        Where the dataset that it follows is gone, it begins with what would come after that.
        """
        parts = DatasetName(self.after).parts
        start = bisect_right(pairs, parts, key=lambda pair: pair[0].name.parts) if self.after else 0
        end = start + self.limit
        return pairs[start:end], pairs[end - 1][0].name if end < len(pairs) else None


async def make_list_document(
    context: Context,
    vaults: Vaults,
    only: str | None,
    *,
    snapshots: bool = False,
    page: DatasetPagePart | None = None,
    lags_before: Callable[[Backup], Mapping[str, DatasetLag] | None] = lambda _: None,
) -> ListAnswer:
    """Every dataset of every backup (or of one, in each of its vaults), and their snapshots where asked for. What
    cannot be listed is named beside the rest. Raises ZvaultError for one backup that cannot be.

    A vault that is down is not brought up for this: its columns are null then. With a ``page``, some of those of one
    backup, and what is gone on the first only. How much is used is then asked of those alone: no event tells of it.

    ``lags_before`` tells what was seen of a vault that is down: it may have disproved what bookmarks tell.
    """
    if only and page is not None:
        context.env.backup(only)  # a page is of one backup
    backups = context.env.list_backups_of(only) if only else list(context.env.config.backup.values())
    document: ListAnswer = {"datasets": [], "gone": [], "gone_unknown": []}
    both_sides: list[SnapshotDocument] = []
    unlisted: list[UnlistedDocument] = []
    for backup in backups:
        up = backup.vault is not None and await context.clients.pool_is_up(context.env.vault(backup.vault))
        try:
            vault = context.clients.vault_of(backup) if up else None
            sides = await list_both_sides(context, backup, vault, sizes="both" if page is None else "none")
        except ZvaultError as error:
            if only:
                raise
            unlisted.append({"backup": backup.name, "dataset": str(backup.source), "why": str(error)})
            document["gone_unknown"].append(backup.name)
            continue
        unlisted += make_unlisted_documents(backup.name, sides)
        before = lags_before(backup) if not up else None
        found = await sides.compute(measure_lags, context, backup, sides, before=before)
        none = DatasetLag("", None, None)
        if backup.vault is not None and (not up or sides.partial):
            document["gone_unknown"].append(backup.name)
        pairs: Sequence[PlacedDataset] = sides.pairs
        gone = list_gone_documents(backup.name, sides) if page is None or not page.after else []
        counterparts = sides.counterparts
        if page is not None:
            pairs, document["next"] = page.of(pairs)
            pairs, gone = await _sized(context, backup, pairs, gone)
        document["gone"] += gone
        for dataset, target in pairs:
            there = counterparts.get(dataset.name)
            size = len(dataset.snapshots) + len(there.snapshots if there is not None else ())
            row = await compute_aside(
                size,
                None,
                make_dataset_document,
                backup.name,
                dataset,
                target if backup.vault is not None else "",
                there,
                found.get(dataset.name, none),
                context.env.clock.time(),
                up=up,
            )
            document["datasets"].append(row)
            if snapshots:
                both_sides += await compute_aside(
                    size, None, make_snapshot_documents, backup.name, dataset, there, up
                )
            await asyncio.sleep(
                0
            )  # thousands of datasets one after another would be one long turn of the loop
    if snapshots:
        document["snapshots"] = both_sides
    if unlisted:
        document["unlisted"] = unlisted
    return document


def make_unlisted_documents(backup: str, sides: BothListings) -> list[UnlistedDocument]:
    """What of a backup cannot be listed on either side, and what of its source depends on that."""
    cut = {**sides.source.unlisted, **sides.vault.unlisted}
    why = dict(zip(cut, list_unlisted_lines(cut), strict=True)) | {
        DatasetName(name): one.problem for name, one in sides.unlisted.items()
    }
    return [{"backup": backup, "dataset": name, "why": text} for name, text in why.items()]


async def _sized(
    context: Context, backup: Backup, pairs: Sequence[PlacedDataset], gone: Sequence[GoneDocument]
) -> tuple[Sequence[PlacedDataset], list[GoneDocument]]:
    """These with how much they use now. What went since is as it was when it was listed."""
    here = await context.clients.source_of(backup).used([dataset.name for dataset, _ in pairs])
    there = (
        await context.clients.vault_of(backup).used([row["vault_dataset"] for row in gone]) if gone else {}
    )
    sized = [(replace(one, used=here.get(one.name, one.used)), target) for one, target in pairs]
    return sized, [{**row, "used": there.get(row["vault_dataset"], row["used"])} for row in gone]


def make_dataset_document(
    backup: str,
    dataset: Dataset,
    target: str,
    there: Dataset | None,
    lag: DatasetLag,
    now: float,
    *,
    up: bool,
) -> DatasetDocument:
    """A dataset of a backup; ``there`` is what the vault has of it, ``up`` whether that could be seen."""

    base = find_base(dataset, there) if there is not None else None
    return {
        "backup": backup,
        "dataset": dataset.name,
        "type": dataset.type,
        "vault_dataset": target,
        "used": dataset.used,
        "snapshots_source": len(dataset.snapshots),
        "snapshots_vault": len(there.snapshots if there else ()) if up else None,
        "base": base[1].snapname if base else None,
        "lag_seconds": lag.age(now),
        "pending": lag.pending,
        "resumable": bool(there and there.resume_token),
    }


def make_snapshot_documents(
    backup: str, dataset: Dataset, there: Dataset | None, up: bool
) -> list[SnapshotDocument]:
    """The snapshots of a dataset on both sides, oldest first; see ``make_dataset_document``."""
    on_source = {snap.guid: snap for snap in dataset.snapshots}
    on_vault = {snap.guid: snap for snap in (there.snapshots if there else ())}
    base = find_base(dataset, there) if there is not None else None
    both = sorted({**on_vault, **on_source}.values(), key=lambda snap: (snap.creation, snap.createtxg))
    return [
        {
            "backup": backup,
            "dataset": dataset.name,
            "snapname": snap.snapname,
            "guid": str(snap.guid),
            "creation": snap.creation,
            "on_source": snap.guid in on_source,
            "on_vault": snap.guid in on_vault if up else None,
            "base": base is not None and base[1].guid == snap.guid,
        }
        for snap in both
    ]
