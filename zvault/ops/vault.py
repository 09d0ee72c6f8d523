"""Vaults up and down: device stack, pool, inhibitor; shared by whoever uses a vault at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

from zvault.config.profile import Profile
from zvault.config.schema import Vault
from zvault.core.errors import Busy, NotFound, ZvaultError
from zvault.devices.stack import DeviceState
from zvault.ops.assembly import Assembly, Say
from zvault.ops.awake import Awake
from zvault.ops.context import Context
from zvault.ops.damage import look_at
from zvault.ops.pools import Seen
from zvault.ops.side_by_side import Places
from zvault.ops.take import unfinished
from zvault.ops.tune import tuned, untuned
from zvault.ops.watch import to_its_end, watched
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
        self.awake = Awake(context.clock.time)
        self.changed = 0.0
        """When it last came up or went down, in monotonic seconds: what was seen before that is not so any more."""
        self.left = False
        """Whether somebody exported its pool or took it down, so that it is not brought up by itself."""
        self._was_up = False
        self.turn = asyncio.Lock()
        """Held by whoever brings it up or takes it down."""
        self._open: OpenVault | None = None

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
        return self.turn.locked()

    def assembly(self, *, new: bool = False, fenced: bool = False) -> Assembly:
        """Its devices and pool, as they are configured now; ``new`` and ``fenced`` as an Assembly has them."""
        return Assembly(self.context, self.name, self.config, self._known(), new, fenced)

    @asynccontextmanager
    async def use(self, user: str, say: Say, *, writes: bool = True) -> AsyncIterator[OpenVault]:
        """Have the vault up for as long as the block runs, under an inhibitor if it ``writes`` to it."""
        async with AsyncExitStack() as held:
            if writes:
                await held.enter_async_context(self.awake.during(f"{user} writes to vault {self.name}", say))
            async with self.turn:
                if self._open is None:
                    self._open = await self._begin(user, say, self.assembly())
                self.users[user] = self.users.get(user, 0) + 1
                opened = self._open
            try:
                async with watched(self.trouble):
                    yield opened
            finally:
                await to_its_end(self._leave(user, say))

    async def _begin(self, user: str, say: Say, assembly: Assembly) -> OpenVault:
        """Bring the vault up."""
        try:
            async with self.awake.during(f"{user} brings up vault {self.name}", say):
                state = await self._bring_up(assembly, say)
        except ZvaultError as error:
            self.error = error
            raise
        self.error = None
        zfs = self.context.vault_zfs(self.name)
        return OpenVault(self.name, self.config.pool, state.guid, zfs, assembly.profile(), self)

    async def _leave(self, user: str, say: Say) -> None:
        async with self.turn:
            self.users[user] -= 1
            if not self.users[user]:
                del self.users[user]
            if self.users:
                return
            self._open = None
            try:
                if self.context.asleep:
                    say(f"vault {self.name} stays up: the host is about to sleep")
                elif not self.pinned and self.config.up == "on-demand":
                    await self._look()
                    await self._take_down(say)
            except ZvaultError as error:
                self.error = error
                say(f"vault {self.name} could not be taken down: {error}")

    async def _look(self) -> None:
        """See how its pool is before it goes: nobody may have looked while it was up."""
        with suppress(ZvaultError):
            if await self.trouble() is None:
                await look_at(self.context, self.name)

    async def up(self, say: Say) -> None:
        """Bring the vault up and keep it so until ``down``."""
        async with self.turn:
            await self.keep_up("zvaultctl vault up", say, self.assembly())

    async def keep_up(self, user: str, say: Say, assembly: Assembly) -> None:
        """The same for who has the ``turn``."""
        if self._open is None:
            opened = await self._begin(user, say, assembly)
            say(f"pool {opened.pool} is up")
        self.pinned = True
        self.write_down(pinned=True, paths=self._known())

    @asynccontextmanager
    async def below(self, user: str, say: Say) -> AsyncIterator[tuple[int, list[str]]]:
        """Have its pool exported for a block and the devices that it lies on up; then it is as it is to be again.

        Gives the pool's GUID, and the devices. Raises Busy while somebody uses it, or the host is about to sleep.
        """
        async with self.turn:
            if self.users or self.context.asleep:
                users = ", ".join(self.users) or "the host, which is about to sleep"
                raise Busy(f"vault '{self.name}' is in use", f"by {users}", "again when it is free")
            async with self.awake.during(f"{user} writes below vault {self.name}", say):
                assembly = self.assembly()
                opened = await self._begin(user, say, assembly)
                try:
                    paths = await self.context.zpool.devices(opened.pool)
                    await opened.zfs.close()
                    await assembly.export(await assembly.patient_stack(say), say)
                    yield opened.guid, paths
                finally:
                    await to_its_end(self._as_it_is_to_be(user, say))

    async def _as_it_is_to_be(self, user: str, say: Say) -> None:
        if self._to_be_up:
            await self._begin(user, say, self.assembly())
        else:
            await self._take_down(say)

    async def mend(self, say: Say) -> None:
        """Once storage that went away is back: a vault that is to be up goes on, one that was to go down goes down.

        Nothing while somebody uses it, nothing is wrong, or somebody wants it so. Raises what still stands in the way.
        """
        if self.users or self.context.asleep or self.turn.locked() or self.config.host is not None:
            return
        # Looked at without the turn: who has that moves the vault, and what is seen of it meanwhile counts for nothing.
        if self._to_be_up and await self.trouble() is None and not self.left:
            return
        async with self.turn:
            if self._to_be_up:
                if await self.trouble() is not None:
                    if not await self._wanted_so(say):
                        await self.keep_up("zvaultd", say, self.assembly())
                elif self.left:  # somebody imported it again
                    self.left, self.error = False, None
            elif self.error is not None and self.context.leases.get(self.lease) is not None:
                await to_its_end(self._take_down(say))
                self.error = None

    @property
    def _to_be_up(self) -> bool:
        return self.pinned or self.config.up == "always"

    @property
    def alone(self) -> bool:
        """Whether it would be up, but for somebody who exported its pool or took it down: then nothing brings it up."""
        return self.left and self._to_be_up

    async def _wanted_so(self, say: Say) -> bool:
        """Whether somebody wants it so: who exports a pool that was up, with devices that are well. Says so once."""
        if self._was_up and not self.left and await self.assembly().exported():
            self.left = True
            self.error = NotFound(
                f"the pool '{self.config.pool}' of vault '{self.name}' is not imported any more",
                "somebody exported it while its devices were well, so zvault leaves it",
                f"'zvaultctl vault up {self.name}' brings it back, 'vault down' lets its devices go",
            )
            say(str(self.error))
            self.write_down(pinned=self.pinned, paths=self._known())
        return self.left

    async def down(self, say: Say) -> None:
        """Take the vault down. Raises Busy while a run uses it, or the host is about to sleep."""
        async with self.turn:
            if self.context.asleep:
                raise Busy(
                    f"vault '{self.name}' is not taken down now",
                    "the host is about to sleep, and an export that sleep comes into may never end",
                    "again once it is awake",
                )
            if self.users:
                scrub = (
                    f", or 'zvaultctl scrub {self.name} --pause'"
                    if f"scrub {self.name}" in self.users
                    else ""
                )
                raise Busy(
                    f"vault '{self.name}' is in use",
                    f"by {', '.join(self.users)}",
                    f"wait for it to end{scrub}; 'zvaultctl status' shows it",
                )
            if self.pinned or self.left:
                # Before it begins: a crash halfway must not bring it up again, nor leave it as it is.
                self.pinned = self.left = False
                self.write_down(pinned=False, paths=self._known())
            try:
                await to_its_end(self._take_down(say))
            except ZvaultError as error:
                self.error = error
                raise
            self.error = None
            self.left = True  # also one that is to be up always: somebody took it down

    @asynccontextmanager
    async def once(self, user: str, say: Say, assembly: Assembly) -> AsyncIterator[None]:
        """Have a vault that is down up for a block, for who has the ``turn``; then down, unless it is always up."""
        async with self.awake.during(f"{user} writes to vault {self.name}", say):
            await self._begin(user, say, assembly)
            try:
                yield
            finally:
                if self.config.up == "on-demand":
                    await to_its_end(self._take_down(say))

    async def _bring_up(self, assembly: Assembly, say: Say) -> PoolState:
        self.left = False
        self.write_down(pinned=self.pinned, paths=self._known())
        if self.config.device and hostid() == 0:
            say("this host has no hostid, so ZFS cannot tell it from another: 'zgenhostid' makes one")
        try:
            state, paths = await assembly.up(say)
        except BaseException:
            if not self.pinned:
                await to_its_end(self.forget_if_down())
            raise
        self._was_up = True
        self.write_down(pinned=self.pinned, paths=paths)
        await tuned(self.context, self.name, paths, say, new=assembly.new)
        self.context.pools.note(state.guid, Seen(self.name, self.config.pool))
        self.changed = time.monotonic()
        return state

    async def forget_if_down(self) -> None:
        """Drop the lease of a vault of which nothing is up. Where that cannot be told it stays."""
        with suppress(ZvaultError):
            if not await self.assembly().anything_up():
                self.context.leases.drop(self.lease)

    async def _take_down(self, say: Say) -> None:
        async with self.awake.during(f"zvault takes down vault {self.name}", say):
            await self.context.vault_zfs(self.name).close()
            await self.assembly().down(say)
        await untuned(self.context, self.name, say)
        self.context.leases.drop(self.lease)
        self.left = self._was_up = False
        self.changed = time.monotonic()

    def write_down(self, *, pinned: bool, paths: Sequence[str]) -> None:
        """Have the lease say that something of the vault may be up, and where its pool lies."""
        self.context.leases.put(
            self.lease,
            {"pool": self.config.pool, "pinned": pinned, "left": self.left, "paths": list(paths)},
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
        if lease is not None and not lease["stale"] and lease.get("left"):
            self.pinned, self._was_up = bool(lease.get("pinned")), True
            if await self._wanted_so(say):
                return
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
