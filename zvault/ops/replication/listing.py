"""Both sides of a backup, as one look saw them: which datasets are taken, and where each belongs on the vault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import compress
from operator import itemgetter, not_
from typing import Literal, ParamSpec, TypeVar

from zvault.config.schema import Backup
from zvault.core.address import Address
from zvault.core.errors import NotFound, SnapshotRefused, ToolFailed
from zvault.core.lazy import LazyProperty
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.name_rules import DatasetChoice
from zvault.core.names import DatasetName
from zvault.core.replication.base_elsewhere import PoolSearch, StrayBackup, find_unsure, lacks_base
from zvault.core.replication.lineage import ASIDE_INFIX, Pairing
from zvault.core.replication.name_length import NameConflict, find_name_conflict
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import SnapshotFilter, UnknownDataset
from zvault.core.replication.snapshot_choice import choose_for_snapshot
from zvault.core.replication.snapshot_refusal import find_half_received
from zvault.core.replication.unchanged_datasets import UnchangedDatasets
from zvault.core.replication.unlisted_datasets import (
    describe_unlisted,
    explain_unlisted_source,
    explain_unlisted_target,
    hides_others,
    is_in_unlisted,
)
from zvault.core.replication.vault_encryption import NO_KEYS_ABOVE, KeysAbove
from zvault.core.snapshot_form import SnapshotNames
from zvault.core.snapshot_list import SnapnameIndex
from zvault.ops.context import Context
from zvault.ops.state.cached_backups import CachedBackup
from zvault.ops.state.environment import Environment
from zvault.ops.state.partial_tree import list_around_damage, list_existing_around_damage
from zvault.ops.state.source_tree import list_source
from zvault.system.side_threads import compute_aside
from zvault.zfs import rename_clone_rollback
from zvault.zfs.client import Zfs
from zvault.zfs.whole_listing import PartialListing

P = ParamSpec("P")
T = TypeVar("T")

SizesWanted = Literal["both", "vault", "none"]
"""A plan needs those of the vault: whether anything was written there. Those of the source are for people."""


@dataclass(frozen=True)
class BothListings:
    """Both sides of a backup as one listing found them: its source and its vault.

    ``pairs`` gives each selected source dataset with the name its counterpart on the vault should have, parents
    first; ``left_out`` the excluded ones. Below ``apart`` lie other backups' datasets. ``known`` is what was worked out
    of an earlier look; of one that is only imagined there is none. Unless ``sized``, what is ``written`` on the vault
    may be of an earlier look. ``stray`` are backups that lie elsewhere in the vault's pool, or may, and cannot simply
    be followed, by the source's name; those that can are in ``vault``. ``unlisted`` are the datasets that are taken and
    in no pair, as ZFS tells nothing of them or of their place on the vault, by the source's name.
    """

    source: Tree
    vault: Tree
    pairs: tuple[tuple[Dataset, DatasetName], ...]
    vault_seen: bool = True
    left_out: tuple[tuple[Dataset, DatasetName], ...] = ()
    apart: tuple[DatasetName, ...] = ()
    sized: bool = True
    known: CachedBackup | None = field(default=None, compare=False, repr=False)
    keys_above: KeysAbove = NO_KEYS_ABOVE
    stray: Mapping[str, StrayBackup] = field(default_factory=dict)
    unlisted: Mapping[str, UnknownDataset] = field(default_factory=dict)

    @LazyProperty
    def pairing(self) -> Pairing:
        """What follows what, found by GUID. Nothing is gone from a source of which a part cannot be listed."""
        known = self.known.pairs if self.known is not None and self.vault_seen else None
        found = pair_datasets(
            self.source, self.pairs, self.vault, left_out=self.left_out, apart=self.apart, known=known
        )
        return replace(found, gone=()) if self.source.unlisted else found

    @property
    def partial(self) -> bool:
        """Whether either side has datasets that cannot be listed: then what is not seen may be there all the same."""
        return bool(self.source.unlisted or self.vault.unlisted)

    @LazyProperty
    def size(self) -> int:
        """Datasets and snapshots of both sides: how much there is to do for whoever goes through all of them."""
        return sum(len(tree) + sum(len(one.snapshots) for one in tree) for tree in (self.source, self.vault))

    async def compute(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Compute ``work`` on both sides: beside the event loop, where they are large (system/side_threads.py)."""
        return await compute_aside(self.size, self.known, work, *args, **kwargs)

    @LazyProperty
    def counterparts(self) -> dict[str, Dataset]:
        """By the source dataset's name, what holds its backup now: also where a rename has not been followed yet."""
        return {pair.source.name: pair.vault for pair in self.pairing.pairs if pair.vault is not None}

    def with_trees(self, source: Tree, vault: Tree) -> BothListings:
        """The same look, had it seen something else. Of that nothing is known yet."""
        pairs, left_out = (
            tuple((source.datasets[dataset.name], target) for dataset, target in some)
            for some in (self.pairs, self.left_out)
        )
        there = replace(self, source=source, vault=vault, pairs=pairs, left_out=left_out, known=None)
        return _without_unlisted_targets(there)


