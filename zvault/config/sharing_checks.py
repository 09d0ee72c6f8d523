"""What no single table can tell of vaults that several hosts share. Pure; tables and a host's name in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zvault.config.fields import quote_text, suggest_nearest
from zvault.config.problems import ConfigFinding
from zvault.config.schema import Backup, Vault


def find_strangers(vaults: Mapping[str, Vault], name: str) -> Iterator[ConfigFinding]:
    """Shared vaults whose hosts this one, by its ``name``, is none of."""
    for vault, table in vaults.items():
        if table.hosts and name not in table.hosts:
            hint = suggest_nearest(name, table.hosts) or ""
            yield ConfigFinding(
                ("vault", vault, "hosts"),
                f"this host is called {quote_text(name)} and is none of them{hint}: name it as 'hostname' prints it, or"
                " leave the vault out of this host's configuration",
            )


def find_own_sources(vaults: Mapping[str, Vault], backups: Mapping[str, Backup]) -> Iterator[ConfigFinding]:
    """Backups into a shared vault of what each host would find on itself: the run of one is not that of another."""
    for name, backup in backups.items():
        vault = vaults.get(backup.vault) if backup.vault is not None else None
        if vault is not None and vault.hosts and backup.source.host is None:
            yield ConfigFinding(
                ("backup", name, "source"),
                f"it is on this host, and vault {backup.vault} is shared by several: each would back up another pool as"
                f" the same. Say where it is, as in ssh://root@{vault.hosts[0]}/{backup.source.dataset}",
            )
