"""zvault's holds and bookmarks: on the sources whose base each keeps, on the vaults what each is for; and which keep
nothing any more.

An orphan is released only when it is shown that no configured vault needs it. A vault that is down cannot be asked
for its GUID, so while one is down that never was up here, what carries a GUID nobody knows may be its base, and stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from zvault.api.backups import HoldDocument
from zvault.config.schema import Vault
from zvault.core.address import Address
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.model import Dataset, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.base_names import (
    KEEP_HOLD,
    find_former_mark,
    group_marks_by_vault,
    make_hold_tag,
    parse_hold_tag,
)
from zvault.core.replication.lineage import find_base, is_aside
from zvault.core.replication.unlisted_datasets import list_unlisted_lines
from zvault.ops.context import Context
from zvault.ops.retention.vault_holds import explain_hold
from zvault.ops.state.environment import Environment
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.vaults.vault import Vaults
from zvault.zfs.client import Zfs

ProtectionState = Literal["in use", "orphaned", "unknown"]


@dataclass(frozen=True, slots=True)
class BaseProtection:
    """One hold or bookmark of zvault's; ``guid`` is that of the snapshot it keeps, ``host`` where that is.

    ``vault`` is the configured vault whose pool it was made for, None where the GUID is not one that is known.
    ``on_vault``: it is on that pool itself; else it is on a source.
    """

    kind: Literal["hold", "bookmark"]
    dataset: DatasetName
    name: str
    guid: int
    creation: int
    vault_guid: int
    vault: str | None = None
    state: ProtectionState = "unknown"
    reason: str = ""
    host: Address | None = None
    on_vault: bool = False

    @property
    def tag(self) -> str:
        return KEEP_HOLD if self.on_vault else make_hold_tag(self.vault_guid)

    def document(self) -> HoldDocument:
        """As the API sends it; GUIDs as text, for they do not fit a JSON number."""
        return {
            "kind": self.kind,
            "host": str(self.host) if self.host is not None else None,
            "dataset": self.dataset,
            "name": self.name,
            "guid": str(self.guid),
            "creation": self.creation,
            "vault_guid": f"{self.vault_guid:x}",
            "vault": self.vault,
            "state": self.state,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class KnownVaults:
    """The configured vaults as far as they are known: ``names`` by pool GUID, and those that could not be asked.

    ``sharing`` are all vaults whose pool has a GUID: two tables may be for one pool, or the one's is a copy of the
    other's.

    ``seen`` are the pools that any vault ever had, with its name now (None: it is not configured any more); of these
    ``given_up`` are those that a vault began anew without.
    """

    names: Mapping[int, str]
    unasked: Collection[str]
    seen: Mapping[int, str | None] = field(default_factory=dict)
    given_up: Collection[int] = frozenset()
    sharing: Mapping[int, Collection[str]] = field(default_factory=dict)

    def only_pool(self, guid: int) -> bool:
        """True if a pool is the only one that its vault may have: no other takes turns with it."""
        vault = self.seen.get(guid)
        had = {one for one, whose in self.seen.items() if whose == vault} - set(self.given_up)
        return vault is not None and had == {guid}

    def surely_gone(self, guid: int) -> bool:
        """True if a pool is known to be none of a configured vault's, those that cannot be asked included."""
        found = set(self.seen.values())
        return guid in self.seen and self.seen[guid] is None and found.issuperset(self.unasked)


def list_base_protections(source: Tree, holds: Mapping[str, set[str]]) -> list[BaseProtection]:
    """zvault's holds and bookmarks in a listing; ``holds`` are all tags by snapshot."""
    found = []
    for dataset in source:
        for snap in dataset.snapshots:
            for tag in sorted(holds.get(snap.name, ())):
                if (vault := parse_hold_tag(tag)) is not None:
                    found.append(
                        BaseProtection("hold", dataset.name, snap.name, snap.guid, snap.creation, vault)
                    )
        for vault, marks in sorted(group_marks_by_vault(dataset).items()):
            found += [
                BaseProtection("bookmark", dataset.name, mark.name, mark.guid, mark.creation, vault)
                for mark in marks
            ]
    return found


def judge_protection(
    one: BaseProtection, known: KnownVaults, source: Dataset, targets: Sequence[Dataset | None]
) -> BaseProtection:
    """The same with its state and the reason. ``targets`` are the datasets on its vault that follow ``source``."""
    vault = known.names.get(one.vault_guid)
    if vault is None:
        return _judged_unseen(one, known)
    one = replace(one, vault=vault)
    if not targets:
        return replace(one, state="orphaned", reason=f"no backup takes {source.name} into vault {vault}")
    for there in targets:
        if why := _need(one, source, there):
            return replace(one, state="in use", reason=why)
    return replace(one, state="orphaned", reason="left behind by an interrupted run: the base is a newer one")