def list_unlisted_errors(sides: BothListings) -> dict[str, ToolFailed]:
    """What is told of the datasets that are in no pair, as ZFS tells nothing of them, by the source's name."""
    return {name: ToolFailed(one.problem, next=one.advice) for name, one in sides.unlisted.items()}


def count_with_snapname(snapname: str, sides: BothListings) -> int:
    """Count the datasets of the source that have a snapshot of that name."""
    return sum(snapname in SnapnameIndex([one.snapshots]) for one, _ in sides.pairs)


def make_own_filter(backup: Backup) -> SnapshotFilter:
    """Tells the snapshots that zvault made for this backup: by the exact form of their name."""
    return partial(_is_ours, backup.snapshot.names)


def _is_ours(names: SnapshotNames, snapshot: Snapshot) -> bool:
    return names.known(snapshot.snapname)


def make_sent_filter(backup: Backup) -> SnapshotFilter:
    """Tells the snapshots that a backup sends: those zvault made for it, and those named by ``also``."""
    ours = make_own_filter(backup)
    return lambda snap: ours(snap) or any(fnmatchcase(snap.snapname, pattern) for pattern in backup.also)


def list_selected(backup: Backup, source: Tree) -> list[Dataset]:
    """The datasets a backup takes, parents first. Raises NotFound where there are none."""
    chosen = [dataset for dataset in source if backup.takes(dataset.name)]
    if chosen and source.choices is not None:
        chosen = [dataset for dataset in chosen if explain_choice_of(backup, source, dataset).taken]
        if not chosen:
            raise NotFound(
                f"nothing of '{backup.source}' is selected to be backed up",
                f"the property {backup.select} selects none of its datasets, as set on them or inherited within",
                f"'zfs set {backup.select}=true …' on what is to be backed up",
            )
    if not chosen:
        raise NotFound(
            f"nothing is left of '{backup.source}' to back up",
            f"'include' and 'exclude' leave out all {len(source)} datasets"
            if backup.include
            else f"'exclude' leaves out all {len(source)} datasets",
            "change them in zvault.toml" if backup.include else "narrow 'exclude' in zvault.toml",
        )
    return chosen


def explain_choice_of(backup: Backup, source: Tree, dataset: Dataset) -> DatasetChoice:
    """Decide whether a backup takes a dataset of its source, and say why."""
    by_name = backup.choice(dataset.name)
    if not by_name.taken or source.choices is None:
        return by_name
    return source.choices.get(dataset.name, DatasetChoice(False, f"nobody could read {backup.select} of it"))


async def list_both_sides(
    context: Context,
    backup: Backup,
    vault: Zfs | None,
    *,
    source: Tree | None = None,
    sizes: SizesWanted = "both",
    elsewhere: bool = False,
    made: str = "",
) -> BothListings:
    """List both sides, once each, at the same time.

    ``vault`` None leaves the vault's side empty (it is down); ``source`` is what was listed a moment ago. ``sizes``
    says on which sides ``used`` and ``written`` have to be of now. ``elsewhere``: what lacks its base in its place is
    sought in the whole pool; whoever plans needs that, for else it would be sent in full. ``made`` is the name of
    snapshots that were made just now: no vault has them yet.
    """
    root = context.env.target_of(backup, backup.source.dataset)
    on_vault = asyncio.create_task(_vault_tree(vault, root, sizes=sizes != "none"))
    try:
        if source is None:
            source = await list_source(context.clients, backup, sizes=sizes == "both")
        known = context.known.of(context.env, backup)
        pairs, left_out = await compute_aside(len(source), known, place_datasets, context, backup, source)
        there = await on_vault
    finally:
        on_vault.cancel()
    whole = all(map(there.datasets.__contains__, map(itemgetter(1), pairs)))
    # Below a root that cannot be opened nothing can be received but what is there, so nothing set aside is missed.
    if vault is not None and not whole and root not in there.unlisted:
        there = await _with_asides(vault, root, there)
    known = context.known.of(context.env, backup)
    apart, sized = _others(context.env, backup, root), sizes != "none"
    seen = BothListings(source, there, pairs, vault is not None, left_out, apart, sized, known)
    if source.unlisted or there.unlisted:
        seen = _without_unlisted(context.env, backup, seen)
    if vault is not None:
        above = await vault.keys_above(root, there.get(root))
        seen = replace(seen, keys_above=_with_sources(context.env, backup, above))
    await seen.compute(lambda: seen.pairing)  # which whoever asks for it later finds done
    if vault is None or not elsewhere:
        return seen
    return await _with_moved(context, backup, vault, seen, made)


