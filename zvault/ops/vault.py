"""Vaults up and down: device stack, pool, inhibitor; shared by whoever uses a vault at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from zvault.config.load import load_profile
from zvault.config.profile import Profile
from zvault.config.schema import Vault
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ZvaultError
from zvault.devices.stack import BlockDevice, DeviceState, Stack
from zvault.ops.context import Context
from zvault.system.logind import Inhibitor, inhibit
from zvault.zfs.client import Zfs
from zvault.zfs.zpool import PoolState, suspended

Say = Callable[[str], None]

TEARDOWN_DEADLINE = 180.0
"""Seconds an export may take before zvault stops waiting and says what is left."""


@dataclass
class OpenVault:
    """A vault that is up: its pool's GUID, its client, its profile."""

    name: str
    pool: str
    guid: int
    zfs: Zfs
    profile: Profile
    lock: Inhibitor
    keeper: Keeper

    async def trouble(self) -> ZvaultError | None:
        """Whether the vault fell away below us; quick, also when its pool hangs."""
        return await self.keeper.trouble()


class Keeper:
    """One vault's state on this host. Up is counted: the last user takes an on-demand vault down."""

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.name = name
        self.users: dict[str, int] = {}
        self.pinned = False
        self.error: ZvaultError | None = None
        self.inhibited = False
        self._turn = asyncio.Lock()
        self._resources: AsyncExitStack | None = None
        self._open: OpenVault | None = None

    @property
    def config(self) -> Vault:
        """The vault's table in the configuration."""
        return self.context.vault(self.name)

    @property
    def lease(self) -> str:
        """The name under which this host's use of the vault is written down."""
        return f"vault/{self.name}"

    def stack(self, profile: Profile) -> Stack:
        """The vault's devices."""
        context = self.context
        return Stack(
            self.name, self.config.device, profile.queue, context.runner, context.paths, context.leases
        )

    @asynccontextmanager
    async def use(self, user: str, say: Say) -> AsyncIterator[OpenVault]:
        """Have the vault up, under an inhibitor, for as long as the block runs."""
        async with self._turn:
            if self._open is None:
                self._open = await self._begin(user, say)
            self.users[user] = self.users.get(user, 0) + 1
            opened = self._open
        try:
            yield opened
        finally:
            await asyncio.shield(self._leave(user, say))

    async def _begin(self, user: str, say: Say) -> OpenVault:
        """Take the inhibitor, then bring the vault up; undo both when it does not come."""
        resources = AsyncExitStack()
        try:
            why = f"{user} writes to vault {self.name}"
            lock = await resources.enter_async_context(inhibit(why=why))
            self.inhibited = lock.held
            if lock.problem is not None:
                say(f"going on without an inhibitor: {lock.problem}")
            profile = load_profile(self.context.paths, self.config.profile)
            state = await self._bring_up(profile, say)
        except BaseException as error:
            self.error = error if isinstance(error, ZvaultError) else self.error
            self.inhibited = False
            await resources.aclose()
            raise
        self.error = None
        self._resources = resources
        zfs = self.context.vault_zfs(self.name)
        return OpenVault(self.name, self.config.pool, state.guid, zfs, profile, lock, self)

    async def _leave(self, user: str, say: Say) -> None:
        async with self._turn:
            self.users[user] -= 1
            if not self.users[user]:
                del self.users[user]
            if self.users:
                return
            self._open = None
            try:
                if not self.pinned and self.config.up == "on-demand":
                    await self._take_down(say)
            except ZvaultError as error:
                self.error = error
                say(f"vault {self.name} could not be taken down: {error}")
            finally:
                self.inhibited = False
                if self._resources is not None:
                    await self._resources.aclose()
                    self._resources = None

    async def up(self, say: Say) -> None:
        """Bring the vault up and keep it so until ``down``."""
        async with self._turn:
            if self._open is None:
                opened = await self._begin("zvaultctl vault up", say)
                self.inhibited = False
                if self._resources is not None:
                    await self._resources.aclose()
                    self._resources = None
                say(f"pool {opened.pool} is up")
            self.pinned = True
            self.context.leases.put(self.lease, self._record(pinned=True))

    async def down(self, say: Say) -> None:
        """Take the vault down. Raises Busy while a run uses it."""
        async with self._turn:
            if self.users:
                raise Busy(
                    f"vault '{self.name}' is in use",
                    f"by {', '.join(self.users)}",
                    "wait for it to end; 'zvaultctl status' shows it",
                )
            self.pinned = False
            await self._take_down(say)
            self.error = None

    def _record(self, *, pinned: bool) -> dict[str, str | bool]:
        return {"pool": self.config.pool, "pinned": pinned}

    async def _bring_up(self, profile: Profile, say: Say) -> PoolState:
        self.context.leases.put(self.lease, self._record(pinned=self.pinned))
        stack = self.stack(profile)
        before = await self.context.zpool.state(self.config.pool)
        devices = await stack.up(say)
        try:
            return await self._open_pool(stack, devices, profile, before, say)
        except ZvaultError:
            if before is None and await self.context.zpool.state(self.config.pool) is None:
                await stack.down(say)
                self.context.leases.drop(self.lease)
            raise

    async def _open_pool(
        self, stack: Stack, devices: list[BlockDevice], profile: Profile, before: PoolState | None, say: Say
    ) -> PoolState:
        pool, zpool = self.config.pool, self.context.zpool
        paths = [device.path for device in devices]
        if before is not None:
            await self._refuse_stranger(pool, paths)
            if before.health == "SUSPENDED":
                say(f"pool {pool} was suspended; its devices are back, clearing it")
                await zpool.clear(pool)
        elif await zpool.import_(pool, paths):
            say(f"imported pool {pool}")
        else:
            await self._create_pool(stack, devices, profile, say)
        state = await zpool.state(pool)
        if state is None:
            raise DeviceGone(f"the pool '{pool}' is not there after its import", "", "look at 'zpool import'")
        if state.health == "SUSPENDED":
            raise suspended(pool)
        return state

    async def _refuse_stranger(self, pool: str, paths: list[str]) -> None:
        """A pool of that name that lies elsewhere is not this vault's."""
        below = await self.context.zpool.devices(pool)
        if paths and not set(below) & set(paths):
            raise Refused(
                f"a pool named '{pool}' is imported from other devices than vault '{self.name}' has",
                f"it lies on {', '.join(below) or 'unknown devices'}, the vault on {', '.join(paths)}",
                "export or rename that pool, or name another pool in zvault.toml",
            )

    async def _create_pool(
        self, stack: Stack, devices: list[BlockDevice], profile: Profile, say: Say
    ) -> None:
        pool = self.config.pool
        if not devices:
            raise NotFound(
                f"there is no pool '{pool}' to import for vault '{self.name}'",
                "the vault has no device in zvault.toml, so the pool must exist already",
                "'zpool import' shows pools that can be imported",
            )
        for device in devices:
            blank, holds = await stack.blank(device.path)
            if not blank:
                raise Refused(
                    f"the pool '{pool}' is not on {device.spec}, and zvault will not overwrite what is",
                    f"the device holds {holds}",
                    "check the vault's device and pool name; 'zpool import -d' tells what pool is there",
                )
        if not self.config.create:
            raise NotFound(
                f"the pool '{pool}' is not on the devices of vault '{self.name}', and they are blank",
                "zvault makes a pool only where it is told to",
                f"if this vault is new, set 'create = true' in [vault.{self.name}]; if not, its data is gone",
            )
        say(f"creating pool {pool} on {', '.join(device.spec for device in devices)}")
        await self.context.zpool.create(pool, [d.path for d in devices], profile.pool, profile.dataset)

    async def _take_down(self, say: Say) -> None:
        zfs = self.context.vault_zfs(self.name)
        await zfs.close()
        lease = self.context.leases.get(self.lease)
        profile = load_profile(self.context.paths, self.config.profile)
        if self.config.device:
            await self.context.zpool.export(self.config.pool, TEARDOWN_DEADLINE)
            say(f"exported pool {self.config.pool}")
            await self.stack(profile).down(say)
        if lease is not None:
            self.context.leases.drop(self.lease)

    async def trouble(self) -> ZvaultError | None:
        """Why the vault cannot be used at this moment, or None."""
        for device in await self.devices():
            if device.state != "up":
                return DeviceGone(
                    f"{device.spec} of vault '{self.name}' is {device.state}",
                    device.detail,
                    "bring its server back; the next run takes up where this one stopped",
                )
        state = await self.context.zpool.state(self.config.pool)
        return suspended(self.config.pool) if state is not None and state.health == "SUSPENDED" else None

    async def devices(self) -> list[DeviceState]:
        """The state of each device; never blocks."""
        try:
            profile = load_profile(self.context.paths, self.config.profile)
        except ZvaultError:
            return []
        return await self.stack(profile).probe()

    async def adopt(self, say: Say, *, keep: bool) -> None:
        """After a start: join what an earlier daemon left up, or take it down; forget another boot's."""
        lease = self.context.leases.get(self.lease)
        if self.config.up == "always":
            await self.up(say)
        elif lease is not None and lease["stale"]:
            self.context.leases.drop(self.lease)
        elif lease is not None and (lease.get("pinned") or keep):
            self.pinned = bool(lease.get("pinned"))
            say(f"vault {self.name} was left up; adopting it")
        elif lease is not None:
            say(f"vault {self.name} was left up and nobody needs it; taking it down")
            await self.down(say)


@dataclass
class Vaults:
    """All vaults of the configuration, each with its keeper."""

    context: Context
    keepers: dict[str, Keeper] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Keeper:
        self.context.vault(name)
        return self.keepers.setdefault(name, Keeper(self.context, name))

    def all(self) -> list[Keeper]:
        """A keeper for each vault."""
        return [self[name] for name in self.context.config.vault]
