"""Look at both sides once and plan: what to send, and what to prune."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from itertools import groupby

from zvault.config.schema import Backup
from zvault.core.errors import NotFound
from zvault.core.ledger import Misfit
from zvault.core.lineage import ASIDE, Pairing, match
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import excluded, parse_tag
from zvault.core.planner import Answers, plan_tree
from zvault.core.replication import Action, Interrupted, Ours, Policy, TransferPlan
from zvault.core.retention import Excess, KeepRules, Verdict, decide, excess, spare
from zvault.ops import ledger
from zvault.ops.context import Context
from zvault.zfs import rearrange
from zvault.zfs.client import Zfs


@dataclass(frozen=True)
class Sides:
    """What one look at source and vault saw.

    ``pairs`` gives each selected source dataset with the name its counterpart on the vault should have, parents
    first; ``left_out`` the excluded ones. Below ``apart`` lie other backups' datasets.
    """

    source: Tree
    vault: Tree
    pairs: tuple[tuple[Dataset, str], ...]
    vault_seen: bool = True
    left_out: tuple[tuple[Dataset, str], ...] = ()
    apart: tuple[str, ...] = ()

    @cached_property
    def pairing(self) -> Pairing:
        """What follows what, found by GUID."""
        return match(self.source, self.pairs, self.vault, left_out=self.left_out, apart=self.apart)

    @cached_property
    def counterparts(self) -> dict[str, Dataset]:
        """By the source dataset's name, what holds its backup now: also where a rename has not been followed yet."""
        return {pair.source.name: pair.vault for pair in self.pairing.pairs if pair.vault is not None}


def ours_of(backup: Backup) -> Ours:
    """Tells the snapshots that zvault made for this backup: by the exact form of their name."""
    return partial(_is_ours, backup.snapshot.prefix)


def _is_ours(prefix: str, snapshot: Snapshot) -> bool:
    return parse_tag(prefix, snapshot.tag) is not None


def wanted_of(backup: Backup) -> Ours:
    """Tells the snapshots that a backup sends: those zvault made for it, and those named by ``also``."""
    ours = ours_of(backup)
    return lambda snap: ours(snap) or any(fnmatchcase(snap.tag, pattern) for pattern in backup.also)


def selected(backup: Backup, source: Tree) -> list[Dataset]:
    """The datasets a backup takes, parents first. Raises NotFound when its excludes leave none."""
    chosen = [dataset for dataset in source if excluded(dataset.name, backup.exclude) is None]
    if not chosen:
        raise NotFound(
            f"nothing is left of '{backup.source}' to back up",
            f"'exclude' leaves out all {len(source)} datasets",
            "narrow 'exclude' in zvault.toml",
        )
    return chosen


async def look(context: Context, backup: Backup, vault: Zfs | None, *, source: Tree | None = None) -> Sides:
    """List both sides, once each, at the same time.

    ``vault`` None leaves the vault's side empty (it is down); ``source`` is what was listed a moment ago.
    """
    root = context.target_of(backup, backup.source.dataset)
    on_vault = asyncio.create_task(_vault_tree(vault, root))
    try:
        if source is None:
            source = await context.source_of(backup).tree(backup.source.dataset)
        pairs, left_out = _placed(context, backup, source)
        there = await on_vault
    finally:
        on_vault.cancel()
    if vault is not None and not all(target in there.datasets for _, target in pairs):
        there = await _with_asides(vault, root, there)
    return Sides(source, there, pairs, vault is not None, left_out, _others(context, backup, root))


Placed = tuple[tuple[Dataset, str], ...]


def _placed(context: Context, backup: Backup, source: Tree) -> tuple[Placed, Placed]:
    """The datasets a backup takes, each with the name its counterpart should have; and those it leaves out."""
    chosen = {dataset.name for dataset in selected(backup, source)}
    placed = [(dataset, context.target_of(backup, dataset.name)) for dataset in source]
    pairs = tuple(one for one in placed if one[0].name in chosen)
    return pairs, tuple(one for one in placed if one[0].name not in chosen)


async def _vault_tree(vault: Zfs | None, root: str) -> Tree:
    return Tree() if vault is None else await vault.tree_or_none(root)


async def _with_asides(vault: Zfs, root: str, tree: Tree) -> Tree:
    """Where something is missing, the vault's side with what was set aside in the root's place, beside it:

    a run that did not end may have left there what belongs below the root.
    """
    beside = await rearrange.children(vault.host, root.rpartition("/")[0])
    asides = [await vault.tree(name) for name in beside if name.startswith(root + ASIDE)]
    return Tree({name: one for found in (tree, *asides) for name, one in found.datasets.items()})


def _others(context: Context, backup: Backup, root: str) -> tuple[str, ...]:
    """Where in this backup's part of the vault others put theirs."""
    others = [other for other in context.config.backup.values() if other.vault == backup.vault]
    roots = {context.target_of(other, other.source.dataset) for other in others if other is not backup}
    return tuple(sorted(other for other in roots if other.startswith(f"{root}/")))


async def plan_all(context: Context, backup: Backup, sides: Sides) -> list[TransferPlan]:
    """Plan every selected dataset, parents first."""
    stamp = context.clock.now().strftime("%Y%m%dT%H%M%SZ")
    return plan_tree(
        sides.pairing,
        sides.vault,
        wanted=wanted_of(backup),
        policy=Policy(backup.backlog == "newest", backup.on_conflict, stamp),
        answers=await _ask(context, backup, sides),
    )