def _without_unlisted(env: Environment, backup: Backup, sides: BothListings) -> BothListings:
    """The same look, with what cannot be listed on either side in no pair. Of such a look nothing is remembered."""
    hiding = [name for name in sides.source.unlisted if hides_others(name, sides.source.datasets)]
    places = {name: env.wanted_target_of(backup, name) for name in hiding}
    told: dict[str, UnknownDataset] = {
        name: explain_unlisted_source(name, said)
        for name, said in sides.source.unlisted.items()
        if backup.takes(name)
    }
    apart = tuple(sorted({*sides.apart, *places.values()}))
    return _without_unlisted_targets(replace(sides, apart=apart, unlisted=told, known=None))


def _without_unlisted_targets(sides: BothListings) -> BothListings:
    """The same without the pairs whose place on the vault cannot be listed."""
    unlisted, listed = sides.vault.unlisted, sides.vault.datasets
    if not unlisted:
        return sides
    out: dict[str, UnknownDataset] = {
        dataset.name: explain_unlisted_target(target, unlisted)
        for dataset, target in sides.pairs
        if is_in_unlisted(target, unlisted, listed)
    }
    pairs, left_out = (
        tuple(one for one in some if not is_in_unlisted(one[1], unlisted, listed))
        for some in (sides.pairs, sides.left_out)
    )
    return replace(sides, pairs=pairs, left_out=left_out, unlisted={**sides.unlisted, **out})


async def _with_moved(
    context: Context, backup: Backup, vault: Zfs, sides: BothListings, made: str
) -> BothListings:
    """The same look, with what the rest of the vault's pool has of datasets of which their place has no base."""
    if not await sides.compute(lambda: any(lacks_base(pair, made) for pair in sides.pairing.pairs)):
        return sides
    config = context.env.vault(backup.its_vault)
    taken = [
        context.env.target_of(other, other.source.dataset)
        for other in context.env.config.backup.values()
        if other.vault is not None and _pool_of(context.env, other) == (config.host, config.pool)
    ]
    sources = [
        other.source.dataset
        for other in context.env.config.backup.values()
        if (other.source.host, other.source.dataset.pool) == (config.host, config.pool)
    ]
    # Most pools have nothing but what is theirs; then no snapshot has to be listed.
    trouble, pool = "", Tree()
    above = {ancestor for root in taken for ancestor in root.ancestors}
    try:
        if unlisted := {**sides.source.unlisted, **sides.vault.unlisted}:
            raise ToolFailed(describe_unlisted(unlisted))
        names = await vault.names(config.pool)
        if all(name in above or any(name.is_within(root) for root in (*taken, *sources)) for name in names):
            return sides
        pool = await vault.tree(config.pool)
    except NotFound:
        return sides  # exported meanwhile: whoever looks finds out
    except ToolFailed as error:
        trouble = str(error)
    if (state := await context.clients.zpool_of(config).state(config.pool)) is None:
        return sides
    if trouble:
        # What others have there keeps nothing from being backed up but what the pool may have there, too.
        unsure = partial(find_unsure, sides.pairing, state.guid, trouble)
        return replace(sides, stray=await sides.compute(unsure))
    search = PoolSearch(pool, state.guid, taken, sources, backup.on_conflict == "new-dataset")
    size = sides.size + sum(1 + len(one.snapshots) for one in pool)
    found = await compute_aside(size, sides.known, search.find, sides.pairing)
    there = replace(sides.vault, datasets={**sides.vault.datasets, **found.follow})
    moved = replace(sides, vault=there, stray=found.stray)
    await moved.compute(lambda: moved.pairing)
    return moved


def _pool_of(env: Environment, backup: Backup) -> tuple[Address | None, str]:
    vault = env.vault(backup.its_vault)
    return vault.host, vault.pool


PlacedDatasets = tuple[tuple[Dataset, DatasetName], ...]


