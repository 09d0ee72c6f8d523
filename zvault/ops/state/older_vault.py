"""A vault that is older than when it was last seen, as its store was put back: what is told of it, and accepting it."""

from __future__ import annotations

from zvault.core.errors import NotFound
from zvault.core.integrity.put_back import describe_older
from zvault.ops.state.environment import Environment
from zvault.ops.state.records import Records


def find_older_vault(env: Environment, records: Records, name: str) -> str:
    """Say how much older a vault's pool is than it was; empty where it is not. Asks nothing of it."""
    vault = env.config.vault.get(name)
    guid = records.pools.last(vault) if vault is not None else None
    known = records.progress.get(guid) if guid is not None else None
    return describe_older(known, env.zone) if known is not None else ""


def advise_older_vault(name: str) -> str:
    """Say what can be done about a vault whose store was put back."""
    return (
        f"bring back the store as it was, if there is one: 'zvaultctl vault down {name}', put it in place, and"
        f" 'zvaultctl vault up {name}'. Else 'zvaultctl vault accept-older {name}' has backups go on from what it has"
    )


def accept_older_vault(env: Environment, records: Records, name: str) -> str:
    """Have a vault whose store was put back go on from what it has; returns what was told of it. Raises NotFound."""
    told, guid = find_older_vault(env, records, name), records.pools.last(env.vault(name))
    known = records.progress.get(guid) if guid is not None else None
    if guid is None or known is None or not told:
        raise NotFound(
            f"vault '{name}' is not known to be older than it was", "so there is nothing to accept", ""
        )
    records.progress.put(guid, known.accept(env.clock.time()))
    return told