async def _ask(context: Context, backup: Backup, sides: Sides) -> Answers:
    """What a plan needs besides the listings, asked only of datasets where something is unusual."""
    source, vault = context.source_of(backup), context.vault_zfs(backup.vault)
    interrupted: dict[str, Interrupted] = {}
    unchanged: set[str] = set()
    held: set[str] = set()
    misfits: dict[str, Misfit] = {}
    for pair in sides.pairing.pairs:
        there, base = pair.vault, pair.base
        if there is None:
            continue
        if there.resume_token:
            token = await source.interrupted(there.resume_token)
            interrupted[there.name] = ledger.judged(backup, sides.vault, pair, token)
        if (odd := ledger.misfit(backup, sides.vault, pair)) is not None:
            misfits[there.name] = odd
        newer = [snap.name for snap in there.snapshots if base and snap.createtxg > base[1].createtxg]
        if base is not None and newer:
            since = f"written@{base[1].tag}"
            if not there.written and (await vault.get(there.name, since)).get(since) == "0":
                unchanged.add(there.name)
            # A listing may be older than a hold: that moves nothing by which one could tell.
            held.update(await vault.holds(newer))
    return Answers(interrupted, unchanged, held, misfits)


@dataclass(frozen=True)
class PrunePlan:
    """What to prune on one side: ``judged`` by the rules, dataset by dataset, and then within prune_limit.

    ``share`` of the snapshots that are ``ours`` may go of each dataset in one run; of one with more nothing does.
    """

    side: str
    judged: tuple[Verdict, ...]
    share: float = 1.0
    ours: Ours = lambda _: True

    @cached_property
    def _by_dataset(self) -> list[tuple[list[Verdict], Excess | None]]:
        found = []
        for _, group in groupby(self.judged, key=lambda verdict: verdict.snapshot.dataset):
            verdicts = list(group)
            found.append((verdicts, excess(verdicts, self.share, self.ours)))
        return found

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Every snapshot with its reason."""
        spared = (spare(verdicts, over) if over else verdicts for verdicts, over in self._by_dataset)
        return tuple(verdict for verdicts in spared for verdict in verdicts)

    @property
    def over(self) -> tuple[Excess, ...]:
        """The datasets of which nothing goes because prune_limit does not let so much go at once."""
        return tuple(over for _, over in self._by_dataset if over is not None)

    @property
    def doomed(self) -> list[Snapshot]:
        """The snapshots to destroy."""
        return [verdict.snapshot for verdict in self.verdicts if not verdict.keep]

    @property
    def unwanted(self) -> list[Snapshot]:
        """Those that no rule keeps, also where prune_limit does."""
        return [verdict.snapshot for verdict in self.judged if not verdict.keep]


def plan_prune(
    context: Context, backup: Backup, sides: Sides, *, over_limit: bool = False
) -> list[PrunePlan]:
    """Plan the pruning of both sides. Bases, snapshots that have clones and those not sent yet are protected.

    What is held is not known here: see ``without_stuck``. ``over_limit`` lets go what prune_limit holds back.
    """
    ours = ours_of(backup)
    share = 1.0 if over_limit else backup.prune_limit
    source, vault = _Judge(context, ours, share), _Judge(context, ours, share)
    clones = sides.source.clones() | sides.vault.clones()
    bases = {pair.base[0].name for pair in sides.pairing.pairs if pair.base is not None}
    for pair in sides.pairing.pairs:
        base, there = pair.base, pair.vault
        guards = _source_guards(pair.source, base[0].createtxg if base else 0)
        borrowed = {snap.guid: _BASE for snap in pair.source.snapshots if snap.name in bases}
        source.judge(pair.source, backup.keep.source, guards | borrowed | _origins(pair.source, clones))
        if there is not None:
            kept = {base[1].guid: _BASE} if base else _all(there)
            vault.judge(there, backup.keep.vault, kept | _origins(there, clones))
    for there in sides.pairing.gone:
        vault.judge(there, backup.keep.gone, _origins(there, clones))
    return [source.plan("source"), vault.plan("vault")]


_BASE = "the base of the next incremental"


class _Judge:
    """Collects the verdicts on one side."""

    def __init__(self, context: Context, ours: Ours, share: float) -> None:
        self.now, self.zone = context.clock.time(), context.zone
        self.ours, self.share = ours, share
        self.verdicts: list[Verdict] = []

    def judge(self, dataset: Dataset, rules: KeepRules, protected: Mapping[int, str]) -> None:
        self.verdicts += decide(
            dataset.snapshots, rules, now=self.now, zone=self.zone, protected=protected, ours=self.ours
        )

    def plan(self, side: str) -> PrunePlan:
        return PrunePlan(side, tuple(self.verdicts), self.share, self.ours)


def _source_guards(dataset: Dataset, base_txg: int) -> dict[int, str]:
    return {
        snap.guid: _BASE if snap.createtxg == base_txg else "not on the vault yet"
        for snap in dataset.snapshots
        if snap.createtxg >= base_txg
    }


def _origins(dataset: Dataset, clones: Mapping[str, str]) -> dict[int, str]:
    """The snapshots that others are clones of; ZFS would not let them go."""
    return {
        snap.guid: f"{clones[snap.name]} is a clone of it"
        for snap in dataset.snapshots
        if snap.name in clones
    }


def _all(dataset: Dataset) -> dict[int, str]:
    return {snap.guid: "no base is shared with the source any more" for snap in dataset.snapshots}


def moves(plan: TransferPlan) -> bool:
    """Whether a plan moves any byte."""
    return plan.action in {Action.FULL, Action.INCREMENTAL, Action.RESUME}