def place_datasets(context: Context, backup: Backup, source: Tree) -> tuple[PlacedDatasets, PlacedDatasets]:
    """The datasets a backup takes, each with the name its counterpart should have; and those it leaves out."""

    everyone = tuple((one, context.env.wanted_target_of(backup, one.name)) for one in source)
    taken = [backup.takes(one.name) for one in source]
    pairs, left_out = tuple(compress(everyone, taken)), tuple(compress(everyone, map(not_, taken)))
    if source.choices is not None or not pairs:
        chosen = {dataset.name for dataset in list_selected(backup, source)}
        pairs = tuple(one for one in everyone if one[0].name in chosen)
        left_out = tuple(one for one in everyone if one[0].name not in chosen)
    return pairs, left_out


def _with_sources(env: Environment, backup: Backup, above: KeysAbove) -> KeysAbove:
    """The keys above a backup's root, with which of them are raw copies of what is above its source: another backup on
    the vault has that.
    """
    if not above.copies:
        return above
    source, found = backup.source, dict[str, DatasetName]()
    for other in env.config.backup.values():
        if (other.vault, other.source.host) != (backup.vault, source.host):
            continue
        for name in source.dataset.ancestors:
            if name.is_within(other.source.dataset):
                target = env.wanted_target_of(other, name)
                if above.roots.get(target) in above.copies:
                    found[target] = name
    return replace(above, sources=found)


async def _vault_tree(vault: Zfs | None, root: str, *, sizes: bool) -> Tree:
    return Tree() if vault is None else await list_around_damage(vault, root, sizes=sizes)


async def _with_asides(vault: Zfs, root: DatasetName, tree: Tree) -> Tree:
    """Where something is missing, the vault's side with what was set aside in the root's place, beside it:

    a run that did not end may have left there what belongs below the root.
    """
    asides = [
        await list_existing_around_damage(vault, name)
        for name in await _list_beside(vault, root, ASIDE_INFIX)
    ]
    datasets = {name: one for found in (tree, *asides) for name, one in found.datasets.items()}
    unlisted = {name: said for found in (tree, *asides) for name, said in found.unlisted.items()}
    return replace(tree, datasets=datasets, unlisted=unlisted)


async def _list_beside(vault: Zfs, root: DatasetName, ending: str) -> list[DatasetName]:
    """See ``list_datasets_beside``: also where one of them is damaged, as another backup's place may be."""
    try:
        return await rename_clone_rollback.list_datasets_beside(vault.host, root, ending)
    except PartialListing as error:
        names = await vault.names_around_damage(root.parent or root, error)
    start = root.add_suffix(ending)
    return [name for name in names if name.parent == root.parent and name.startswith(start)]


def _others(env: Environment, backup: Backup, root: DatasetName) -> tuple[DatasetName, ...]:
    """Where in this backup's part of the vault others put theirs."""
    others = [other for other in env.config.backup.values() if other.vault == backup.vault]
    if backup.vault is None:
        return ()
    roots = {env.target_of(other, other.source.dataset) for other in others if other is not backup}
    return tuple(sorted(other for other in roots if other.is_below(root)))


def find_name_conflicts(
    env: Environment, backup: Backup, datasets: Iterable[Dataset]
) -> dict[str, NameConflict]:
    """Those of some datasets of a source that a backup cannot take because of their names."""
    length = backup.snapshot.names.length
    found: dict[str, NameConflict] = {}
    for dataset in datasets:
        target = env.wanted_target_of(backup, dataset.name)
        if (conflict := find_name_conflict(dataset.name, target, length)) is not None:
            found[dataset.name] = conflict
    return found


def choose_snapshots(
    env: Environment,
    backup: Backup,
    datasets: Sequence[Dataset],
    unchanged: UnchangedDatasets,
    *,
    make: bool = True,
    own_time: bool = False,
) -> dict[DatasetName, DatasetChoice]:
    """Decide which of a backup's datasets a run snapshots, and say why. Without ``make`` none.

    ``own_time``: it is no run, but the time for a snapshot.
    """
    conflicts = find_name_conflicts(env, backup, datasets)
    obstacles = find_half_received_datasets(datasets)
    making = make and (own_time or backup.snapshot.make)
    return {
        dataset.name: choose_for_snapshot(
            dataset.name, make=making, conflicts=conflicts, obstacles=obstacles, unchanged=unchanged
        )
        for dataset in datasets
    }


def find_half_received_datasets(datasets: Iterable[Dataset]) -> dict[str, SnapshotRefused]:
    """Those of some datasets of a source that cannot be snapshotted until what is received into them has arrived."""
    found = ((dataset.name, find_half_received(dataset)) for dataset in datasets)
    return {name: refusal for name, refusal in found if refusal is not None}
