"""A restore drill: a dataset of the backup restored for real, compared with its source, timed, and destroyed again."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace

from zvault.api.events import Emit, MessageEvent
from zvault.config.schema import Backup
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.integrity.verification import DRILLED_PROPERTY, VerificationFindings
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.restore_order import Restoration, RestoreStream
from zvault.core.replication.source_properties import is_raw_copy
from zvault.core.units import format_duration, format_rate, format_size, is_number
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings
from zvault.ops.restore.compare import GiveWay, SnapshotComparison
from zvault.ops.restore.plan_restore import DatasetWork
from zvault.ops.restore.restore_streams import RestoreStreams
from zvault.ops.restore.snapshot_reader import make_scratch_dataset, open_snapshot
from zvault.ops.vaults.read_meter import start_read_meter
from zvault.ops.vaults.vault import OpenVault
from zvault.ops.verification.proofs import find_common_snapshot
from zvault.zfs import properties, scratch_datasets
from zvault.zfs.trial_dataset import DRILL_PREFIX


@dataclass
class RestoreDrill:
    """One drill of one backup, with the datasets of both sides as they were listed."""

    context: Context
    vault: OpenVault
    backup: Backup
    sides: BothListings
    emit: Emit
    found: VerificationFindings
    give_way: GiveWay

    async def execute(self) -> None:
        """Restore the dataset whose last drill is the longest ago, and compare it. Raises what keeps it from it."""
        await self.give_way()
        pair = await self._whose_turn()
        mine, its = find_common_snapshot(pair)
        assert pair.vault is not None  # noqa: S101 - it has the snapshot
        source = self.context.clients.source_of(self.backup)
        top = self._into().child(DRILL_PREFIX + secrets.token_hex(4))
        scratch = self.context.clients.source_at(None)
        async with make_scratch_dataset(self.context, scratch.host, top):
            await scratch_datasets.make_scratch_parent(scratch.host, top)
            target = top.child("drill")
            seconds, moved = await self._restore(pair, its, target)
            self.emit(MessageEvent(text=_timed(pair.source.name, target, moved, seconds)))
            back = Dataset(target, 0, pair.vault.type, encrypted=is_raw_copy(pair.vault))
            snapshot = replace(its, dataset=target)
            guid = (await scratch.get(snapshot.name, "guid"))["guid"]
            if guid != str(mine.guid):
                raise ZvaultError(
                    f"{snapshot.name} has another GUID than {mine.name}", f"{guid}, not {mine.guid}"
                )
            key = self.backup.verify.key
            if back.encrypted and key is not None:
                await scratch_datasets.load_scratch_key(scratch.host, target, f"file://{key}")
            async with (
                open_snapshot(self.context, source, pair.source, mine, theirs=True) as here,
                open_snapshot(self.context, scratch, back, snapshot) as there,
            ):
                comparison = SnapshotComparison(
                    pair.source.name, mine.guid, here, there, self.found, self.emit, self.give_way
                )
                await comparison.compare(0, 1.0, None, everything=True)
        self.found.datasets += 1
        if not self.found.differences:
            done = {DRILLED_PROPERTY: str(int(self.context.env.clock.time()))}
            await properties.set_properties(self.vault.zfs.host, pair.vault.name, done)

    def _into(self) -> DatasetName:
        backup = self.backup
        if backup.verify.drill_into is not None:
            return DatasetName(backup.verify.drill_into)
        return backup.source.dataset if backup.source.host is None else DatasetName(self.vault.pool)

    async def _whose_turn(self) -> DatasetPair:
        """The dataset whose last drill is the longest ago, of those within the budget. Raises NotFound."""
        budget = self.backup.verify.budget
        drilled: dict[str, int] = {}
        for pair in self.sides.pairing.pairs:
            if pair.vault is None or pair.vault.used > budget or not pair.vault.snapshots:
                continue
            known = await properties.read_local_properties(
                self.vault.zfs.host, pair.vault.name, DRILLED_PROPERTY
            )
            when = known.get(DRILLED_PROPERTY, "")
            # Whoever had the vault's pool may have set it: a mark of thousands of digits raised ValueError.
            drilled[pair.source.name] = int(when) if is_number(when) else 0
        if not drilled:
            raise NotFound(
                f"no dataset of backup '{self.backup.name}' can be drilled",
                f"each is larger than the budget of {format_size(budget)}, or not on the vault",
                f"raise 'budget' in [backup.{self.backup.name}.verify]",
            )
        turn = min(drilled, key=lambda name: drilled[name])
        return next(pair for pair in self.sides.pairing.pairs if pair.source.name == turn)

    async def _restore(self, pair: DatasetPair, snapshot: Snapshot, target: DatasetName) -> tuple[float, int]:
        """Restore it; in how many seconds, and by how many bytes."""
        assert pair.vault is not None  # noqa: S101
        its = replace(pair.vault, encrypted=is_raw_copy(pair.vault))
        flags = ["large_blocks", "raw" if its.encrypted else "compress"]
        size = await self.vault.zfs.lzc.send_space(snapshot.name, None, flags)
        one = RestoreStream(snapshot)
        work = DatasetWork(Restoration(its, target, (one,)), (one,), (size,), "restore")
        scratch = self.context.clients.source_at(None)
        streams = RestoreStreams(self.context, self.vault, self.backup.name, scratch, self.emit)
        meter, began = await start_read_meter(self.vault, "drill", self.emit), time.monotonic()
        await streams.restore_all([work])
        seconds = time.monotonic() - began
        await meter.report_reading(streams.done, seconds)
        return seconds, streams.done


def _timed(name: str, target: str, moved: int, seconds: float) -> str:
    rate = format_rate(moved / max(seconds, 0.001))
    return f"drill: {name} came back as {target}: {format_size(moved)} in {format_duration(seconds)} ({rate})"