def _judged_unseen(one: BaseProtection, known: KnownVaults) -> BaseProtection:
    """That of a pool which is not there."""
    vault = known.seen.get(one.vault_guid)
    if vault is not None and one.vault_guid in known.given_up:
        why = f"vault {vault} had this pool, and began anew: it may be found again"
        return replace(one, vault=vault, reason=why)
    if vault is not None and vault in known.unasked and known.only_pool(one.vault_guid):
        return replace(one, vault=vault, state="in use", reason=f"in use by vault {vault}, which is down")
    if vault is not None and vault in known.unasked:
        return replace(one, vault=vault, reason=f"may be the base of vault {vault}, which is down")
    if vault is not None:
        return replace(one, vault=vault, reason=f"vault {vault} had this pool before: they may take turns")
    if known.unasked and not known.surely_gone(one.vault_guid):
        names = ", ".join(sorted(known.unasked))
        return replace(one, reason=f"may be the base of vault {names}, which is down")
    return replace(one, state="orphaned", reason="no configured vault has a pool with this GUID")


def _need(one: BaseProtection, source: Dataset, there: Dataset | None) -> str:
    """Why a dataset on the vault needs it, or nothing. In doubt it does."""
    if there is None:
        return "the vault's dataset is not there, so its base cannot be told"
    if there.resume_token:
        return f"an interrupted receive into {there.name} waits to be resumed"
    found = find_base(source, there)
    if found is None:
        return f"{there.name} shares no base with the source: somebody has to look"
    base, former = found[1], find_former_mark(source, one.vault_guid, found[0].createtxg)
    if one.guid == base.guid:
        return f"the base of {there.name}"
    if former is not None and (one.kind, one.guid) == ("bookmark", former.guid):
        return f"the base of {there.name} before the newest one: a vault may go back by one run"
    # The bookmark is what the next run makes last, before it releases the former base.
    marked = any(mark.guid == base.guid for mark in group_marks_by_vault(source).get(one.vault_guid, []))
    return "" if marked else f"the base of {there.name} is not protected yet: the next run does it"


async def find_keepsakes(context: Context, vaults: Vaults) -> tuple[list[BaseProtection], list[str]]:
    """All of zvault's holds and bookmarks on the pools that hold a source, and those on the vaults that are up, each
    with its state; and, in lines, what could not be looked at.

    A vault of which anything cannot be listed counts as one that is down: what it needs is not known.
    """
    known, targets, found, unknown = await _vaults(context, vaults)
    ends: dict[str, dict[int, DatasetName] | ZvaultError] = {}
    pools = {(backup.source.host, backup.source.pool) for backup in context.env.config.backup.values()}
    for host, pool in sorted(pools, key=str):
        zfs = _uncached(context, host)
        try:
            source = await list_existing_around_damage(zfs, pool)
            below = zfs.held_in(list(source.datasets)) if source.unlisted else zfs.held_below(pool)
            holds = await zfs.holds(await below)
        except NotFound:
            continue  # not imported
        except ZvaultError as error:
            unknown.append(str(error))
            continue
        unknown += list_unlisted_lines(source.unlisted)
        for one in list_base_protections(source, holds):
            dataset = source.datasets[one.dataset]
            # All of them count. With the last one alone, 'holds --reap' released each base of a pool whose copy was up.
            vaults_with_it = known.sharing.get(one.vault_guid, ())
            followers = [
                there
                for vault in vaults_with_it
                for there in _followers(context.env, vault, host, dataset.name, targets)
            ]
            told = replace(judge_protection(one, known, dataset, followers), host=host)
            for vault in vaults_with_it if followers else ():
                if told.state == "orphaned":
                    if vault not in ends:
                        ends[vault] = await _ends(context, context.env.vault(vault))
                    told = _stood_upon(told, ends[vault])
            found.append(told)
    return found, unknown


async def _ends(context: Context, vault: Vault) -> dict[int, DatasetName] | ZvaultError:
    """By the GUID of its newest snapshot, a dataset of a vault's pool: it may lie where no name leads any more. Or why
    that cannot be told.

    What was set aside is a person's, and goes on from nothing.
    """
    try:
        pool = await _uncached(context, vault.host).tree_or_none(vault.pool)
    except ZvaultError as error:
        return error
    return {one.snapshots[-1].guid: one.name for one in pool if one.snapshots and not is_aside(one.name)}


def _stood_upon(one: BaseProtection, ends: Mapping[int, DatasetName] | ZvaultError) -> BaseProtection:
    """The same, in use where a dataset anywhere in the pool ends with what it keeps."""
    if isinstance(ends, ZvaultError):
        return replace(one, state="unknown", reason=f"what stands on it cannot be told: {ends}")
    if (there := ends.get(one.guid)) is None:
        return one
    return replace(one, state="in use", reason=f"{there} on the vault ends with it")


def _uncached(context: Context, host: Address | None) -> Zfs:
    """A client of its own: what it releases must not rest on a listing from a cache."""
    return Zfs(context.env.runner, context.clients.other_host(host))


