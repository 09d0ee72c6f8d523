"""Prove a backup: compare what both sides hold of their newest common snapshot, by GUID, by sample, or in full."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from zvault.api.events import Emit, MessageEvent, VerifiedEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.core.integrity.verification import (
    KEY_SPACE,
    LevelProof,
    ProofLevel,
    VerificationFindings,
    make_mismatch_error,
)
from zvault.core.replication.lineage import DatasetPair
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides, make_own_filter
from zvault.ops.restore.compare import GiveWay, SnapshotComparison, never_give_way
from zvault.ops.restore.snapshot_reader import close_left_open, open_snapshot
from zvault.ops.vaults.read_meter import start_read_meter
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.ops.verification.proofs import (
    compare_guids,
    compare_properties,
    find_common_snapshot,
    is_in_conflict,
    is_not_sent_yet,
    read_proofs,
    write_proof,
)
from zvault.ops.verification.restore_drill import RestoreDrill


@dataclass
class Verification:
    """One level of one backup, by ``name``: it may take long, so the configuration in force is looked up each time.

    ``proofs`` are what is known once it has ended; ``found`` also while it goes on.
    """

    context: Context
    vaults: Vaults
    name: str
    level: ProofLevel
    emit: Emit
    give_way: GiveWay = never_give_way
    found: VerificationFindings = field(default_factory=VerificationFindings)
    proofs: dict[ProofLevel, LevelProof] = field(default_factory=dict)

    @property
    def backup(self) -> Backup:
        """The backup's table in the configuration."""
        return self.context.env.backup(self.name)

    def say(self, text: str) -> None:
        """Tell whoever follows it."""
        self.emit(MessageEvent(text=text))

    async def execute(self) -> None:
        """Do it, and put what came of it on the vault. Raises ZvaultError ("differs") for what is not the same."""
        backup = self.backup
        await self.give_way()
        use = self.vaults[backup.its_vault].use(f"verify {self.name}", self.say, reads=True, create=False)
        async with use as vault:
            for text in await close_left_open(self.context):
                self.emit(WarningEvent(text=text))
            sides = await list_both_sides(self.context, backup, vault.zfs, elsewhere=True)
            for name, told in sides.unlisted.items():
                self.found.unproven[name] = told.problem
                self.emit(WarningEvent(text=f"{name} is not proven: {told.problem}"))
            self.proofs = await read_proofs(vault.zfs, sides)
            before = self.proofs.get(self.level, LevelProof())
            at = await self._climb(vault, sides, before.at)
            proof = before.after(self.context.env.clock.time(), self.found.result, at)
            self.proofs[self.level] = proof
            await write_proof(vault.zfs, sides, self.level, proof)
        self.emit(
            VerifiedEvent(
                level=self.level,
                result=self.found.result,
                datasets=self.found.datasets,
                files=self.found.files,
                bytes=self.found.bytes,
                unproven=self.found.unproven,
            )
        )
        if self.found.differences:
            raise make_mismatch_error(self.name, backup.its_vault, self.level, self.found)

    async def _climb(self, vault: OpenVault, sides: BothListings, at: int) -> int:
        """Compare; returns where the next sample begins."""
        config = self.backup.verify
        match self.level:
            case "guids":
                await self._guids(vault, sides)
            case "sample":
                return await self._files(vault, sides, at, config.sample, config.budget, everything=False)
            case "full":
                await self._files(vault, sides, 0, 1.0, None, everything=True)
            case "drill":
                drill = RestoreDrill(
                    self.context, vault, self.backup, sides, self.emit, self.found, self.give_way
                )
                await drill.execute()
        return at

    async def _guids(self, vault: OpenVault, sides: BothListings) -> None:
        source = self.context.clients.source_of(self.backup)
        late = [pair.source.name for pair in sides.pairing.pairs if is_not_sent_yet(pair, vault.guid)]
        for name in late:
            self.found.unproven[name] = "it is not backed up yet"
            self.emit(
                WarningEvent(text=f"{name} is not proven: it is not backed up yet; the next run sends it")
            )
        conflicts = [pair.source.name for pair in sides.pairing.pairs if is_in_conflict(pair, vault.guid)]
        for name in conflicts:
            self.found.unproven[name] = "the vault has another dataset in its place"
            self.emit(
                WarningEvent(
                    text=f"{name} is not proven: the vault has another dataset in its place, and the last run left it"
                    f" out as a conflict; 'zvaultctl plan {self.name}' says what to do",
                )
            )
        self.found.datasets = len(sides.pairs) - len(late) - len(conflicts)
        differences = await sides.compute(compare_guids, sides, vault.guid, make_own_filter(self.backup))
        if self.backup.send.properties:
            differences += await compare_properties(source, vault.zfs, sides)
        for one in self.found.add(differences):
            self.emit(WarningEvent(text=f"differs: {one}"))

    async def _files(
        self,
        vault: OpenVault,
        sides: BothListings,
        at: int,
        share: float,
        budget: int | None,
        *,
        everything: bool,
    ) -> int:
        """Compare every dataset from ``at`` on; the next sample begins where the shortest range ends."""
        lengths, meter = [KEY_SPACE], await start_read_meter(vault, "verify", self.emit)
        size = sum(pair.source.used for pair in sides.pairing.pairs) or 1
        for pair in sides.pairing.pairs:
            # Each has its part of the budget, by its size.
            part = None if budget is None else max(1, budget * pair.source.used // size)
            try:
                lengths.append(await self._dataset(vault, pair, (at, share, part), everything))
            except ZvaultError as error:
                if (lost := await vault.trouble()) is not None:
                    raise lost from error
                self.found.unproven[pair.source.name] = str(error)
                self.emit(WarningEvent(text=f"{pair.source.name} is not proven: {error}"))
        await meter.report_reading(self.found.bytes, self.found.vault_seconds)
        return (at + min(lengths)) % KEY_SPACE

    async def _dataset(
        self, vault: OpenVault, pair: DatasetPair, sample: tuple[int, float, int | None], everything: bool
    ) -> int:
        """Compare one dataset; how many keys that was. Raises what keeps it from being compared."""
        mine, its = find_common_snapshot(pair)
        self.say(f"comparing {mine.name} with {its.name}")
        source = self.context.clients.source_of(self.backup)
        async with AsyncExitStack() as both:
            assert pair.vault is not None  # noqa: S101 - it has the snapshot
            here = await both.enter_async_context(
                open_snapshot(self.context, source, pair.source, mine, theirs=True)
            )
            there = await both.enter_async_context(open_snapshot(self.context, vault.zfs, pair.vault, its))
            comparison = SnapshotComparison(
                pair.source.name, mine.guid, here, there, self.found, self.emit, self.give_way
            )
            start, share, budget = sample
            done = await comparison.compare(start, share, budget, everything=everything)
        self.found.datasets += 1
        return done.length
