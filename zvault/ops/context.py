"""What every use case is given: configuration, host, clock. Nothing below reads a global."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo

from tzlocal import get_localzone

from zvault.config.paths import Paths
from zvault.config.schema import Backup, Config, Vault
from zvault.core.errors import NotFound
from zvault.core.names import vault_dataset
from zvault.system.lease import LeaseStore
from zvault.system.process import Runner
from zvault.zfs.client import Zfs
from zvault.zfs.zpool import Zpool

Emit = Callable[..., None]
"""``emit(event, **fields)``: tells everyone who follows a run what happens in it."""


class Clock:
    """Wall time, in one place, so that tests can stop it."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def now(self) -> datetime:
        """The same as an aware UTC datetime."""
        return datetime.fromtimestamp(self.time(), UTC)


@dataclass
class Context:
    """The world of one daemon (or of one command without a daemon)."""

    config: Config
    paths: Paths
    runner: Runner
    host: str
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        """Build the clients; the source's and each vault's are apart, so that one hung pool blocks no other."""
        self.source = Zfs(self.runner)
        self.zpool = Zpool(self.runner)
        self.leases = LeaseStore(self.paths.run / "lease")
        self._vault_zfs: dict[str, Zfs] = {}

    def vault_zfs(self, vault: str) -> Zfs:
        """The client for one vault's pool, with a helper process of its own."""
        return self._vault_zfs.setdefault(vault, Zfs(self.runner))

    def backup(self, name: str) -> Backup:
        """A backup's configuration. Raises NotFound."""
        return _named(self.config.backup, "backup", name)

    def vault(self, name: str) -> Vault:
        """A vault's configuration. Raises NotFound."""
        return _named(self.config.vault, "vault", name)

    def target_of(self, backup: Backup, dataset: str) -> str:
        """Where on the vault a source dataset goes."""
        host = backup.source.host.host if backup.source.host else self.host
        return vault_dataset(backup.into, self.vault(backup.vault).pool, host, dataset)

    @property
    def zone(self) -> tzinfo:
        """The time zone that calendar rules use."""
        if self.config.daemon.timezone:
            return ZoneInfo(self.config.daemon.timezone)
        return get_localzone()

    async def close(self) -> None:
        """End the helper processes."""
        for zfs in (self.source, *self._vault_zfs.values()):
            await zfs.close()


Entry = TypeVar("Entry", Backup, Vault)


def _named(table: dict[str, Entry], kind: str, name: str) -> Entry:
    if name in table:
        return table[name]
    known = ", ".join(sorted(table)) or "none is configured"
    raise NotFound(f"there is no {kind} '{name}'", f"known: {known}", f"check [{kind}.…] in zvault.toml")
