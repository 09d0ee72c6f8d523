"""Proofs, kept on the vault: when a level of the verification last passed, as user properties of the backup's root."""

from __future__ import annotations

from collections.abc import Mapping

from zvault.api.events import Emit, MessageEvent, VaultHolds, WarningEvent
from zvault.config.schema import Backup
from zvault.config.tables.verification import GUIDS_EVERY
from zvault.core.errors import ZvaultError
from zvault.core.integrity.verification import (
    PROOF_LEVELS,
    VERIFIED_PREFIX,
    ContentDifference,
    LevelProof,
    ProofLevel,
    parse_proof,
)
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import list_sent_marks, was_once_sent
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import SnapshotFilter
from zvault.core.units import is_number
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings, list_both_sides, make_own_filter
from zvault.ops.vaults.vault import OpenVault
from zvault.zfs import compare_settings, properties
from zvault.zfs.client import Zfs
from zvault.zfs.properties import is_compared

OnBoth = tuple[DatasetName, DatasetName]
"""The names of a source's dataset and of the one on the vault that follows it."""


def find_proof_holder(sides: BothListings) -> Dataset | None:
    """The vault's dataset that bears a backup's proofs: the first that is there, which is the root's as a rule."""
    return next((pair.vault for pair in sides.pairing.pairs if pair.vault is not None), None)


async def read_proofs(vault: Zfs, sides: BothListings) -> dict[ProofLevel, LevelProof]:
    """Read the proofs on the vault, by level."""
    there = find_proof_holder(sides)
    if there is None:
        return {}
    found = await properties.read_local_properties(
        vault.host, there.name, *(VERIFIED_PREFIX + level for level in PROOF_LEVELS)
    )
    return {level: parse_proof(found.get(VERIFIED_PREFIX + level, "")) for level in PROOF_LEVELS}


async def write_proof(vault: Zfs, sides: BothListings, level: ProofLevel, proof: LevelProof) -> None:
    """Put one there. Raises ToolFailed."""
    there = find_proof_holder(sides)
    if there is not None:
        await properties.set_properties(vault.host, there.name, {VERIFIED_PREFIX + level: str(proof)})


def is_not_sent_yet(pair: DatasetPair, pool: int) -> bool:
    """True if a dataset is simply not backed up yet: made since the last run, or its first stream has not ended.

    Its bookmarks tell whether the vault's pool, of that GUID, ever had anything of it. What it lost and is being sent
    again is not there yet either.
    """
    there = pair.vault
    if there is not None and not there.snapshots and there.resume_token is not None:
        return not list_sent_marks(pair.source, pool)
    empty = there is None or (not there.snapshots and there.placeholder)
    return empty and not was_once_sent(pair.source, pool)


def is_in_conflict(pair: DatasetPair, pool: int) -> bool:
    """True if the vault has another dataset in its place, and the pool, of that GUID, never had anything of it.

    So it is where a dataset was destroyed and made again under its name: the plan calls that a conflict, and nothing
    was damaged. Where a bookmark says that the pool had a base, its absence is a difference.
    """
    return pair.vault is not None and pair.base is None and not was_once_sent(pair.source, pool)


def compare_guids(sides: BothListings, pool: int, is_own: SnapshotFilter) -> list[ContentDifference]:
    """List what contradicts each other in the listings of both sides.

    That is a base which is gone, one of zvault's own snapshots (``is_own``) with another GUID there, and bytes written
    on the vault, if the listings are ``sized``. Other tools use a name again for another snapshot (vzdump's each
    night), so of theirs a name says nothing. ``pool`` is the GUID of the vault's pool.
    """
    found = []
    for pair in sides.pairing.pairs:
        if is_not_sent_yet(pair, pool) or is_in_conflict(pair, pool) or pair.source.name in sides.stray:
            continue
        if pair.vault is None:
            found.append(ContentDifference(pair.source.name, "the dataset", "there", "missing"))
            continue
        if pair.base is None:
            found.append(ContentDifference(pair.source.name, "the base", "none in common", pair.vault.name))
        if pair.vault.written and sides.sized:
            found.append(
                ContentDifference(
                    pair.source.name, "bytes written on the vault", "0", str(pair.vault.written)
                )
            )
        own = {snap.snapname: snap.guid for snap in pair.source.snapshots if is_own(snap)}
        for snap in pair.vault.snapshots:
            if own.get(snap.snapname, snap.guid) != snap.guid:
                here, there = (f"GUID {guid:016x}" for guid in (own[snap.snapname], snap.guid))
                found.append(ContentDifference(pair.source.name, f"@{snap.snapname}", here, there))
    return found


