"""What no single table can tell of vaults that several hosts share. Pure; tables and a host's name in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zvault.config.fields import nearest, quote
from zvault.config.problems import Finding
from zvault.config.schema import Backup, Vault


def strangers(vaults: Mapping[str, Vault], name: str) -> Iterator[Finding]:
    """Shared vaults whose hosts this one, by its ``name``, is none of."""
    for vault, table in vaults.items():
        if table.hosts and name not in table.hosts:
            hint = nearest(name, table.hosts) or ""
            yield Finding(
                ("vault", vault, "hosts"),
                f"this host is called {quote(name)} and is none of them{hint}: name it as 'hostname' prints it, or"
                " leave the vault out of this host's configuration",
            )


def own_sources(vaults: Mapping[str, Vault], backups: Mapping[str, Backup]) -> Iterator[Finding]:
    """Backups into a shared vault of what each host would find on itself: the run of one is not that of another."""
    for name, backup in backups.items():
        vault = vaults.get(backup.vault) if backup.vault is not None else None
        if vault is not None and vault.hosts and backup.source.host is None:
            yield Finding(
                ("backup", name, "source"),
                f"it is on this host, and vault {backup.vault} is shared by several: each would back up another pool as"
                f" the same. Say where it is, as in ssh://root@{vault.hosts[0]}/{backup.source.dataset}",
            )
