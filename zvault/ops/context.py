"""What every use case is given: configuration, host, clock. Nothing below reads a global."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo

from tzlocal import get_localzone

from zvault.config.paths import Paths
from zvault.config.profile import Stream
from zvault.config.schema import Backup, Config, Host, Vault
from zvault.core.address import Address
from zvault.core.drift import Sample
from zvault.core.errors import HostUnreachable, NotFound
from zvault.core.names import vault_dataset
from zvault.ops.condition import Conditions
from zvault.ops.pools import PoolBook
from zvault.ops.route import Route
from zvault.ops.stream import UnderWay
from zvault.system.lease import LeaseStore
from zvault.system.process import Runner
from zvault.zfs.client import Zfs
from zvault.zfs.host import SshHost
from zvault.zfs.zpool import PROC, Exporting, Zpool

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
    """The world of one daemon (or of one command without a daemon).

    ``under_way`` are the streams into vaults, by backup and dataset. By vault: ``watching`` those whose writes are
    sampled, ``writes`` the newest samples of these, ``drifts`` what was told of the last run into each. ``awake`` is
    not set while the host is about to sleep, or does: nothing may begin then that a sleep would break. ``going_down``:
    it is being shut down, and whatever can wait for the next boot does.
    """

    config: Config
    paths: Paths
    runner: Runner
    host: str
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        """Build the clients; the source's and each vault's are apart, so that one hung pool blocks no other."""
        self.source = Zfs(self.runner)
        self.zpool = Zpool(self.runner, PROC)
        self.leases = LeaseStore(self.paths.run / "lease")
        self.pools = PoolBook(LeaseStore(self.paths.state / "pools"))
        self.conditions = Conditions(LeaseStore(self.paths.state / "condition"))
        self.under_way: dict[tuple[str, str], UnderWay] = {}
        self.watching: set[str] = set()
        self.writes: dict[str, Sample] = {}
        self.drifts: dict[str, str] = {}
        self.looks: set[str] = set()
        """Leases of what is open for reading (ops/reading.py)."""
        self.awake = asyncio.Event()
        self.awake.set()
        self.going_down = False
        self._vault_zfs: dict[tuple[str, Address | None], Zfs] = {}
        self._sources: dict[Address, Zfs] = {}
        self._hosts: dict[Address, SshHost] = {}

    @property
    def asleep(self) -> bool:
        """Whether the host is about to sleep, or does."""
        return not self.awake.is_set()

    def vault_zfs(self, vault: str) -> Zfs:
        """The client for one vault's pool, with a helper process of its own."""
        key = vault, self.vault(vault).host
        if key not in self._vault_zfs:
            self._vault_zfs[key] = Zfs(self.runner, self.other_host(key[1]))
        return self._vault_zfs[key]

    def source_of(self, backup: Backup) -> Zfs:
        """The client for a backup's source, wherever that is."""
        return self.source_at(backup.source.host)

    def source_at(self, address: Address | None) -> Zfs:
        """The client for the sources of one host; None is this one."""
        if address is None:
            return self.source
        if address not in self._sources:
            self._sources[address] = Zfs(self.runner, self.other_host(address))
        return self._sources[address]

    def zpool_of(self, vault: str) -> Zpool:
        """The pools of the host that a vault is on."""
        host = self.other_host(self.vault(vault).host)
        return self.zpool if host is None else Zpool(host)

    def route(self, start: Zfs, end: Zfs, stream: Stream, stall: float) -> Route:
        """The way of streams from one host to another; ``stream`` and ``stall`` are the vault's."""
        far = start.host.address or end.host.address
        if far is None:
            return Route(start.host, end.host, stream, stall, "off")
        host = self.host_config(far)
        return Route(start.host, end.host, stream, stall, host.compression, host.buffer)

    async def pool_is_up(self, vault: str) -> bool:
        """Whether a vault's pool can be looked at now: not while its host cannot be reached or it is on its way out."""
        try:
            return await self.zpool_of(vault).state(self.vault(vault).pool) is not None
        except (HostUnreachable, Exporting):
            return False

    def other_host(self, address: Address | None) -> SshHost | None:
        """The host of that address, None where it is this one."""
        if address is None:
            return None
        if address not in self._hosts:
            self._hosts[address] = SshHost(
                self.runner,
                address,
                self.paths.run / "ssh",
                sudo=lambda: self.host_config(address).sudo,  # a new configuration is in force at once
            )
        return self._hosts[address]

    def host_config(self, address: Address) -> Host:
        """A host's table in the configuration, or what holds without one."""
        return self.config.host.get(address.host) or Host()

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
        """End the helper processes, and the connections to other hosts."""
        for zfs in (self.source, *self._vault_zfs.values()):
            await zfs.close()
        for host in self._hosts.values():
            await host.close()


Entry = TypeVar("Entry", Backup, Vault)


def _named(table: dict[str, Entry], kind: str, name: str) -> Entry:
    if name in table:
        return table[name]
    known = ", ".join(sorted(table)) or "none is configured"
    raise NotFound(f"there is no {kind} '{name}'", f"known: {known}", f"check [{kind}.…] in zvault.toml")
