"""The snapshots that a run makes of its source: once in all its tries, of what changed, between their hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zvault.api.events import DatasetFailed, Emit, MessageEvent, WarningEvent
from zvault.config.schema import Backup
from zvault.core.errors import SnapshotRefused, ZvaultError
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName, split_snapshot
from zvault.core.replication.snapshot_refusal import (
    SnapshotAnswer,
    SnapshotFacts,
    explain_refusals,
)
from zvault.core.replication.unchanged_datasets import NOTHING_UNCHANGED, UnchangedDatasets
from zvault.core.snapshot_list import SnapnameIndex, list_guids
from zvault.ops.context import Context
from zvault.ops.hooks import RunHooks
from zvault.ops.name_clash import give_up_snapshots, list_names_on_vault, list_to_give_up, list_to_replace
from zvault.ops.replication.find_unchanged import find_unchanged, find_unwritten
from zvault.ops.replication.listing import (
    BothListings,
    choose_snapshots,
    find_half_received_datasets,
    list_selected,
)
from zvault.ops.replication.source_snapshot import RecentSource, SourceSnapshot
from zvault.ops.retention.make_room import prune_full_source
from zvault.ops.state.activity import SharedMoment
from zvault.ops.state.source_tree import list_source
from zvault.ops.vaults.vault import OpenVault
from zvault.system.side_threads import compute_aside

HOOK_DATASETS = 3
"""Datasets named to a hook."""


@dataclass
class RunSnapshot:
    """Makes the snapshots of one run of the backup ``name``; ``hooks`` has their snapname once they are made.

    Unless ``wanted``, or where the backup's table says so, it makes none; ``own_time`` says that the table's time for a
    snapshot has come, apart from its runs. ``source`` is forgotten whenever it may be
    another than it was. ``refused`` says why datasets got none, by name: all others have theirs. ``pruned`` counts the
    source's snapshots that had to go first, as there was no room; None where there was.

    Of a backup with several vaults the run of one makes the snapshot, and the runs of the others take it: what was made
    ``since`` a time (monotonic seconds) is new enough for this run, which has asked for a state of then or later. None:
    it takes no other's.
    """

    context: Context
    name: str
    emit: Emit
    hooks: RunHooks
    source: RecentSource
    wanted: bool = True
    own_time: bool = False
    since: float | None = None
    refused: dict[str, SnapshotRefused] = field(default_factory=dict, init=False)
    pruned: int | None = field(default=None, init=False)
    _fresh: list[list[str]] = field(default_factory=list, init=False)
    """The full names of those made since both sides were listed, by the call that made them."""

    @property
    def wanted_now(self) -> bool:
        """True if the run makes snapshots, by the configuration in force."""
        return self.own_time or (self.wanted and self._backup.snapshot.make)

    @property
    def _backup(self) -> Backup:
        return self.context.env.backup(self.name)

    def _say(self, text: str) -> None:
        self.emit(MessageEvent(text=text))

    def _warn(self, text: str) -> None:
        self.emit(WarningEvent(text=text))

    async def make(
        self, vault: OpenVault | None, *, avoid: SnapnameIndex | None = None
    ) -> tuple[str, Tree | None]:
        """Make the run's snapshot, unless an earlier try has, of what changed; the snapname of one that was made, else
        nothing. And the source as it was listed then, if it was. It gets none of the names to ``avoid``.
        """
        if self.hooks.snapname:
            self._say(f"going on with @{self.hooks.snapname}")
            return "", None
        if not self.wanted_now:
            return "", None
        async with self.context.activity.snapshotting[self._backup.table_name]:
            taken = await self._take_moment(vault) if avoid is None else None
            return taken or await self._make_it(vault, avoid)

    async def _make_it(self, vault: OpenVault | None, avoid: SnapnameIndex | None) -> tuple[str, Tree | None]:
        async with self.hooks.around("snapshot", self._backup.snapshot.hooks, self._ending):
            backup = self._backup
            if backup.snapshot.hooks.before:
                self.source.forget()  # who knows what they did

            unchanged = NOTHING_UNCHANGED
            if vault is not None:
                unchanged = await find_unchanged(self.context, backup, vault.zfs, self.emit)
            elif backup.siblings and not self.own_time:
                unchanged = await find_unwritten(self.context, backup, self.emit)
            self.hooks.snapname = await self._make_but(backup, unchanged, avoid, vault)
            if not unchanged.stands:
                return self.hooks.snapname, None
            seen = await list_source(self.context.clients, backup)
            if not unchanged.holds(seen):
                # The snapshot is of one moment, so those that changed before it have to be in it.
                self._say("what was unchanged is written to just now: all datasets are snapshotted")
                self.hooks.snapname = await self._make_but(backup, NOTHING_UNCHANGED, avoid, vault)
                return self.hooks.snapname, None
            await self._note_unchanged(unchanged, seen)
        return self.hooks.snapname, seen

    async def _take_moment(self, vault: OpenVault | None) -> tuple[str, Tree | None] | None:
        """Take the snapshot that the run of another vault of the backup made, and the source as it was listed since.

        None where there is none that is new enough, or it lacks what this vault needs: what is unchanged for one vault
        may be new to another, and a name may be too long on one only. Where there is no vault it does as history.
        """
        backup = self._backup
        moment = self.context.activity.moments.get(backup.table_name)
        if self.own_time or moment is None or self.since is None or moment.began < self.since:
            return None
        unchanged, seen = NOTHING_UNCHANGED, None
        if vault is not None:
            unchanged = await find_unchanged(self.context, backup, vault.zfs, self.emit)
            seen = await list_source(self.context.clients, backup)
            wanted = choose_snapshots(self.context.env, backup, list_selected(backup, seen), unchanged)
            there = {split_snapshot(name)[0] for name in moment.made} | moment.refused.keys()
            if not unchanged.holds(seen) or any(
                one.taken and name not in there for name, one in wanted.items()
            ):
                return None
        self._say(f"going on with @{moment.snapname}, which the run of {moment.backup} made")
        self.hooks.snapname = moment.snapname
        self._fresh.append(list(moment.made))
        self.source.forget()
        self._tell_refused(moment.refused)
        if unchanged.stands and seen is not None:
            await self._note_unchanged(unchanged, seen)
        return "", seen

    def _share_moment(self, backup: Backup, snapname: str, began: float, made: Sequence[str]) -> None:
        if snapname and backup.siblings and not self.own_time:
            moment = SharedMoment(backup.name, snapname, began, made, dict(self.refused))
            self.context.activity.moments[backup.table_name] = moment

    def _ending(self) -> tuple[str, str]:
        """How making it ended, for the hooks after it."""
        if not self.refused:
            return "ok", ""
        result = "partial" if self.hooks.snapname else "failed"
        return result, "; ".join(str(error) for error in list(self.refused.values())[:HOOK_DATASETS])

    async def _make_but(
        self,
        backup: Backup,
        unchanged: UnchangedDatasets,
        avoid: SnapnameIndex | None,
        vault: OpenVault | None,
    ) -> str:
        """Make a snapshot of all datasets but those that are unchanged, or of which ZFS makes none; its snapname, or
        nothing if those are all.
        """
        half_received: dict[str, SnapshotRefused] = {}

        async def listed() -> list[str]:
            """The datasets' names; whoever asks again found them to be others by now."""
            chosen = list_selected(backup, await self.source.tree(backup))
            self.source.forget()
            half_received.clear()
            half_received.update(find_half_received_datasets(chosen))
            choices = choose_snapshots(self.context.env, backup, chosen, unchanged, own_time=self.own_time)
            return [name for name, one in choices.items() if one.taken]

        async def make_room() -> bool:
            zfs = vault.zfs if vault is not None else None
            gone = await prune_full_source(self.context, backup, zfs, self.emit)
            self.pruned = (self.pruned or 0) + gone
            return gone > 0

        lzc, began = self.context.clients.source_of(backup).lzc, self.context.env.clock.monotonic()
        taken = list_names_on_vault(self.context, backup) if avoid is None else avoid
        made = SourceSnapshot(
            lzc,
            backup,
            listed,
            self.context.env.clock,
            taken,
            must_be_free=avoid is not None,
            make_room=make_room if self.pruned is None else None,
        )
        snapname = await made.make()
        if made.made:
            self._fresh.append(made.made)
        if made.warning:
            self._warn(made.warning)
        await self._note_refused(backup, half_received, made.refused)
        self._share_moment(backup, snapname, began, made.made)
        return snapname

    async def _note_refused(
        self,
        backup: Backup,
        known: Mapping[str, SnapshotRefused],
        answers: Mapping[DatasetName, SnapshotAnswer],
    ) -> None:
        """Keep, and tell, of which datasets ZFS makes no snapshot, and why: what was known before, and what it said."""
        facts: dict[DatasetName, SnapshotFacts] = {}
        if answers:
            with contextlib.suppress(ZvaultError):  # then ZFS's own words have to do
                asked = await self.context.clients.source_of(backup).snapshot_facts(list(answers))
                facts = {one.name: one for one in asked}
        self._tell_refused({**known, **explain_refusals(answers, facts)})

    def _tell_refused(self, refused: Mapping[str, SnapshotRefused]) -> None:
        before, self.refused = self.refused, dict(refused)
        for name, error in self.refused.items():
            if name not in before:
                self.emit(DatasetFailed(dataset=name, error=error.as_dict(), again=False))

    async def _note_unchanged(self, unchanged: UnchangedDatasets, source: Tree) -> None:
        """Put on record until when the vault has the datasets that get no snapshot: their lag counts from then."""
        size = sum(1 + len(dataset.snapshots) for dataset in source)
        known = await compute_aside(size, None, _guids, source)
        self.context.records.unchanged.note(self._backup.name, unchanged, known)
        self._say(f"unchanged, so neither snapshotted nor sent: {len(unchanged.stands)} datasets")

    async def make_anew(self, vault: OpenVault, sides: BothListings) -> str | None:
        """Make the run's snapshots anew where the vault has others of their name, and then destroy those made before.

        The new snapname, or nothing where none could be made: then the first ones stay, and what can be sent of them
        is. Both sides have to be listed again after either; None where there was nothing to do. Now that the vault is
        listed its names are known, so once is enough: whatever else comes up is a conflict. What is to be destroyed is
        written down before it is made anew: a later run destroys what this one cannot.
        """
        calls, self._fresh = self._fresh, []
        owed = await list_to_give_up(self.context, self._backup, sides, self.hooks.snapname, self.emit)
        before = await list_to_replace(self.context, self._backup, sides, calls, self.emit)
        if not before:
            if owed:
                await self._give_up(owed)
            return "" if owed else None
        self.context.records.replaced.add(self._backup.name, before)
        self.source.forget()
        first, self.hooks.snapname = self.hooks.snapname, ""
        made = ""
        try:
            made, _ = await self.make(vault, avoid=SnapnameIndex(one.snapshots for one in sides.vault))
        except ZvaultError as error:
            self._warn(f"the snapshot could not be made anew, so @{first} stays: {error}")
        calls, self._fresh = self._fresh, []
        anew = {SnapshotName(name).dataset for names in calls for name in names}
        replaced = [snap for snap in before if snap.dataset in anew]
        if not made:
            self.hooks.snapname = first
            await self._give_up(owed)
            return ""
        await self._give_up([*owed, *replaced])
        return made

    async def _give_up(self, replaced: Sequence[Snapshot]) -> None:
        await give_up_snapshots(self.context, self._backup, replaced, self.emit)
        self.source.forget()


def _guids(source: Tree) -> set[int]:
    """Those of all that a source has."""
    known = {guid for dataset in source for guid in list_guids(dataset.snapshots)}
    return known | {mark.guid for dataset in source for mark in dataset.bookmarks}