async def _vaults(
    context: Context, vaults: Vaults
) -> tuple[KnownVaults, dict[str, Tree], list[BaseProtection], list[str]]:
    """Which vaults are there, what each backup has on its own, zvault's holds on them; and why others are unknown."""
    unknown: list[str] = []
    found: list[BaseProtection] = []
    sharing: dict[int, list[str]] = {}
    unasked: set[str] = set()
    targets: dict[str, Tree] = {}
    for vault in context.env.config.vault.values():
        try:
            state = await context.clients.zpool_of(vault).state(vault.pool)
            if state is None or not await _is_itself(context, vaults, vault):
                unasked.add(vault.name)
                continue
            zfs = _uncached(context, vault.host)
            there = {
                name: await zfs.tree_or_none(context.env.target_of(backup, backup.source.dataset))
                for name, backup in context.env.config.backup.items()
                if backup.vault == vault.name
            }
            targets |= there
            found += await _on_vault(context, vault, state.guid, there)
        except ZvaultError as error:
            unasked.add(vault.name)
            unknown.append(f"vault {vault.name}, which counts as down: {error}")
            continue
        sharing.setdefault(state.guid, []).append(vault.name)
    given_up = {guid for guid, one in context.records.pools.all().items() if one.given_up}
    seen = _seen(context)
    for guid in [guid for guid in sharing if seen.get(guid) in unasked]:
        del sharing[guid]  # it is a copy's: what stands on a base is the pool that is away
    names = {guid: vaults_with_it[0] for guid, vaults_with_it in sharing.items()}
    return KnownVaults(names, unasked, seen, given_up, sharing), targets, found, unknown


async def _on_vault(
    context: Context, vault: Vault, guid: int, there: Mapping[str, Tree]
) -> list[BaseProtection]:
    """zvault's holds on a vault that is up; ``there`` is what each backup has on it."""
    zfs = context.clients.vault_zfs(vault)
    kept = await zfs.tagged(await zfs.held_below(vault.pool), KEEP_HOLD)
    trees = [(context.env.backup(name), tree) for name, tree in there.items()]
    found: list[BaseProtection] = []
    for name in sorted(map(SnapshotName, kept)):
        snap, reason = explain_hold(context.env, name, trees)
        state: ProtectionState = "in use" if reason else "orphaned"
        if snap is None:
            snap = (await zfs.tree(name.dataset)).snapshot(name)
            state, reason = (
                "unknown",
                "no backup of this configuration puts anything there: another host's may",
            )
        if snap is not None:
            held = BaseProtection("hold", name.dataset, name, snap.guid, snap.creation, guid, vault.name)
            reason = reason or "no rule needs it held any more"
            found.append(replace(held, state=state, reason=reason, host=vault.host, on_vault=True))
    return found


def _seen(context: Context) -> dict[int, str | None]:
    """The pools that vaults had, each with the name of its vault now: one may have another since."""
    pools = {vault: config.pool for vault, config in context.env.config.vault.items()}
    return {guid: one.owner(pools) for guid, one in context.records.pools.all().items()}


async def _is_itself(context: Context, vaults: Vaults, vault: Vault) -> bool:
    """True if the pool of a vault's name lies on the vault's devices, and all are up: else its GUID is a stranger's."""
    if not vault.device:
        return True
    paths = [d.path for d in await vaults[vault.name].devices() if d.path is not None and d.state == "up"]
    below = await context.clients.zpool.devices(vault.pool)
    # A whole disk given to a pool holds it in its first partition.
    found = all(any(leaf.startswith(path) for leaf in below) for path in paths)
    return found and len(paths) == len(vault.device)


def _followers(
    env: Environment, vault: str, host: Address | None, dataset: DatasetName, targets: Mapping[str, Tree]
) -> list[Dataset | None]:
    """What follows a source dataset on a vault, by every backup that takes it there."""
    return [
        targets[name].get(env.wanted_target_of(backup, dataset))
        for name, backup in env.config.backup.items()
        if backup.vault == vault
        and backup.source.host == host
        and dataset.is_within(backup.source.dataset)
        and backup.takes(dataset)
    ]


def select_reapable(found: Sequence[BaseProtection], vault_guid: int | None) -> list[BaseProtection]:
    """Select what may be released: orphans; of a vault named by its GUID also those of which it is not known."""
    if vault_guid is None:
        return [one for one in found if one.state == "orphaned"]
    return [one for one in found if one.vault_guid == vault_guid and one.state != "in use"]


async def release_orphans(context: Context, vaults: Vaults, vault_guid: int | None) -> list[BaseProtection]:
    """Release orphans, and return them. What they are is found out anew."""
    found, _ = await find_keepsakes(context, vaults)
    going = select_reapable(found, vault_guid)
    by_pool: dict[tuple[Address | None, str, str], list[str]] = {}
    marks: dict[tuple[Address | None, str], list[str]] = {}
    for one in going:
        pool = one.dataset.pool
        if one.kind == "hold":
            by_pool.setdefault((one.host, pool, one.tag), []).append(one.name)
        else:
            marks.setdefault((one.host, pool), []).append(one.name)
    for (host, _, tag), names in by_pool.items():
        await context.clients.source_at(host).lzc.release(names, tag)
    for (host, _), names in marks.items():
        await context.clients.source_at(host).lzc.destroy_bookmarks(names)
    for host, dataset in {(one.host, one.dataset) for one in going}:
        context.clients.source_at(host).forget(dataset)
    return going