async def compare_properties(source: Zfs, vault: Zfs, sides: BothListings) -> list[ContentDifference]:
    """Properties that are set on the source, and came to the vault with another value."""
    pairs = [(pair.source.name, pair.vault.name) for pair in sides.pairing.pairs if pair.vault is not None]
    pairs = await _perhaps_otherwise(source, vault, pairs)
    # In words, as zfs has them.
    mine = await properties.read_values(source.host, [name for name, _ in pairs], "value")
    its = await properties.read_values(vault.host, [name for _, name in pairs], "received")
    found = []
    for on_source, on_vault in pairs:
        here, there = mine.get(on_source, {}), its.get(on_vault, {})
        for name in sorted(here.keys() & there.keys()):
            if here[name] != there[name]:
                found.append(ContentDifference(on_source, f"property {name}", here[name], there[name]))
    return found


async def _perhaps_otherwise(source: Zfs, vault: Zfs, pairs: list[OnBoth]) -> list[OnBoth]:
    """Those of which libzfs does not tell that the properties are the same; all where it cannot be asked."""
    read = await compare_settings.read_settings_by_library(
        source, [name for name, _ in pairs], vault, [name for _, name in pairs]
    )
    if read is None:
        return pairs
    mine, its = read

    def same(on_source: str, on_vault: str) -> bool:
        if on_source not in mine or on_vault not in its:
            return False
        there = its[on_vault]
        return all(
            there[key].received in {value, "-"}
            for key, value in mine[on_source].items()
            if key in there and is_compared(key)
        )

    return [pair for pair in pairs if not same(*pair)]


async def prove_guids(
    context: Context, backup: Backup, sides: BothListings, opened: OpenVault, emit: Emit
) -> Mapping[ProofLevel, LevelProof]:
    """At the end of a run: compare GUIDs, which costs nothing; and properties, if the last proof is a day old.

    Returns all proofs of the backup. What differs is told once; trouble with the proofs fails no run.
    """
    now, vault = context.env.clock.time(), opened.zfs
    try:
        proofs = await read_proofs(vault, sides)
        before = proofs.get("guids", LevelProof())
        fresh = before.result == "ok" and before.tried is not None and 0 <= now - before.tried < GUIDS_EVERY
        if not (fresh or sides.sized):
            sides = await list_both_sides(context, backup, vault, source=sides.source, sizes="vault")
        if not fresh:
            await report_held_bytes(opened, sides, emit)
        differences = await sides.compute(compare_guids, sides, opened.guid, make_own_filter(backup))
        if not fresh and not differences and backup.send.properties:
            differences = await compare_properties(context.clients.source_of(backup), vault, sides)
        result = "differs" if differences else "ok"
        if differences and before.result != result:
            emit(
                WarningEvent(
                    text=f"not the same on both sides: {'; '.join(str(one) for one in differences[:3])}",
                )
            )
        if not fresh or result != before.result:
            proofs["guids"] = before.after(now, result)
            await write_proof(vault, sides, "guids", proofs["guids"])
    except ZvaultError as error:
        emit(MessageEvent(text=f"the proofs on the vault are not known: {error}"))
        return {}
    return proofs


async def report_held_bytes(opened: OpenVault, sides: BothListings, emit: Emit) -> None:
    """Report how many bytes the newest state of a backup's datasets is on the vault, as they lie there.

    So many go through a restore: it sends blocks as they are compressed. Raises ToolFailed.
    """
    names = [
        pair.vault.name for pair in sides.pairing.pairs if pair.vault is not None and pair.vault.snapshots
    ]
    found = await properties.read_exact_properties(opened.zfs.host, names, ("referenced",))
    held = sum(int(one["referenced"]) for one in found.values() if is_number(one.get("referenced", "")))
    emit(VaultHolds(vault=opened.name, datasets=len(names), bytes=held))


def find_common_snapshot(pair: DatasetPair) -> tuple[Snapshot, Snapshot]:
    """The newest snapshot that both sides have, as (source, vault). Raises ZvaultError."""
    own = {snap.guid: snap for snap in pair.source.snapshots}
    there = pair.vault.snapshots if pair.vault is not None else ()
    found = next((snap for snap in reversed(there) if snap.guid in own), None)
    if found is None:
        raise ZvaultError(
            f"{pair.source.name} has no snapshot in common with the vault",
            "it was not backed up yet, or only a bookmark is left of what was",
            "run the backup",
        )
    return own[found.guid], found
