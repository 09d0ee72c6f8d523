"""Vaults up and down: device stack, pool, inhibitor; shared by whoever uses a vault at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from zvault.config.profile import Profile
from zvault.config.schema import Vault
from zvault.core.errors import Busy, ZvaultError
from zvault.devices.stack import DeviceState
from zvault.ops.assembly import Assembly, Say
from zvault.ops.context import Context
from zvault.ops.creation import creation_document
from zvault.ops.measure import Found, measure_new, settle_on
from zvault.ops.measured import AUTO
from zvault.ops.pools import Seen
from zvault.ops.side_by_side import Places
from zvault.ops.take import (
    lease_name,
    look,
    refuse_if_up,
    refuse_unless_fenced,
    take,
    takeover_document,
    unfinished,
)
from zvault.ops.tune import tuned, untuned
from zvault.ops.watch import to_its_end, watched
from zvault.system.logind import Inhibitor, inhibit
from zvault.zfs.client import Zfs
from zvault.zfs.hostid import hostid
from zvault.zfs.zpool import PoolState


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
        self.changed = 0.0
        """When it last came up or went down, in monotonic seconds: what was seen before that is not so any more."""
        self._turn = asyncio.Lock()
        self._resources: AsyncExitStack | None = None
        self._open: OpenVault | None = None
        self._new = False
        self._fenced = False

    @property
    def config(self) -> Vault:
        """The vault's table in the configuration."""
        return self.context.vault(self.name)

    @property
    def lease(self) -> str:
        """The name under which this host's use of the vault is written down."""
        return f"vault/{self.name}"

    @property
    def moving(self) -> bool:
        """Whether it is being brought up or taken down: then what is seen of it is passing."""
        return self._turn.locked()

    def assembly(self) -> Assembly:
        """Its devices and pool, as they are configured now."""
        return Assembly(self.context, self.name, self.config, self._known(), self._new, self._fenced)

    @asynccontextmanager
    async def use(self, user: str, say: Say) -> AsyncIterator[OpenVault]:
        """Have the vault up, under an inhibitor, for as long as the block runs."""
        async with self._turn:
            if self._open is None:
                self._open = await self._begin(user, say)
            self.users[user] = self.users.get(user, 0) + 1
            opened = self._open
        try:
            async with watched(self.trouble):
                yield opened
        finally:
            await to_its_end(self._leave(user, say))

    async def _begin(self, user: str, say: Say) -> OpenVault:
        """Take the inhibitor, then bring the vault up; undo both when it does not come."""
        resources = AsyncExitStack()
        try:
            why = f"{user} writes to vault {self.name}"
            lock = await resources.enter_async_context(inhibit(why=why))
            self.inhibited = lock.held
            if lock.problem is not None:
                say(f"going on without an inhibitor: {lock.problem}")
            profile = self.assembly().profile()
            state = await self._bring_up(say)
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
            await self._keep_up("zvaultctl vault up", say)

    async def _keep_up(self, user: str, say: Say) -> None:
        if self._open is None:
            opened = await self._begin(user, say)
            self.inhibited = False
            if self._resources is not None:
                await self._resources.aclose()
                self._resources = None
            say(f"pool {opened.pool} is up")
        self.pinned = True
        self._write(pinned=True, paths=self._known())

    async def mend(self, say: Say) -> None:
        """Once storage that went away is back: a vault that is to be up goes on, one that was to go down goes down.

        Nothing while somebody uses it, or nothing is wrong. Raises what still stands in the way.
        """
        if self.users or self._turn.locked() or self.config.host is not None:
            return
        async with self._turn:
            if self.pinned or self.config.up == "always":
                if await self.trouble() is not None:
                    await self._keep_up("zvaultd", say)
            elif self.error is not None and self.context.leases.get(self.lease) is not None:
                await to_its_end(self._take_down(say))
                self.error = None

    async def takeover(self) -> dict[str, Any]:
        """Who has the vault, and what taking it over would do. Raises Refused while it is up here."""
        await refuse_if_up(self.assembly(), self.users)
        return takeover_document(self.name, self.config, await look(self.context, self.name, self.config))

    async def take(self, holders: object, say: Say, *, by_hand: bool) -> None:
        """Shut out whoever has the vault, then bring it up here, and keep it so until ``down``.

        ``holders`` are those of the ``takeover`` that somebody said yes to; ``by_hand``: he has shut out those whom
        zvault cannot. Raises Refused before anything is done, or what went wrong.
        """
        async with self._turn:
            await refuse_if_up(self.assembly(), self.users)
            held = await look(self.context, self.name, self.config)
            refuse_unless_fenced(takeover_document(self.name, self.config, held), holders, by_hand=by_hand)
            await take(self.context, self.name, held, say)
            self._fenced = True
            try:
                await self._keep_up("zvaultctl vault take", say)
            finally:
                self._fenced = False
            self.context.leases.drop(lease_name(self.name))

    async def create(self, say: Say) -> None:
        """Make the vault's pool, on devices that hold nothing; then it is down again, unless it is to be up always.

        Raises Busy while any of it is up, Refused for what holds anything.
        """
        async with self._turn:
            assembly = self.assembly()
            if self.users or await assembly.anything_up():
                raise Busy(
                    f"vault '{self.name}' is up",
                    "only one that is down can be new",
                    f"zvaultctl vault status {self.name}",
                )
            creation_document(self.name, self.config, assembly.profile(), assembly.stack())
            self._new = True
            try:
                found = await self._measured_blank(say)
                await self._begin("zvaultctl vault create", say)
            finally:
                self._new = False
            try:
                if found is not None:
                    await self._settle_on(found, say)
            finally:
                await self._created(say)

    async def _measured_blank(self, say: Say) -> Found | None:
        """Measure the devices of a vault that is to be made, where its profile wants that."""
        if self.config.profile != AUTO:
            return None
        self._write(pinned=False, paths=[])
        try:
            return await measure_new(self.assembly(), say)
        except BaseException:
            await to_its_end(self._forget_if_down())
            raise

    async def _settle_on(self, found: Found, say: Say) -> None:
        """Keep what follows from a measurement; a vault without is slow, and still a vault."""
        try:
            await settle_on(self.context, self.name, found, say)
        except ZvaultError as error:
            say(f"settings were worked out and could not be tried: {error}")

    async def _created(self, say: Say) -> None:
        """The pool is made: down again, unless it is to be up always."""
        try:
            if self.config.up == "on-demand":
                await to_its_end(self._take_down(say))
        finally:
            self.inhibited = False
            if self._resources is not None:
                await self._resources.aclose()
                self._resources = None

    async def down(self, say: Say) -> None:
        """Take the vault down. Raises Busy while a run uses it."""
        async with self._turn:
            if self.users:
                raise Busy(
                    f"vault '{self.name}' is in use",
                    f"by {', '.join(self.users)}",
                    "wait for it to end; 'zvaultctl status' shows it",
                )
            if self.pinned:
                # Before it begins: a crash halfway must not bring it up again.
                self.pinned = False
                self._write(pinned=False, paths=self._known())
            try:
                await to_its_end(self._take_down(say))
            except ZvaultError as error:
                self.error = error
                raise
            self.error = None

    async def _bring_up(self, say: Say) -> PoolState:
        self._write(pinned=self.pinned, paths=self._known())
        if self.config.device and hostid() == 0:
            say("this host has no hostid, so ZFS cannot tell it from another: 'zgenhostid' makes one")
        try:
            state, paths = await self.assembly().up(say)
        except BaseException:
            if not self.pinned:
                await to_its_end(self._forget_if_down())
            raise
        self._write(pinned=self.pinned, paths=paths)
        await tuned(self.context, self.name, paths, say, new=self._new)
        self.context.pools.note(state.guid, Seen(self.name, self.config.pool))
        self.changed = time.monotonic()
        return state

    async def _forget_if_down(self) -> None:
        """Drop the lease of a vault of which nothing is up. Where that cannot be told it stays."""
        with suppress(ZvaultError):
            if not await self.assembly().anything_up():
                self.context.leases.drop(self.lease)

    async def _take_down(self, say: Say) -> None:
        await self.context.vault_zfs(self.name).close()
        await self.assembly().down(say)
        await untuned(self.context, self.name, say)
        self.context.leases.drop(self.lease)
        self.changed = time.monotonic()

    def _write(self, *, pinned: bool, paths: Sequence[str]) -> None:
        self.context.leases.put(
            self.lease, {"pool": self.config.pool, "pinned": pinned, "paths": list(paths)}
        )

    def _known(self) -> list[str]:
        """Where the pool lay when zvault last brought it up, if that was in this boot."""
        lease = self.context.leases.get(self.lease)
        return list(lease.get("paths", [])) if lease is not None and not lease["stale"] else []

    async def trouble(self) -> ZvaultError | None:
        """Why the vault cannot be used at this moment, or None."""
        return await self.assembly().trouble()

    async def devices(self) -> list[DeviceState]:
        """The state of each device; never blocks."""
        return await self.assembly().devices()

    async def imported(self) -> PoolState | None:
        """The vault's pool, if it is imported."""
        return await self.assembly().imported()

    async def adopt(self, say: Say, *, keep: bool) -> None:
        """After a start: join what an earlier daemon left up, or take it down; forget another boot's."""
        lease = self.context.leases.get(self.lease)
        if (half := unfinished(self.context, self.name)) is not None:
            say(str(half))
        if self.config.up == "always":
            await self.up(say)
        elif lease is not None and lease["stale"]:
            self.context.leases.drop(self.lease)
        elif lease is not None and lease.get("pinned"):
            say(f"vault {self.name} was left up; adopting it")
            self.pinned = True
            await self.up(say)
        elif lease is not None and keep:
            say(f"vault {self.name} was left up; the run that was interrupted takes it over")
        elif lease is not None:
            say(f"vault {self.name} was left up and nobody needs it; taking it down")
            await self.down(say)


@dataclass
class Vaults:
    """All vaults of the configuration, each with its keeper; ``places`` are those of streams, over all runs."""

    context: Context
    keepers: dict[str, Keeper] = field(default_factory=dict)
    places: Places = field(default_factory=Places)

    def __getitem__(self, name: str) -> Keeper:
        self.context.vault(name)
        return self.keepers.setdefault(name, Keeper(self.context, name))

    def all(self) -> list[Keeper]:
        """A keeper for each vault."""
        return [self[name] for name in self.context.config.vault]
