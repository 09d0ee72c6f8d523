"""Clients of ZFS: of this host's datasets and pools, of each vault's, and of those on other hosts."""

from __future__ import annotations

from zvault.config.profile import StreamTable
from zvault.config.schema import Backup, Vault
from zvault.core.address import Address
from zvault.core.errors import HostUnreachable, PoolSuspended
from zvault.ops.state.environment import Environment
from zvault.ops.stream.route import StreamRoute
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.client import Zfs
from zvault.zfs.host import SshHost
from zvault.zfs.listing_cache_files import ListingCacheFiles
from zvault.zfs.lzc_stream import StreamHelpers
from zvault.zfs.pool.pool import POOL_PROC, PoolExporting, Zpool
from zvault.zfs.repair.damage_name_guard import DamageNameGuard


class ZfsClients:
    """Clients, each with a helper process of its own, caches of listings, and ssh connections.

    Made when they are first asked for, and kept until ``close``. The source's and each vault's are apart, so that one
    hung pool blocks no other. ``zpool`` is for this host's pools, ``helpers`` are for small streams within it, and
    ``damage_names`` permits to ask what is damaged. Nobody else changes anything in here. With a ``feed`` the listings
    of this host's pools are kept until an event tells of a change; ``kept`` is what outlives the process.
    """

    def __init__(self, env: Environment, feed: ChangeFeed | None = None) -> None:
        self._env = env
        self._feed = feed
        self.zpool = Zpool(env.runner, POOL_PROC)
        self.kept = ListingCacheFiles(env.paths.listings)
        self.helpers = StreamHelpers()
        self.damage_names = DamageNameGuard()
        self._sources: dict[Address | None, Zfs] = {}
        self._vaults: dict[tuple[str, Address | None, str], Zfs] = {}
        self._hosts: dict[Address, SshHost] = {}

    def source_of(self, backup: Backup) -> Zfs:
        """The client for a backup's source, wherever that is."""
        return self.source_at(backup.source.host)

    def source_at(self, address: Address | None) -> Zfs:
        """The client for the sources of one host; None is this one."""
        if address not in self._sources:
            self._sources[address] = self._zfs(address)
        return self._sources[address]

    def vault_zfs(self, vault: Vault) -> Zfs:
        """The client for one vault's pool."""
        root = vault.pool if vault.encryption is not None else ""
        key = vault.name, vault.host, root
        if key not in self._vaults:
            self._vaults[key] = self._zfs(vault.host, root)
        return self._vaults[key]

    def past_zfs(self, name: str, key_root: str) -> Zfs:
        """The client for a pool of this host that is a vault's as it was."""
        if (name, None, key_root) not in self._vaults:
            self._vaults[name, None, key_root] = self._zfs(None, key_root)
        return self._vaults[name, None, key_root]

    async def forget_past(self, name: str) -> None:
        """Close the clients of a vault as it was."""
        for key in [key for key in self._vaults if key[0] == name]:
            await self._vaults.pop(key).close()

    def _zfs(self, address: Address | None, key_root: str = "") -> Zfs:
        feed = self._feed if address is None else None
        kept = self.kept if address is None else None
        return Zfs(self._env.runner, self.other_host(address), feed, key_root, kept)

    def vault_of(self, backup: Backup) -> Zfs:
        """The client for the vault that a backup goes into. Raises NotFound."""
        return self.vault_zfs(self._env.vault(backup.its_vault))

    def zpool_of(self, vault: Vault) -> Zpool:
        """The pools of the host that a vault is on."""
        return self.zpool_at(vault.host)

    def zpool_at(self, address: Address | None) -> Zpool:
        """The pools of one host; None is this one."""
        host = self.other_host(address)
        return self.zpool if host is None else Zpool(host)

    async def pool_is_up(self, vault: Vault) -> bool:
        """True if a vault's pool can be looked at now.

        It cannot while its host is out of reach, or the pool is on its way out or answers nothing.
        """
        try:
            return await self.zpool_of(vault).state(vault.pool) is not None
        except (HostUnreachable, PoolExporting, PoolSuspended):
            return False

    def other_host(self, address: Address | None) -> SshHost | None:
        """The host of that address, None where it is this one."""
        if address is None:
            return None
        if address not in self._hosts:
            self._hosts[address] = SshHost(
                self._env.runner,
                address,
                self._env.paths.run / "ssh",
                sudo=lambda: self._env.host_config(address).sudo,  # a new configuration is in force at once
            )
        return self._hosts[address]

    def route(self, start: Zfs, end: Zfs, stream: StreamTable, stall: float) -> StreamRoute:
        """The way of streams from one host to another; ``stream`` and ``stall`` are the vault's."""
        far = start.host.address or end.host.address
        if far is None:
            return StreamRoute(start.host, end.host, stream, stall, "off")
        host = self._env.host_config(far)
        return StreamRoute(start.host, end.host, stream, stall, host.compression, host.buffer)

    async def close(self) -> None:
        """End the helper processes, and the connections to other hosts."""
        for zfs in (*self._sources.values(), *self._vaults.values()):
            await zfs.close()
        await self.helpers.close()
        if self._feed is not None:
            await self._feed.close()
        for host in self._hosts.values():
            await host.close()
