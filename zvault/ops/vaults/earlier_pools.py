"""Whether a vault is new. One that had a pool never gets another by itself: its storage is missing, not blank.

Two things tell of a pool: what zvault noted on this host when it was up, and, where that is lost, the holds and
bookmarks on the sources, which carry the GUID of the pool that they were made for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from zvault.api.vaults import EarlierPoolDocument, PoolHistoryDocument
from zvault.config.schema import Backup, Vault
from zvault.core.errors import NotFound, ZvaultError
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import list_vault_guids
from zvault.core.replication.unlisted_datasets import make_unlisted_error
from zvault.ops.context import Context
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.state.pool_book import SeenPool


@dataclass(frozen=True, slots=True)
class EarlierPool:
    """A pool that a vault had: its GUID where that is known, and what tells of it, in words."""

    guid: int | None
    told_by: str

    def __str__(self) -> str:
        named = f" with GUID {self.guid:x}" if self.guid is not None else ""
        return f"it had a pool{named}: {self.told_by}"


@dataclass(frozen=True, slots=True)
class PoolHistory:
    """The pools that a vault had. ``doubts``: what could not be looked at, so that it may have had others as well."""

    pools: tuple[EarlierPool, ...] = ()
    doubts: tuple[ZvaultError, ...] = ()

    @property
    def doubt(self) -> ZvaultError | None:
        """Why it is not known whether it had any other; the first of several reasons."""
        return next(iter(self.doubts), None)

    def document(self, vault: Vault) -> PoolHistoryDocument:
        """As the API sends it."""
        pools: list[EarlierPoolDocument] = [
            {"guid": f"{one.guid:x}" if one.guid is not None else None, "told_by": one.told_by}
            for one in self.pools
        ]
        unknown = [str(one) for one in self.doubts]
        return {
            "vault": vault.name,
            "pool": vault.pool,
            "create": vault.create,
            "pools": pools,
            "unknown": unknown,
        }

    @property
    def new(self) -> bool:
        """True if it is shown that it never had one."""
        return not self.pools and self.doubt is None


async def read_pool_history(context: Context, vault: Vault) -> PoolHistory:
    """Return what is known of the pools that a vault had; its sources are asked only where nothing is noted here."""
    if noted := list_noted_pools(context, vault):
        return PoolHistory(noted)
    return await _carried_pools(context, vault)


def list_noted_pools(context: Context, vault: Vault) -> tuple[EarlierPool, ...]:
    """The pools that zvault noted on this host as the vault's. Asks nobody."""
    pools = {name: one.pool for name, one in context.env.config.vault.items()}
    found = [
        EarlierPool(guid, f"zvault on this host noted it, named '{one.pool}'")
        for guid, one in context.records.pools.all().items()
        if not one.given_up and one.owner(pools) == vault.name
    ]
    if not found and context.records.conditions.get(vault.name) is not None:
        found.append(EarlierPool(None, "zvault on this host noted when it was scrubbed"))
    return tuple(found)


async def _carried_pools(context: Context, vault: Vault) -> PoolHistory:
    """Pools of which the vault's sources carry holds or bookmarks, and that are no other vault's as far as is known.

    A source that does not exist tells nothing. One that cannot be asked, or a dataset of it, keeps no other from being.
    """
    carried, doubts = dict[int, str](), list[ZvaultError]()
    for backup in context.env.config.backup.values():
        if backup.vault == vault.name:
            try:
                found, unlisted = await _carried(context, backup)
            except ZvaultError as doubt:
                doubts.append(doubt)
                continue
            carried |= dict.fromkeys(found, str(backup.source))
            if unlisted:
                doubts.append(make_unlisted_error(unlisted))
    strange = carried.keys() - context.records.pools.all().keys()
    if strange:
        strange -= await _imported(
            context, [one for one in context.env.config.vault.values() if one != vault]
        )
    pools = (
        EarlierPool(guid, f"{carried[guid]} has holds or bookmarks for it, and it is no other vault's")
        for guid in sorted(strange)
    )
    return PoolHistory(tuple(pools), tuple(doubts))


async def _carried(context: Context, backup: Backup) -> tuple[set[int], Mapping[DatasetName, str]]:
    """The GUIDs of pools for which a source has holds or bookmarks, and which of its datasets cannot be listed."""
    source, root = context.clients.source_of(backup), backup.source.dataset
    try:
        tree = await list_existing_around_damage(source, root, sizes=False)
        below = source.held_in(list(tree.datasets)) if tree.unlisted else source.held_below(root)
        held = await source.holds(await below)
    except NotFound:
        return set(), {}
    return list_vault_guids(tree, (tag for tags in held.values() for tag in tags)), tree.unlisted


async def _imported(context: Context, vaults: Collection[Vault]) -> set[int]:
    """The GUIDs of the pools of these vaults that are imported."""
    found = set()
    for vault in vaults:
        try:
            state = await context.clients.zpool_of(vault).state(vault.pool)
        except ZvaultError:
            continue  # then its pool stays a strange one, and nothing is made
        if state is not None:
            found.add(state.guid)
    return found


def forget_pools(context: Context, vault: Vault, history: PoolHistory) -> None:
    """Let a vault begin anew: none of these pools stands in the way of a new one any more. Raises OSError.

    Holds and bookmarks on the sources stay.
    """
    for pool in history.pools:
        if pool.guid is not None:
            context.records.pools.give_up(pool.guid, SeenPool(vault.name, vault.pool))
    context.records.conditions.forget(vault.name)
