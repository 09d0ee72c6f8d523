"""The bases that other backups of the same datasets have in the same pool: one run must not give up another's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from zvault.config.schema import Backup
from zvault.core.model import Base, Dataset
from zvault.core.snapshot_list import guids_of
from zvault.ops.context import Context
from zvault.zfs.client import Zfs


async def find_other_bases(
    context: Context, backup: Backup, vault: Zfs, datasets: Sequence[Dataset]
) -> Mapping[str, set[int]]:
    """By dataset of the source, the GUIDs that the copies of other backups in a backup's pool go on from.

    Holds and bookmarks are for a pool, and there is one of each snapshot for all backups that go there. The other
    places are listed only where a configured backup takes the same datasets into the same pool; what lies there goes by
    GUID, not by name.
    """
    found: dict[str, set[int]] = defaultdict(set)
    for other in _others(context, backup):
        taken = [
            one for one in datasets if one.name.is_within(other.source.dataset) and other.takes(one.name)
        ]
        if not taken:
            continue
        owners: dict[int, list[str]] = defaultdict(list)
        for one in taken:
            points: tuple[Base, ...] = (*one.snapshots, *one.bookmarks)
            for guid in {point.guid for point in points}:
                owners[guid].append(one.name)
        for copy in await vault.tree_or_none(context.env.target_of(other, other.source.dataset), sizes=False):
            for base in [guid for guid in reversed(guids_of(copy.snapshots)) if guid in owners][:1]:
                for name in owners[base]:
                    found[name].add(base)
    return found


def _others(context: Context, backup: Backup) -> list[Backup]:
    """The other backups that take something of the same source into the same pool."""
    env, vault = context.env, context.env.vault(backup.its_vault)
    return [
        other
        for other in env.config.backup.values()
        if other.name != backup.name
        and other.vault is not None
        and other.source.host == backup.source.host
        and (env.vault(other.vault).host, env.vault(other.vault).pool) == (vault.host, vault.pool)
        and (
            other.source.dataset.is_within(backup.source.dataset)
            or backup.source.dataset.is_within(other.source.dataset)
        )
    ]
