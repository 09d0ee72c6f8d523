"""Two vaults whose pools are copies of one: with the same GUID, by which all that is kept for a vault is told apart.

A disk that was cloned, an image that was copied: the base of the one would be given up as that of the other advances.
"""

from __future__ import annotations

from zvault.config.schema import Vault
from zvault.core.errors import Refused
from zvault.ops.context import Context
from zvault.ops.state.pool_book import SeenPool


def find_original(context: Context, vault: Vault, guid: int) -> str | None:
    """The other configured vault that has the pool of this GUID, as zvault noted; None where it is this one's own.

    Two tables for one pool on the same storage have no copy.
    """
    noted = context.records.pools.all().get(guid)
    if noted is None or noted.given_up:
        return None
    config = context.env.config.vault
    owner = noted.owner({name: one.pool for name, one in config.items()})
    if owner is None or owner == vault.name:
        return None
    mine, its = SeenPool.of(vault), SeenPool.of(config[owner])
    return None if (mine.pool, mine.storage) == (its.pool, its.storage) else owner


def describe_copy(vault: Vault, original: str) -> str:
    """Say what whoever brings a copy up has to know."""
    return (
        f"the pool of vault {vault.name} has the same GUID as that of vault {original}: one is a copy of the other, "
        f"and nothing is backed up into it. 'zpool reguid {vault.pool}' gives it a GUID of its own"
    )


def refuse_copy(context: Context, vault: Vault, guid: int) -> None:
    """Raises Refused where a run would give up the base of another vault."""
    if (original := find_original(context, vault, guid)) is not None:
        raise Refused(
            f"nothing is backed up into vault '{vault.name}'",
            f"its pool has the same GUID as that of vault '{original}': one is a copy of the other, and holds and "
            "bookmarks on the source are for a pool's GUID",
            f"'zvaultctl vault up {vault.name}' and 'zpool reguid {vault.pool}' give it a GUID of its own; or, if "
            f"vault '{original}' has not this pool any more, 'zvaultctl vault begin-anew {original}'",
        )
