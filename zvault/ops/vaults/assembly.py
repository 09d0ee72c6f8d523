"""One vault's devices and the pool on them, put together and taken apart; also when a device died below its pool.

A pool that lost its device can be revived (clear_suspended_pool.py), but not while it is exported: the export waits in
the kernel with the lock that ``zpool clear`` and every other command want, for ever (OpenZFS up to 2.3, its issues 1857
and 6649). So all there is to write is written before, by ``zpool sync``, which holds no lock: storage that is lost is
nearly always met there, where it can be repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from zvault.config.load_config import load_profile
from zvault.config.profile import QueueSettings, VaultProfile
from zvault.config.schema import Device, Vault
from zvault.core.errors import (
    Busy,
    ConfigError,
    DeviceGone,
    DiskAway,
    NotFound,
    Refused,
    TakenOver,
    ToolFailed,
    ZvaultError,
)
from zvault.core.policy.automatic_repairs import FORCE_IMPORT, HOSTS, IMPORT_READONLY, NOT_WRITABLE, SHUT_OUT
from zvault.devices.device_state import BlockDevice, DeviceState
from zvault.devices.presence import refuse_taken_devices
from zvault.devices.stack import DeviceStack
from zvault.ops.context import Context
from zvault.ops.tuning.measurements import AUTO
from zvault.ops.tuning.set_parameters import pause_txgs
from zvault.ops.tuning.store_guesses import find_device_guess
from zvault.ops.vaults.abandon_pool import (
    abandon_pool,
    is_on_copies,
    make_had_before_error,
    make_not_given_up_error,
)
from zvault.ops.vaults.clear_suspended_pool import EXPORT_SYNC_DEADLINE, SuspendedPoolClear, is_lost
from zvault.ops.vaults.copied_machine import MachineBook, refuse_pool_of_clone
from zvault.ops.vaults.device_timeouts import order_timeouts
from zvault.ops.vaults.earlier_pools import PoolHistory, list_noted_pools, read_pool_history
from zvault.ops.vaults.mounts import describe_other_use
from zvault.ops.vaults.new_pool import (
    PoolPermission,
    describe_absence,
    make_missing_pool_error,
    make_new_pool,
    refuse_unless_blank,
)
from zvault.system.block_devices import is_read_only_device
from zvault.system.key_source import KeySource, parse_key, read_key
from zvault.system.process.kernel_waits import allow_rescue_looks
from zvault.system.process.runner import ProcessRunner
from zvault.system.tasks import finish_work, watch_block
from zvault.zfs.pool.encryption import load_pool_key
from zvault.zfs.pool.label import PartMissing, Shrunk
from zvault.zfs.pool.pool import PoolExporting, PoolState, UnknownFeature, Zpool

Say = Callable[[str], None]

TEARDOWN_DEADLINE = 180.0
"""Seconds an export may take before zvault stops waiting and says what is left."""

BUSY_EXPORT_PATIENCE = 15.0
"""Seconds to try again while a pool is busy: a stream that was put down may still be on its way out."""


@dataclass
class VaultAssembly:
    """One vault's devices and pool. ``known`` are the paths its pool was last seen on by zvault, in this boot.

    ``new``: its pool is to be made, and one that is there already is refused. ``create``: it is made where the
    configuration has it so and the vault is new; without, nothing ever is: what is read must be there. ``fenced``:
    whoever had it last is shut out, so its pool is imported though it was not exported there.
    """

    context: Context
    name: str
    config: Vault
    known: Collection[str] = ()
    new: bool = False
    fenced: bool = False
    create: bool = False

    @property
    def pool(self) -> str:
        return self.config.pool

    @property
    def zpool(self) -> Zpool:
        """The pools of the host it is on."""
        return self.context.clients.zpool_of(self.config)

    def profile(self) -> VaultProfile:
        """The vault's profile. Raises ConfigError."""
        return load_profile(self.context.env.paths, self.config.profile)

    def stack(self, making: PoolPermission | None = None) -> DeviceStack:
        """Make the stack of the vault's devices."""
        making = making or PoolPermission(self.new)
        context = self.context
        try:
            queue = self.profile().queue
        except ConfigError:
            # A profile that cannot be read keeps a vault from coming up (``up``), but not from going down.
            queue = QueueSettings()
        return DeviceStack(
            self.name,
            self.config.device,
            queue,
            context.env.runner,
            context.env.paths,
            context.records.undo,
            create=making.allowed,
            absence=making.absence,
            hurried=lambda: context.activity.going_down,
            find_uploads=self._find_uploads,
        )

    def _find_uploads(self, device: Device) -> int | None:
        """How many uploads the probe of a device's store found to be enough, for a vault that is ``auto``."""
        guess = find_device_guess(self.context.env.paths, device) if self.config.profile == AUTO else None
        return None if guess is None else guess.uploads

    @cached_property
    def _seen(self) -> DeviceStack:
        """The vault's devices, for looking at them only: no look changes a stack, so one will do for all."""
        return self.stack()

    async def up(self, say: Say) -> tuple[PoolState, list[str]]:
        """Bring it up, or join what is up; returns the pool and the paths it lies on.

        On a failure, what this call brought up is taken down again unless a pool lies on it.
        """
        # A hold or 'zfs list' that hung in a dataset had 'zpool list' refused here: the pool was never brought back,
        # though its storage was.
        with allow_rescue_looks():
            return await self._up(say)

    async def _up(self, say: Say) -> tuple[PoolState, list[str]]:
        key = await read_pool_key(self.config, self.context.env.runner)  # first: without it nothing comes up
        before = await self.zpool.state(self.pool)
        making = await self._making() if before is None else PoolPermission(False)
        profile, stack = self.profile(), await self.patient_stack(say, making)
        if before is not None:
            await self._refuse_stranger(stack)
            try:
                await self._revive(stack, before, say)
            except TakenOver as error:
                await self._abandon(error, stack, say)
                await finish_work(stack.down(say))
                raise
        elif is_on_copies(await stack.probe()):
            await finish_work(stack.down(say))
        devices = await stack.up(say)
        try:
            state = await self._open_pool(stack, devices, profile, making, key, say)
            await self._load_key(key, before is None)
            return state, [device.path for device in devices]
        except BaseException:
            await finish_work(self._undo(stack, say))
            raise

    async def _load_key(self, key: bytes | None, ours: bool) -> None:
        """Load its pool's key; where that cannot be done, a pool that was brought up here (``ours``) goes again."""
        if key is None:
            return
        try:
            await load_pool_key(self.context.env.runner, self.pool, key)
        except BaseException:
            if ours:
                with contextlib.suppress(ZvaultError):
                    await finish_work(self.zpool.export(self.pool, TEARDOWN_DEADLINE))
            raise

    async def _making(self) -> PoolPermission:
        """Whether the pool and what it needs may be made: only for a vault that never had one, unless it is ``new``."""
        wanted = self.config.create and self.create
        if self.new or wanted:
            history = await read_pool_history(self.context, self.config)
        else:
            history = PoolHistory(list_noted_pools(self.context, self.config))
        # Somebody who has it made now knows that it is new, whatever cannot be asked.
        allowed = history.new if wanted and not self.new else self.new and not history.pools
        return PoolPermission(allowed, describe_absence(self.config, history, reading=not wanted))

    async def patient_stack(self, say: Say, making: PoolPermission | None = None) -> DeviceStack:
        """The devices with timeouts that end before OpenZFS's own; says which had to be made shorter."""
        stack = self.stack(making)
        stack.devices, told = await order_timeouts(stack.devices, self.profile(), self.context.env.runner)
        for text in told:
            say(text)
        return stack

    async def _undo(self, stack: DeviceStack, say: Say) -> None:
        with contextlib.suppress(ZvaultError):
            if await self.zpool.state(self.pool) is None:
                await stack.down(say)

    async def down(self, say: Say) -> None:
        """Export the pool and take the devices down; nothing need be up. Raises what is in the way, and what is left.

        It ends in any case: where storage is lost once the layers below have given it up, each at its own timeout.
        """
        if not self.config.is_imported_by_zvault:
            return
        stack = await self.patient_stack(lambda _: None)
        try:
            await self._down(stack, say)
        except ZvaultError as error:
            left = await self._left(stack)
            told = type(error)(error.what, f"{error.why}; {left}" if error.why else left, error.next)
            told.retryable = error.retryable
            raise told from error

    async def _down(self, stack: DeviceStack, say: Say) -> None:
        await self.export(stack, say)
        await self.context.activity.awake.wait()
        await stack.down(say)

    async def export(self, stack: DeviceStack, say: Say) -> None:
        """Export the pool, if it is imported, with all that is not on disk yet; the devices stay as they are."""
        with allow_rescue_looks():
            await self._revive_and_export(stack, say)

    async def _revive_and_export(self, stack: DeviceStack, say: Say) -> None:
        zpool = self.zpool
        state = await zpool.state(self.pool)
        if state is not None and await self._is_stranger(stack):
            say(f"the pool '{self.pool}' that is imported is not this vault's: leaving it alone")
        elif state is not None:
            try:
                await self._revive(stack, state, say)
            except TakenOver as error:
                await self._abandon(error, stack, say)
                return
            async with watch_block(self._storage_trouble):
                await zpool.sync(self.pool, EXPORT_SYNC_DEADLINE)
            # A sleep may have been announced meanwhile, and an export that it comes into may never end.
            await self.context.activity.awake.wait()
            await self._export()
            say(f"exported pool {self.pool}")

    async def _abandon(self, error: TakenOver, stack: DeviceStack, say: Say) -> None:
        """Give the imported pool up that another host has now. Raises ``error`` where hosts do not share the vault."""
        if not self.config.hosts and not is_on_copies(await stack.probe()):
            raise error
        say(f"another host has taken vault {self.name} over")
        awake, pause = self.context.activity.awake, partial(pause_txgs, self.context, self.config, say)
        await abandon_pool(self.pool, self.zpool, stack, awake, say, pause)
        self.context.records.conditions.given_up(self.name)

    async def _left(self, stack: DeviceStack) -> str:
        """What of the vault is up all the same, in words."""
        pool = await self.zpool.kernel_state(self.pool)
        parts = [f"the pool {self.pool} ({pool.lower()})"] if pool is not None else []
        for device in await self.devices():
            if device.state != "down":
                parts.append(f"{device.path or device.name} ({device.spec}, {device.state})")
        return f"left as it is: {', '.join(parts)}" if parts else "nothing of it is left"

    async def _export(self) -> None:
        give_up = time.monotonic() + BUSY_EXPORT_PATIENCE
        while True:
            try:
                async with watch_block(self._storage_trouble):
                    return await self.zpool.export(self.pool, TEARDOWN_DEADLINE)
            except PoolExporting:
                raise
            except Busy as busy:
                if time.monotonic() >= give_up:
                    used = describe_other_use(self.pool, str(self.context.env.paths.run))
                    raise Busy(busy.what, f"{busy.why}; {used}" if used else busy.why, busy.next) from None
                await asyncio.sleep(1)

    # A pool that is imported already

    async def _is_stranger(self, stack: DeviceStack) -> bool:
        """True if the imported pool of our name lies elsewhere than on this vault's devices."""
        if not self.config.device:
            return False
        ours = {device.path for device in await stack.probe()} | set(self.known)
        return not ours & set(await self.zpool.devices(self.pool))

    async def _refuse_stranger(self, stack: DeviceStack) -> None:
        if not await self._is_stranger(stack):
            return
        below = await self.zpool.devices(self.pool)
        raise Refused(
            f"a pool named '{self.pool}' is imported from other devices than vault '{self.name}' has",
            f"it lies on {', '.join(below) or 'unknown devices'}, the vault on"
            f" {', '.join(device.spec for device in self.config.device)}",
            f"'zpool export {self.pool}' if it may go, or name another pool in zvault.toml",
        )

    async def _revive(self, stack: DeviceStack, state: PoolState, say: Say) -> None:
        """Give an imported pool its devices back if they are lost, and resume it if it is suspended.

        Raises TakenOver where another host had them, also for a pool that already lies on copies."""
        if is_on_copies(await stack.probe()):
            raise make_had_before_error(self.name)
        env, conditions = self.context.env, self.context.records.conditions
        doubt = partial(conditions.doubt, self.name, env.clock.time())
        look, pause = self._storage_trouble, partial(pause_txgs, self.context, self.config, say)
        await SuspendedPoolClear(
            self.name, self.pool, self.zpool, stack, env.runner, look, doubt, pause
        ).revive(state, say)

    # A pool that is not

    async def _open_pool(
        self,
        stack: DeviceStack,
        devices: Sequence[BlockDevice],
        profile: VaultProfile,
        making: PoolPermission,
        key: bytes | None,
        say: Say,
    ) -> PoolState:
        zpool = self.zpool
        state = await zpool.state(self.pool)
        if state is None:
            if self.config.host is not None:
                raise NotFound(
                    f"the pool '{self.pool}' of vault '{self.name}' is not imported on {self.config.host}",
                    "zvault brings up no pool on another host",
                    f"there: 'zpool import {self.pool}'",
                )
            paths = [device.path for device in devices]
            try:
                found = not self.new and await self._import(stack, paths, say)
            except ToolFailed:
                refuse_taken_devices(self.pool, paths)
                raise
            if found:
                say(f"imported pool {self.pool}")
            else:
                await self._create_pool(stack, devices, profile, making, key, say)
            state = await zpool.state(self.pool)
        if state is None:
            raise DeviceGone(
                f"the pool '{self.pool}' is not there after its import", "", "look at 'zpool import'"
            )
        if state.stuck:
            raise zpool.suspended(self.pool)
        return state

    async def _import(self, stack: DeviceStack, paths: Sequence[str], say: Say) -> bool:
        """Import its pool; False if it is not on these devices. Raises PartMissing, with what it was seen to need.

        A device that is not the vault's own is looked for too, if the pool was last seen to need it: only an imported
        pool can be read, and can have it removed.
        """
        if not self.fenced:
            book = MachineBook(self.context.records.machines)
            await refuse_pool_of_clone(book, self.config, paths, self.context.env.runner)
        known = self.context.records.conditions.get(self.name)
        foreign = known.foreign if known is not None else ()
        there = [path for path in foreign if await asyncio.to_thread(Path(path).exists)]
        try:
            return await self._import_as_far_as_possible([*paths, *there], say)
        except PartMissing as error:
            gone = ", ".join(path for path in foreign if path not in there)
            if not gone:
                raise
            why = f"{error.why}; when it was last seen it needed {gone} too, which is no device of vault '{self.name}'"
            raise PartMissing(
                error.what, why, f"bring {gone} back: without it nothing can be restored"
            ) from error
        except Shrunk:
            raise
        except DeviceGone as error:
            # What an import that was left in the kernel waits for fails now, so that the device can be taken down.
            await finish_work(stack.cut_off(say))
            # As of a mapping that was there before, and whose client the cluster refuses by now.
            raise await stack.find_cause() or error from None

    async def _import_as_far_as_possible(self, paths: Sequence[str], say: Say) -> bool:
        """Import its pool, read-only where nothing can be written to it: what is in it can be restored all the same."""
        locked = [path for path in paths if is_read_only_device(path)]
        if IMPORT_READONLY.find_unmet({NOT_WRITABLE: bool(locked)}) is None:
            say(
                f"{', '.join(locked)} is read-only, so pool {self.pool} is imported read-only: it can be restored from"
            )
            return await self._import_watched(paths, readonly=True)
        try:
            return await self._import_watched(paths, readonly=False)
        except UnknownFeature as error:
            if IMPORT_READONLY.find_unmet({NOT_WRITABLE: error.readable}) is not None:
                raise
            say(f"{error}. Until then pool {self.pool} is imported read-only: it can be restored from")
            return await self._import_watched(paths, readonly=True)

    async def _import_watched(self, paths: Sequence[str], *, readonly: bool) -> bool:
        """Import its pool while its storage is there: an import that lost it may wait in the kernel for ever.

        No other import of the pool follows it there (KernelWaits).
        """
        async with watch_block(self._storage_trouble):
            return await self.zpool.import_(self.pool, paths, force=self._may_force(), readonly=readonly)

    def _may_force(self) -> bool:
        """Whether the pool is imported though another host did not export it: as somebody took it, or by the table.

        A device with a lease is up here only once whoever had it is shut out.
        """
        by_hand = self.fenced and not self.config.hosts
        leased = all(device.lease_bound is not None for device in self.config.device)
        shared = FORCE_IMPORT.find_unmet({HOSTS: bool(self.config.hosts), SHUT_OUT: leased}) is None
        return by_hand or shared

    async def _create_pool(
        self,
        stack: DeviceStack,
        devices: Sequence[BlockDevice],
        profile: VaultProfile,
        making: PoolPermission,
        key: bytes | None,
        say: Say,
    ) -> None:
        if self.config.removable:
            raise make_away_error(self.name, self.pool)
        if not devices:
            raise NotFound(
                f"there is no pool '{self.pool}' to import for vault '{self.name}'",
                "the vault has no device in zvault.toml, so the pool must exist already",
                "'zpool import' shows pools that can be imported",
            )
        refuse_taken_devices(self.pool, [device.path for device in devices])
        await refuse_unless_blank(stack, devices, self.pool)
        if not making.allowed:
            raise make_missing_pool_error(self.name, self.pool, making.absence)
        say(f"creating pool {self.pool} on {', '.join(device.spec for device in devices)}")
        await self.zpool.create(make_new_pool(self.config, profile, [device.path for device in devices]), key)

    # Watching

    async def imported(self) -> PoolState | None:
        """The vault's pool, if it is imported; one of its name that lies elsewhere does not count."""
        # A listing that stands still shows nothing of the pool itself, which would be gone for it without any grace.
        with allow_rescue_looks():
            state = await self.zpool.state(self.pool)
            return None if state is None or await self._is_stranger(self._seen) else state

    async def anything_up(self) -> bool:
        """True if a device of the vault is there, or the pool is imported from where they were."""
        if any(device.state != "down" for device in await self._seen.probe()):
            return True
        return await self.imported() is not None

    async def exported(self) -> bool:
        """True if the pool is not imported though every device is well. Raises what keeps it from being told."""
        devices = await self._seen.probe()
        if is_on_copies(devices) or any(device.state != "up" for device in devices):
            return False
        with allow_rescue_looks():
            return await self.zpool.state(self.pool) is None

    async def trouble(self) -> ZvaultError | None:
        """Why the vault cannot be used at this moment, or None; quick, also when its pool hangs."""
        # First what never waits: a pool that hangs is to be told within seconds.
        if (lost := await self._storage_trouble()) is not None:
            return lost
        state = await self.zpool.state(self.pool)
        if state is None:
            return DeviceGone(
                f"the pool '{self.pool}' of vault '{self.name}' is not imported any more",
                "somebody exported it",
                "run again: zvault imports it"
                if self.config.host is None
                else f"import it on {self.config.host}",
            )
        return self.zpool.suspended(self.pool) if state.stuck else None

    async def _device_trouble(self) -> ZvaultError | None:
        devices = await self.devices()
        if is_on_copies(devices):
            return make_not_given_up_error(self.name)
        for device in devices:
            if is_lost(device):
                return DeviceGone(
                    f"vault '{self.name}' lost its device {device.spec}",
                    device.detail or f"it is {device.state}",
                    "zvault connects it again by itself once it is back, and the next run takes up where this one"
                    " stopped; 'zvaultctl vault status' shows how it stands",
                )
        return None

    async def _storage_trouble(self) -> ZvaultError | None:
        """What keeps the pool from being written to, or None; asks nothing that waits for it."""
        if (lost := await self._device_trouble()) is not None:
            return lost
        state = await self.zpool.kernel_state(self.pool)
        return self.zpool.suspended(self.pool) if state == "SUSPENDED" else None

    async def devices(self) -> list[DeviceState]:
        """The state of each device; never blocks."""
        try:
            return await self._seen.probe()
        except ZvaultError:
            return []


def make_away_error(vault: str, pool: str) -> DiskAway:
    """The error for a vault whose disk is not plugged in."""
    return DiskAway(
        f"the disk of vault '{vault}' is not there",
        f"no disk of this host has a pool '{pool}' that can be imported",
        "plug it in: what is due runs then; 'zpool import' shows the pools that this host finds",
    )


async def read_pool_key(config: Vault, runner: ProcessRunner) -> bytes | None:
    """The key of a vault's pool, where that is encrypted. Raises NotFound, ToolFailed, ConfigError."""
    table = config.encryption
    if table is None:
        return None
    source = KeySource(table.key or "", table.credential or "", table.command or "")
    return parse_key(await read_key(source, runner), str(source))
