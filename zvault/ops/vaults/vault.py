"""A vault that several may use at the same time: who brings it up, who may take it down, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from zvault.api.vaults import PoolHistoryDocument
from zvault.config.profile import VaultProfile
from zvault.config.schema import Vault
from zvault.core.errors import Busy, DiskAway, NotFound, Refused, ZvaultError
from zvault.core.policy.pool_properties import describe_growth, describe_properties
from zvault.core.policy.vault_life import (
    IdleNeed,
    LeftoverRecord,
    VaultAdoption,
    VaultEvent,
    VaultLife,
    VaultLifeFacts,
    decide_adoption,
    decide_idle_care,
    is_withheld,
    may_happen,
    move_vault,
)
from zvault.core.units import format_size
from zvault.devices.device_state import DeviceState
from zvault.ops.context import Context
from zvault.ops.removable_disk import is_disk_away, note_disk_link
from zvault.ops.state.older_vault import accept_older_vault, find_older_vault
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.tuning.set_parameters import (
    restore_parameters,
    restore_reading_parameters,
    set_reading_parameters,
    set_vault_parameters,
)
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.ops.vaults.copied_machine import MachineBook, describe_other_machine
from zvault.ops.vaults.earlier_pools import forget_pools, read_pool_history
from zvault.ops.vaults.examine_pool import examine_pool, recheck_excused
from zvault.ops.vaults.fencing import find_unfinished_takeover, refuse_if_up
from zvault.ops.vaults.inhibitor import VaultInhibitor
from zvault.ops.vaults.mounts import mount_again
from zvault.ops.vaults.name_damage import name_new_damage
from zvault.ops.vaults.new_pool import refuse_unless_new
from zvault.ops.vaults.pool_copies import describe_copy, find_original
from zvault.ops.vaults.put_back import note_progress
from zvault.ops.vaults.undo_record import VaultUndoRecord
from zvault.system.procfs import PoolMount, list_pool_mounts
from zvault.system.tasks import finish_work, watch_block
from zvault.zfs.client import Zfs
from zvault.zfs.pool.hostid import read_hostid
from zvault.zfs.pool.pool import PoolState, make_read_only_error

Export = Callable[[float], Awaitable[None]]
"""Exports a vault's pool within some seconds, as ``Zpool.export`` does."""

ShutOut = Callable[[VaultAssembly], Awaitable[None]]
"""Takes the devices of a vault from the host that had them last."""

T = TypeVar("T")


@dataclass
class OpenVault:
    """A vault that is up: its pool's GUID, its client, its profile."""

    name: str
    pool: str
    guid: int
    zfs: Zfs
    profile: VaultProfile
    managed: ManagedVault
    readonly: bool = False
    """Whether nothing can be changed on it, not even a hold: it is a vault as it was (past_vaults.py), or somebody
    imported its pool read-only.
    """

    def refuse_read_only(self, so: str) -> None:
        """Raises PoolReadOnly where nothing can be written to it, which is why ``so`` is."""
        if self.readonly:
            raise make_read_only_error(
                self.pool, so, self.name if self.managed.config.is_imported_by_zvault else ""
            )

    async def trouble(self) -> ZvaultError | None:
        """Return the error if the vault fell away below us, else None; quick, also when its pool hangs."""
        return await self.managed.trouble()


