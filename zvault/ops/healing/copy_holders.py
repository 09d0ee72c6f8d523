"""Who has snapshots of a vault's datasets that can be sent there again: their sources, and other vaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.integrity.damage import HealTarget
from zvault.core.integrity.healing import DatasetCopy, select_healing_streams
from zvault.core.model import Dataset, Tree
from zvault.core.replication.source_properties import is_raw_copy
from zvault.core.replication.unlisted_datasets import list_unlisted_lines
from zvault.ops.context import Context
from zvault.ops.replication import backup_send_record
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.zfs.client import Zfs
from zvault.zfs.stream_argv import SendFlags


@dataclass(frozen=True, slots=True)
class IntactCopy:
    """A copy of a dataset: the client to send from there, and the flags its streams need."""

    zfs: Zfs
    flags: SendFlags


@dataclass
class CopyHolders:
    """Those who have copies of what is damaged in a vault; ``places`` are where, by the copies' keys."""

    context: Context
    vaults: Vaults
    name: str
    say: Callable[[str], None]
    warn: Callable[[str], None]
    places: dict[str, IntactCopy] = field(default_factory=dict)

    async def find(
        self, vault: OpenVault, tree: Tree, wounds: list[HealTarget], held: AsyncExitStack
    ) -> dict[str, list[DatasetCopy]]:
        """Find who has snapshots of the damaged datasets: their sources first, then other vaults."""
        hurt = {
            name: tree.datasets[name]
            for name in {wound.dataset or "" for wound in wounds}
            if name in tree.datasets
        }
        found: dict[str, list[DatasetCopy]] = {name: [] for name in hurt}
        for backup in self.context.env.config.backup.values():
            if backup.vault == self.name:
                try:
                    await self._at_the_source(vault, backup, tree, hurt, found)
                except ZvaultError as error:
                    self.warn(f"the source of {backup.name} cannot be asked: {error}")
        for other in self.context.env.config.vault:
            if other != self.name and any(not select_healing_streams([one], hurt, found) for one in wounds):
                try:
                    await self._in_another(other, hurt, found, held)
                except ZvaultError as error:
                    self.warn(f"vault {other} cannot be asked: {error}")
        return found

    async def _at_the_source(
        self,
        vault: OpenVault,
        backup: Backup,
        tree: Tree,
        hurt: Mapping[str, Dataset],
        found: dict[str, list[DatasetCopy]],
    ) -> None:
        sides = await list_both_sides(self.context, backup, vault.zfs)
        zfs = self.context.clients.source_of(backup)
        where = "the source" if backup.source.host is None else f"the source on {backup.source.host}"
        for pair in sides.pairing.pairs:
            if pair.vault is None or pair.vault.name not in hurt:
                continue
            flags = backup_send_record.find_sent_flags(
                tree, pair.source, pair.vault
            ) or backup_send_record.choose_sent_flags(backup, pair.source)
            found[pair.vault.name].append(
                self._copy(
                    f"{backup.name}:{pair.source.name}",
                    where,
                    pair.source,
                    zfs,
                    SendFlags(
                        flags.large_blocks, flags.compressed, flags.embedded, flags.raw, properties=False
                    ),
                )
            )

    async def _in_another(
        self,
        other: str,
        hurt: Mapping[str, Dataset],
        found: dict[str, list[DatasetCopy]],
        held: AsyncExitStack,
    ) -> None:
        there = await held.enter_async_context(
            self.vaults[other].use(f"heal {self.name}", self.say, writes=False, reads=True, create=False)
        )
        tree = await list_existing_around_damage(there.zfs, there.pool)
        for line in list_unlisted_lines(tree.unlisted):
            self.warn(f"what vault {other} has is not all known: {line}")
        by_guid = {snap.guid: dataset for dataset in tree for snap in dataset.snapshots}
        for name, dataset in hurt.items():
            having = [by_guid[snap.guid] for snap in reversed(dataset.snapshots) if snap.guid in by_guid]
            if having:
                one = having[0]
                raw = is_raw_copy(one)
                flags = SendFlags(True, True, not raw, raw, properties=False)
                found[name].append(
                    self._copy(f"vault {other}:{one.name}", f"vault {other}", one, there.zfs, flags)
                )

    def _copy(self, key: str, place: str, dataset: Dataset, zfs: Zfs, flags: SendFlags) -> DatasetCopy:
        self.places[key] = IntactCopy(zfs, flags)
        return DatasetCopy(
            key,
            place,
            {snap.guid: snap.name for snap in dataset.snapshots},
            {mark.guid: mark.name for mark in dataset.bookmarks},
        )