class ManagedVault:
    """One vault on this host: its state, and the moves that change it. Its users are counted: the last one takes an
    on-demand vault down.

    One move at a time: each method that moves the vault waits for the move that is under way.
    """

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.name = name
        self.lease = VaultUndoRecord(context.records.undo, name)
        self.awake = VaultInhibitor(lambda: context.env.config.daemon.inhibitor_modes, context.env.clock.time)
        self.life = VaultLife.UNKNOWN
        self.users: dict[str, int] = {}
        self.pinned = False
        """Whether it stays up until somebody takes it down; the lease keeps it over a restart."""
        self.error: ZvaultError | None = None
        self.changed = 0.0
        """When it last came up or went down, in monotonic seconds: what was seen before that holds no longer."""
        self._assembly: VaultAssembly | None = None
        self._lock = asyncio.Lock()
        self._open: OpenVault | None = None
        """What its users share."""

        self._readers = 0
        """How many of its users read much."""

        self.held_by: Callable[[], str | None] = lambda: None
        """Which host has it, where several share it."""

    @property
    def moving(self) -> bool:
        """True if it is being brought up or taken down, or is kept as it is: what is seen of it now may not last."""
        return self._lock.locked()

    async def settled(self) -> None:
        """Wait until nothing brings it up or takes it down."""
        async with self._lock:
            return

    @property
    def config(self) -> Vault:
        """The vault's table in the configuration."""
        return self.context.env.vault(self.name)

    @property
    def facts(self) -> VaultLifeFacts:
        """The facts about the vault beside its state."""
        return VaultLifeFacts(
            bool(self.users), self.pinned, self.config.up == "always", self.context.activity.asleep
        )

    @property
    def withheld(self) -> bool:
        """True if it would be up, but for somebody who exported its pool or took it down."""
        return is_withheld(self.life, self.facts)

    def assembly(self, *, new: bool = False, fenced: bool = False) -> VaultAssembly:
        """Its devices and pool, as they are configured now; ``new`` and ``fenced`` as an Assembly has them.

        Who has the device of a vault that hosts share has shut all others out: by the lease, and the store's epoch. So
        its pool is imported though the host that had it last did not get to export it.
        """
        config, known = self.config, self.lease.paths()
        fenced = fenced or bool(config.hosts)
        if new or (fenced and not config.hosts):
            return VaultAssembly(self.context, self.name, config, known, new, fenced)
        made = self._assembly
        if made is None or made.config is not config or made.known != known:
            made = self._assembly = VaultAssembly(self.context, self.name, config, known, fenced=fenced)
        return made

    def is_away(self) -> bool:
        """True if its disk is one that is plugged in now and then, and is not there. Never waits."""
        return is_disk_away(self.context, self.config)

    async def trouble(self) -> ZvaultError | None:
        """Why the vault cannot be used at this moment, or None."""
        return await self.assembly().trouble()

    async def devices(self) -> list[DeviceState]:
        """The state of each device; never blocks."""
        return await self.assembly().devices()

    def on_its_way_out(self) -> ZvaultError | None:
        """The error for a pool whose export has begun and not ended; None where there is none. Never waits."""
        return self.assembly().zpool.on_its_way_out(self.config.pool)

    async def imported(self) -> PoolState | None:
        """The vault's pool, if it is imported."""
        return await self.assembly().imported()

    # Using it

    @asynccontextmanager
    async def use(
        self,
        user: str,
        say: Say,
        *,
        warn: Say | None = None,
        writes: bool = True,
        reads: bool = False,
        create: bool = False,
        shut_out: ShutOut | None = None,
    ) -> AsyncIterator[OpenVault]:
        """Have the vault up for as long as the block runs, under an inhibitor if it ``writes`` to it.

        With ``create`` the pool of a new vault is made, if its configuration says so; only a run has it made. What
        keeps the vault from going down afterwards is its own state, and no failure of the block: ``warn`` (or ``say``)
        is told. Who ``reads`` much has the profile's parameters for reading. ``shut_out`` takes it from a host that has
        stopped, where it has to be brought up.
        """
        async with AsyncExitStack() as held:
            if writes:
                await held.enter_async_context(self.awake.during(f"{user} writes to vault {self.name}", say))
            async with self._lock:
                opened = self._shared
                if opened is None:
                    assembly = replace(self.assembly(), create=create)
                    if shut_out is not None:
                        await refuse_if_up(assembly, self.users)
                        await shut_out(assembly)
                    opened = self._open = await self._begin(user, say, assembly)
                self.users[user] = self.users.get(user, 0) + 1
            try:
                self._warn_of_foreign(warn or say)
                if older := find_older_vault(self.context.env, self.context.records, self.name):
                    (warn or say)(f"vault {self.name}: {older}")
                async with watch_block(self.trouble), self._tuned_for(say, reads=reads):
                    yield opened
            finally:
                await finish_work(self._leave(user, say, warn or say))

    @asynccontextmanager
    async def _tuned_for(self, say: Say, *, reads: bool) -> AsyncIterator[None]:
        """Have the parameters for reading set while any of its users reads."""
        if not reads:
            yield
            return
        self._readers += 1
        try:
            if self._readers == 1:
                await set_reading_parameters(self.context, self.config, say)
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                await finish_work(restore_reading_parameters(self.context, self.config, say))

    def _warn_of_foreign(self, warn: Say) -> None:
        """Tell whoever uses it that its pool needs a device which the vault has not."""
        known = self.context.records.conditions.get(self.name)
        if known is not None and known.foreign:
            warn(
                f"vault {self.name}: its pool needs {', '.join(known.foreign)}, and the vault has no such device:"
                " without it nothing can be restored"
            )

    @property
    def _shared(self) -> OpenVault | None:
        """What its users have open; None where there are none, or its pool was exported below them."""
        return self._open if self.life is VaultLife.UP else None

    async def _begin(self, user: str, say: Say, assembly: VaultAssembly) -> OpenVault:
        """Bring the vault up."""
        state = await self._come_up(user, say, assembly)
        zfs = self.context.clients.vault_zfs(self.config)
        profile = assembly.profile()
        return OpenVault(self.name, self.config.pool, state.guid, zfs, profile, self, state.readonly)

    async def _leave(self, user: str, say: Say, warn: Say) -> None:
        async with self._lock:
            self.users[user] -= 1
            if not self.users[user]:
                del self.users[user]
            if self.users:
                return
            self._open = None
            if self.context.activity.asleep:
                say(f"vault {self.name} stays up: the host is about to sleep")
            elif not self.facts.to_be_up:
                await self._look()
                try:
                    await self._go_down(say)
                except ZvaultError as error:
                    warn(f"vault {self.name} could not be taken down: {error}")

    async def _look(self) -> None:
        """See how its pool is before it goes: nobody may have looked while it was up.

        Errors that an outage left in what is whole by now are seen to be well or not; where that fails, the next time.
        New ones are named: what is to be done about them goes by that, and the pool may be down for a long time.
        """
        with suppress(ZvaultError):
            if await self.trouble() is None:
                await examine_pool(self.context, self.name)
                with suppress(ZvaultError):
                    await recheck_excused(self.context, self.name)
                await name_new_damage(self.context, self.config)

    # Up and down by request

    async def up(self, say: Say) -> None:
        """Bring the vault up and keep it so until ``down``."""
        async with self._lock:
            await self._keep_up("zvaultctl vault up", say, replace(self.assembly(), create=True))

    async def _keep_up(self, user: str, say: Say, assembly: VaultAssembly) -> None:
        if self._shared is None:
            opened = await self._begin(user, say, assembly)
            say(f"pool {opened.pool} is up")
        self.pinned = True
        self._write_lease(self.lease.paths())

    async def down(self, say: Say, *, by_hand: bool = True) -> None:
        """Take the vault down. Raises Busy while a run uses it, or the host is about to sleep.

        Nothing brings one that was taken down ``by_hand`` up again by itself.
        """
        async with self._lock:
            self._refuse_down()
            if self.pinned or self.life is VaultLife.EXPORTED_BY_HAND:
                # Before it begins: a crash halfway must not bring it up again, nor leave it as it is.
                self.pinned = False
                self.lease.put(self.config.pool, self.lease.paths(), pinned=False, exported=False)
            if by_hand and self.life is VaultLife.UP and not self.context.activity.going_down:
                # Up for less than the time between two looks it was never seen with a disk that somebody added to it.
                await self._look()
            await finish_work(self._stay_down(say) if by_hand else self._go_down(say))

    async def _stay_down(self, say: Say) -> None:
        await self._go_down(say)
        self._fire(VaultEvent.HOLD_DOWN)

    def _refuse_down(self) -> None:
        if self.context.activity.asleep:
            raise Busy(
                f"vault '{self.name}' is not taken down now",
                "the host is about to sleep, and an export that sleep comes into may never end",
                "again once it is awake",
            )
        if self.users:
            scrub = (
                f", or 'zvaultctl scrub {self.name} --pause'" if f"scrub {self.name}" in self.users else ""
            )
            raise Busy(
                f"vault '{self.name}' is in use",
                f"by {', '.join(self.users)}",
                f"wait for it to end{scrub}; 'zvaultctl status' shows it",
            )

    async def grow(self, say: Say) -> None:
        """Have its pool use all of its devices, which were grown. Raises Refused where there is nothing more of them.

        A device has its new size once it is connected again, so a vault that is up may not know yet.
        """
        async with self.use("zvaultctl vault grow", say) as opened:
            zpool, pool = self.assembly().zpool, opened.pool
            before = await zpool.state(pool)
            if before is None or not before.expandable:
                raise Refused(
                    f"there is nothing to give to the pool '{pool}'",
                    "it uses all of its devices, as large as this host knows them to be",
                    f"grow the device first; then 'zvaultctl vault down {self.name}', and again",
                )
            opened.refuse_read_only("it cannot be made larger")
            await zpool.expand(pool, self.lease.paths())
            if (after := await zpool.state(pool)) is not None:
                say(f"pool {pool} has grown from {format_size(before.size)} to {format_size(after.size)}")

    # What needs the vault for itself

    @asynccontextmanager
    async def below(self, user: str, say: Say) -> AsyncIterator[tuple[int, list[str]]]:
        """Have its pool exported for a block and the devices that it lies on up; then it is as it is to be again.

        What was mounted of it is mounted again. Gives the pool's GUID, and the devices. Raises Busy while somebody uses
        it, or the host is about to sleep.
        """
        async with self._lock:
            if not self.facts.free:
                users = ", ".join(self.users) or "the host, which is about to sleep"
                raise Busy(f"vault '{self.name}' is in use", f"by {users}", "again when it is free")
            async with self.awake.during(f"{user} writes below vault {self.name}", say):
                assembly = self.assembly()
                opened = await self._begin(user, say, assembly)
                mounts = list_pool_mounts(opened.pool)
                try:
                    paths = await self.context.clients.zpool.devices(opened.pool)
                    await opened.zfs.close()
                    self._fire(VaultEvent.EXPORT)
                    await assembly.export(await assembly.patient_stack(say), say)
                    yield opened.guid, paths
                finally:
                    await finish_work(self._as_it_is_to_be(user, say, mounts))

    async def _as_it_is_to_be(self, user: str, say: Say, mounts: Sequence[PoolMount]) -> None:
        if self.facts.to_be_up:
            opened = await self._begin(user, say, self.assembly())
            for text in await mount_again(opened.zfs, opened.pool, mounts):
                say(text)
        else:
            await self._go_down(say)

    async def refuse_unless_new(self) -> None:
        """Raises Busy while any of it is up, Refused for a vault that had a pool."""
        if self.users or await self.assembly(new=True).anything_up():
            raise Busy(
                f"vault '{self.name}' is up",
                "only one that is down can be new",
                f"zvaultctl vault status {self.name}",
            )
        refuse_unless_new(self.config, await read_pool_history(self.context, self.config))

    async def create(
        self,
        say: Say,
        prepare: Callable[[VaultAssembly], Awaitable[T]],
        finish: Callable[[T], Awaitable[None]],
    ) -> None:
        """Make its pool, which must be down; then it is down again, unless it is to be up.

        ``prepare`` may use the blank devices before, and ``finish`` the pool after. Raises Busy while any of it is up,
        Refused for a vault that had a pool.
        """
        async with self._lock:
            await self.refuse_unless_new()
            assembly = self.assembly(new=True)
            self.lease.put(self.config.pool, [], pinned=False, exported=False)
            try:
                prepared = await prepare(assembly)
            except BaseException:
                await finish_work(self._forget_if_down())
                raise
            user = "zvaultctl vault create"
            async with self.awake.during(f"{user} writes to vault {self.name}", say):
                await self._begin(user, say, assembly)
                try:
                    await finish(prepared)
                finally:
                    if not self.facts.to_be_up:
                        await finish_work(self._go_down(say))

    async def begin_anew(self, shown: object, say: Say) -> PoolHistoryDocument:
        """Forget the pools that it had, so that it may get a new one; nothing else changes.

        ``shown`` are those that somebody said yes to. Raises Busy while any of it is up, Refused where others are
        known.
        """
        async with self._lock:
            if self.users or await self.assembly().anything_up():
                raise Busy(
                    f"vault '{self.name}' is up, at least in part",
                    "only one that is down can begin anew",
                    f"'zvaultctl vault down {self.name}'",
                )
            history = await read_pool_history(self.context, self.config)
            document = history.document(self.config)
            if shown != document["pools"]:
                raise Refused(
                    f"the pools that are known of vault '{self.name}' are others than those shown",
                    "; ".join(map(str, history.pools)) or "none is known",
                    f"'zvaultctl vault begin-anew {self.name}' shows them anew",
                )
            forget_pools(self.context, self.config, history)
            for pool in history.pools:
                say(f"vault {self.name} begins anew; forgotten: {pool}")
            return document

    def accept_older(self, shown: object, say: Say) -> str:
        """Have it go on from what it has, as its store was put back; returns what was told of that.

        ``shown`` is what somebody said yes to. Raises NotFound where it is not older, Refused where it is otherwise so.
        """
        older = find_older_vault(self.context.env, self.context.records, self.name)
        if older and shown != older:
            raise Refused(
                f"vault '{self.name}' is not as it was shown",
                older,
                f"'zvaultctl vault accept-older {self.name}'",
            )
        accept_older_vault(self.context.env, self.context.records, self.name)
        say(f"vault {self.name} goes on from what it has: {older}")
        return older

    async def take_over(self, shut_out: Callable[[], Awaitable[None]], say: Say) -> None:
        """Shut out whoever has the vault, then bring it up and keep it so until ``down``.

        Raises Refused while any of it is up here.
        """
        async with self._lock:
            await refuse_if_up(self.assembly(), self.users)
            await shut_out()
            await self._keep_up("zvaultctl vault take", say, self.assembly(fenced=True))

    @asynccontextmanager
    async def before_sleep(self) -> AsyncIterator[Export | None]:
        """Keep the vault as it is for a block that prepares it for a sleep of the host.

        Gives what exports its pool for the sleep; None where zvault has not imported it.
        """
        async with self._lock:
            yield self._export_for_sleep if may_happen(self.life, VaultEvent.EXPORT) else None

    # Looking after it

    async def repair(self, say: Say) -> None:
        """Once storage that went away is back: a vault that is to be up goes on, one that was to go down goes down.

        Nothing while somebody uses it, nothing is wrong, or somebody wants it so. Raises what still stands in the way.
        """
        if not self.facts.free or self.moving or self.config.host is not None:
            return
        # Looked at without the lock: who has that moves the vault, and what is seen of it meanwhile counts for nothing.
        if self.facts.to_be_up and not self.withheld and await self.trouble() is None:
            return
        async with self._lock:
            match await self._care():
                case IdleNeed.BRING_UP:
                    await self._keep_up("zvaultd", say, replace(self.assembly(), create=True))
                case IdleNeed.TAKE_DOWN:
                    await finish_work(self._go_down(say))
                case IdleNeed.LEAVE_EXPORTED:
                    self._leave_exported(say)
                case IdleNeed.NOTE_IMPORTED:
                    self._note_imported()

    async def _care(self) -> IdleNeed:
        facts = self.facts
        well = facts.to_be_up and await self.trouble() is None
        exported = facts.to_be_up and not well and await self._exported_by_hand()
        left_over = self.error is not None and self.lease.exists
        return decide_idle_care(self.life, self.facts, well=well, exported=exported, left_over=left_over)

    async def adopt(self, say: Say, *, needed: bool) -> None:
        """After a start: join what an earlier daemon left up, or take it down; forget another boot's.

        ``needed``: a run that was interrupted goes on with it.
        """
        left = self.lease.left()
        if (half := find_unfinished_takeover(self.assembly())) is not None:
            say(str(half))
        if left is not None and left.exported and not left.stale and await self._still_exported(left, say):
            return
        match decide_adoption(left, always=self.config.up == "always", needed=needed):
            case VaultAdoption.NOTHING:
                self._fire(VaultEvent.NOTHING_LEFT)
            case VaultAdoption.FORGET:
                self.lease.drop()
                self._fire(VaultEvent.NOTHING_LEFT)
            case VaultAdoption.BRING_UP:
                await self.up(say)
            case VaultAdoption.PIN:
                say(f"vault {self.name} was left up; adopting it")
                self.pinned = True
                await self.up(say)
            case VaultAdoption.WAIT:
                say(f"vault {self.name} was left up; the run that was interrupted takes it over")
            case VaultAdoption.TAKE_DOWN:
                say(f"vault {self.name} was left up and nobody needs it; taking it down")
                await self.down(say, by_hand=False)

    async def _still_exported(self, left: LeftoverRecord, say: Say) -> bool:
        """True if a pool that an earlier daemon found exported by hand still is; then it is left so."""
        async with self._lock:
            self.pinned = left.pinned
            self._fire(VaultEvent.RECORD_EXPORTED)
            exported = await self._exported_by_hand()
            if exported:
                self._leave_exported(say)
            return exported

    # The moves themselves: each fires the events of core/policy/vault_life.py. Who calls them has the lock.

    def _fire(self, event: VaultEvent) -> None:
        self.life = move_vault(self.life, event, self.facts)
        if event in {VaultEvent.CAME_UP, VaultEvent.WENT_DOWN}:
            self.changed = self.context.env.clock.monotonic()
        if event in {VaultEvent.CAME_UP, VaultEvent.FIND_IMPORTED}:
            for tell in self.context.activity.came_up:
                tell(self.name)

    async def _come_up(self, user: str, say: Say, assembly: VaultAssembly) -> PoolState:
        """Bring it up, or join what is up. Raises what is in the way, which its status shows from then on."""
        try:
            async with self.awake.during(f"{user} brings up vault {self.name}", say):
                state = await self._connect(assembly, say)
        except ZvaultError as error:
            # Nothing is wrong with a vault whose disk is in the cupboard.
            self.error = None if isinstance(error, DiskAway) else error
            raise
        self.error = None
        return state

    async def _connect(self, assembly: VaultAssembly, say: Say) -> PoolState:
        self._fire(VaultEvent.BRING_UP)
        try:
            self._write_lease(self.lease.paths())
            if self.config.is_imported_by_zvault and read_hostid() == 0:
                say("this host has no hostid, so ZFS cannot tell it from another: 'zgenhostid' makes one")
            machines = MachineBook(self.context.records.machines)
            if (other := machines.find_other(self.name)) is not None:
                say(describe_other_machine(self.name, other))
            state, paths = await assembly.up(say)
        except BaseException:
            self._fire(VaultEvent.FAIL)
            if not self.pinned:
                await finish_work(self._forget_if_down())
            raise
        self._fire(VaultEvent.CAME_UP)
        machines.note(self.name)
        self._write_lease(paths)
        note_disk_link(self.context, self.config)
        if self.config.device:
            for text in (
                *describe_properties(state.name, state.properties, assembly.profile().pool),
                *describe_growth(self.name, state.name, state.expandable),
            ):
                say(text)
        await set_vault_parameters(self.context, self.config, paths, say, new=assembly.new)
        if (original := find_original(self.context, self.config, state.guid)) is None:
            self.context.records.pools.note(state.guid, SeenPool.of(self.config))
            if told := await note_progress(self.context, self.config, state.guid, imported=True):
                say(told)
        else:
            say(describe_copy(self.config, original))
        return state

    async def _go_down(self, say: Say) -> None:
        """Take it down. Raises what is in the way, which its status shows from then on."""
        self._fire(VaultEvent.TAKE_DOWN)
        try:
            async with self.awake.during(f"zvault takes down vault {self.name}", say):
                await self.context.clients.vault_zfs(self.config).close()
                await self.assembly().down(say)
            await restore_parameters(self.context, self.config, say)
            self.lease.drop()
        except BaseException as error:
            self._fire(VaultEvent.FAIL)
            if isinstance(error, ZvaultError):
                self.error = error
            raise
        self._fire(VaultEvent.WENT_DOWN)
        self.error = None

    async def _export_for_sleep(self, within: float) -> None:
        """Export its pool, as ``Zpool.export``; the devices stay up."""
        self._fire(VaultEvent.EXPORT)
        self._write_lease(self.lease.paths())
        await self.assembly().zpool.export(self.config.pool, within)

    async def _exported_by_hand(self) -> bool:
        """True if somebody exported its pool, where its state leaves room for that. Raises what hides it."""
        return may_happen(self.life, VaultEvent.FIND_EXPORTED) and await self.assembly().exported()

    def _leave_exported(self, say: Say) -> None:
        """Leave its pool to whoever exported it, and say so once."""
        self._fire(VaultEvent.FIND_EXPORTED)
        self.error = NotFound(
            f"the pool '{self.config.pool}' of vault '{self.name}' is not imported any more",
            "somebody exported it while its devices were well, so zvault leaves it",
            f"'zvaultctl vault up {self.name}' brings it back, 'vault down' lets its devices go",
        )
        say(str(self.error))
        self._write_lease(self.lease.paths())

    def _note_imported(self) -> None:
        """Somebody imported its pool again."""
        self._fire(VaultEvent.FIND_IMPORTED)
        self.error = None
        self._write_lease(self.lease.paths())

    def _write_lease(self, paths: Sequence[str]) -> None:
        self.lease.put(
            self.config.pool, paths, pinned=self.pinned, exported=self.life is VaultLife.EXPORTED_BY_HAND
        )

    async def _forget_if_down(self) -> None:
        """Drop the lease of a vault of which nothing is up. Where that cannot be told it stays."""
        with suppress(ZvaultError):
            if not await self.assembly().anything_up():
                self.lease.drop()


@dataclass
class Vaults:
    """All vaults of the configuration, as this host manages them."""

    context: Context
    _managed: dict[str, ManagedVault] = field(default_factory=dict)

    def __getitem__(self, name: str) -> ManagedVault:
        self.context.env.vault(name)
        if name not in self._managed:
            self._managed[name] = ManagedVault(self.context, name)
        return self._managed[name]

    def all(self) -> list[ManagedVault]:
        """Return all vaults that are configured."""
        return [self[name] for name in self.context.env.config.vault]
