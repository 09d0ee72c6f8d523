"""One vault's devices and the pool on them, put together and taken apart; also when a device died below its pool.

A pool whose device is lost suspends its I/O and cannot be exported. What works (seen with OpenZFS 2.3 on NBD):
disconnect the device, so that what waits for it fails at once; ``zpool clear`` until ZFS closes the dead device;
connect a new server under the same number; ``zpool clear`` again, and ZFS repeats every write that failed. Only
then can it be exported. A clear before the pool is suspended waits for a sync that never ends, though the next one
works; a clear before the disconnect never ends at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from zvault.config.load import load_profile
from zvault.config.profile import Profile
from zvault.config.schema import Vault
from zvault.core.errors import (
    Busy,
    DeadlineExceeded,
    DeviceGone,
    NotFound,
    PoolSuspended,
    Refused,
    ToolFailed,
    ZvaultError,
)
from zvault.devices.stack import BlockDevice, DeviceState, Stack
from zvault.ops.context import Context
from zvault.ops.creation import new_pool, not_to_be_made, refuse_unless_blank
from zvault.ops.watch import to_its_end
from zvault.zfs.zpool import PoolState, Zpool, suspended

Say = Callable[[str], None]

TEARDOWN_DEADLINE = 180.0
"""Seconds an export may take before zvault stops waiting and says what is left."""

CLEAR_TRY = 3.0
"""Seconds for a ``zpool clear`` that shall make ZFS close dead devices: it is quick, or the next one is."""

LET_GO_DEADLINE = 30.0
"""Seconds for all of these tries."""

EXPORT_PATIENCE = 15.0
"""Seconds to try again while a pool is busy: a stream that was put down may still be on its way out."""


@dataclass
class Assembly:
    """One vault's devices and pool. ``known`` are the paths its pool was last seen on by zvault, in this boot.

    ``new``: its pool is to be made, and one that is there already is refused.
    """

    context: Context
    name: str
    config: Vault
    known: Collection[str] = ()
    new: bool = False

    @property
    def pool(self) -> str:
        """The pool's name."""
        return self.config.pool

    @property
    def zpool(self) -> Zpool:
        """The pools of the host it is on."""
        return self.context.zpool_of(self.name)

    def profile(self) -> Profile:
        """The vault's profile. Raises ConfigError."""
        return load_profile(self.context.paths, self.config.profile)

    def stack(self) -> Stack:
        """The vault's devices."""
        context = self.context
        queue = self.profile().queue
        return Stack(
            self.name,
            self.config.device,
            queue,
            context.runner,
            context.paths,
            context.leases,
            create=self.config.create or self.new,
        )

    async def up(self, say: Say) -> tuple[PoolState, list[str]]:
        """Bring it up, or join what is up; returns the pool and the paths it lies on.

        On a failure, what this call brought up is taken down again unless a pool lies on it.
        """
        profile, stack = self.profile(), self.stack()
        before = await self.zpool.state(self.pool)
        if before is not None:
            await self._refuse_stranger(stack)
            await self._revive(stack, before, say)
        devices = await stack.up(say)
        try:
            return await self._open_pool(stack, devices, profile, say), [device.path for device in devices]
        except BaseException:
            await to_its_end(self._undo(stack, say))
            raise

    async def _undo(self, stack: Stack, say: Say) -> None:
        with contextlib.suppress(ZvaultError):
            if await self.zpool.state(self.pool) is None:
                await stack.down(say)

    async def down(self, say: Say) -> None:
        """Export the pool and take the devices down; nothing need be up. Raises what is in the way, in words."""
        if not self.config.device:
            return
        stack, zpool = self.stack(), self.zpool
        state = await zpool.state(self.pool)
        if state is not None and await self._is_stranger(stack):
            say(f"the pool '{self.pool}' that is imported is not this vault's: leaving it alone")
        elif state is not None:
            await self._revive(stack, state, say)
            await self._export()
            say(f"exported pool {self.pool}")
        await stack.down(say)

    async def _export(self) -> None:
        give_up = time.monotonic() + EXPORT_PATIENCE
        while True:
            try:
                return await self.zpool.export(self.pool, TEARDOWN_DEADLINE)
            except Busy:
                if time.monotonic() >= give_up:
                    raise
                await asyncio.sleep(1)

    # A pool that is imported already

    async def _is_stranger(self, stack: Stack) -> bool:
        """Whether the imported pool of our name lies elsewhere than on this vault's devices."""
        if not self.config.device:
            return False
        ours = {device.path for device in await stack.probe()} | set(self.known)
        return not ours & set(await self.zpool.devices(self.pool))

    async def _refuse_stranger(self, stack: Stack) -> None:
        if not await self._is_stranger(stack):
            return
        below = await self.zpool.devices(self.pool)
        raise Refused(
            f"a pool named '{self.pool}' is imported from other devices than vault '{self.name}' has",
            f"it lies on {', '.join(below) or 'unknown devices'}, the vault on"
            f" {', '.join(device.spec for device in self.config.device)}",
            f"'zpool export {self.pool}' if it may go, or name another pool in zvault.toml",
        )

    async def _revive(self, stack: Stack, state: PoolState, say: Say) -> None:
        """Give an imported pool its devices back if they are lost, and let it go on if it is suspended."""
        lost = [device for device in await stack.probe() if is_lost(device)]
        if not lost and state.health != "SUSPENDED":
            return
        zpool = self.zpool
        if lost:
            say(f"pool {self.pool} lost {', '.join(device.spec for device in lost)}: connecting it again")
            try:
                await self._let_go(stack, say)
                await self._reconnect(stack, say)
            except ZvaultError as error:
                told = type(error)(error.what, error.why, self._by_hand(error.next))
                told.retryable = error.retryable
                raise told from error
        try:
            await zpool.clear(self.pool)
        except ToolFailed as error:
            raise PoolSuspended(
                f"the pool '{self.pool}' stays suspended", error.why, self._by_hand("see 'zpool status'")
            ) from error
        state_now = await zpool.state(self.pool)
        if state_now is not None and state_now.health == "SUSPENDED":
            raise suspended(self.pool)
        say(f"pool {self.pool} goes on; 'zpool scrub {self.pool}' shows whether its storage kept everything")

    async def _let_go(self, stack: Stack, say: Say) -> None:
        """Cut lost devices off and have ZFS close them, so that their numbers are free again."""
        await stack.cut_off(say)
        give_up = time.monotonic() + LET_GO_DEADLINE
        while True:
            with contextlib.suppress(ToolFailed, DeadlineExceeded):
                await self.zpool.clear(self.pool, CLEAR_TRY)
            held = [device.path for device in await stack.probe() if device.state == "gone" and device.path]
            if not held:
                return
            if time.monotonic() >= give_up:
                raise DeviceGone(
                    f"ZFS does not let go of {', '.join(held)}, whose server is gone",
                    f"pool {self.pool} was told to with 'zpool clear' for {LET_GO_DEADLINE:g} s",
                    f"see 'zpool status {self.pool}' and the kernel's log",
                )
            await asyncio.sleep(0.5)

    async def _reconnect(self, stack: Stack, say: Say) -> None:
        """Bring the devices up where the pool looks for them: a suspended pool cannot be told of other paths."""
        found = {device.path for device in await stack.up(say)}
        if missing := sorted(set(await self.zpool.devices(self.pool)) - found):
            await stack.down(say)
            raise Busy(
                f"pool {self.pool} needs {', '.join(missing)}, and somebody else has it now",
                f"its devices came back as {', '.join(sorted(found))}",
                f"see who with 'grep . /sys/block/nbd*/pid', and free {', '.join(missing)}",
            )

    def _by_hand(self, first: str) -> str:
        return (
            f"{first}; then 'zvaultctl vault up {self.name}'. Until its device is back the pool stays suspended"
            " and holds up nothing else; if it is lost for good, only a reboot gets rid of the pool"
        )

    # A pool that is not

    async def _open_pool(
        self, stack: Stack, devices: Sequence[BlockDevice], profile: Profile, say: Say
    ) -> PoolState:
        zpool = self.zpool
        if await zpool.state(self.pool) is None:
            if self.config.host is not None:
                raise NotFound(
                    f"the pool '{self.pool}' of vault '{self.name}' is not imported on {self.config.host}",
                    "zvault brings up no pool on another host",
                    f"there: 'zpool import {self.pool}'",
                )
            if not self.new and await zpool.import_(self.pool, [device.path for device in devices]):
                say(f"imported pool {self.pool}")
            else:
                await self._create_pool(stack, devices, profile, say)
        state = await zpool.state(self.pool)
        if state is None:
            raise DeviceGone(
                f"the pool '{self.pool}' is not there after its import", "", "look at 'zpool import'"
            )
        if state.health == "SUSPENDED":
            raise suspended(self.pool)
        return state

    async def _create_pool(
        self, stack: Stack, devices: Sequence[BlockDevice], profile: Profile, say: Say
    ) -> None:
        if not devices:
            raise NotFound(
                f"there is no pool '{self.pool}' to import for vault '{self.name}'",
                "the vault has no device in zvault.toml, so the pool must exist already",
                "'zpool import' shows pools that can be imported",
            )
        await refuse_unless_blank(stack, devices, self.pool)
        if not (self.config.create or self.new):
            raise not_to_be_made(self.name, self.pool)
        say(f"creating pool {self.pool} on {', '.join(device.spec for device in devices)}")
        await self.zpool.create(new_pool(self.config, profile, [device.path for device in devices]))

    # Watching

    async def imported(self) -> PoolState | None:
        """The vault's pool, if it is imported; one of its name that lies elsewhere does not count."""
        state = await self.zpool.state(self.pool)
        return None if state is None or await self._is_stranger(self.stack()) else state

    async def anything_up(self) -> bool:
        """Whether a device of the vault is there, or the pool is imported from where they were."""
        if any(device.state != "down" for device in await self.stack().probe()):
            return True
        return await self.imported() is not None

    async def trouble(self) -> ZvaultError | None:
        """Why the vault cannot be used at this moment, or None; quick, also when its pool hangs."""
        for device in await self.devices():
            if is_lost(device):
                return DeviceGone(
                    f"vault '{self.name}' lost its device {device.spec}",
                    device.detail or f"it is {device.state}",
                    "zvault connects it again for the next run, which takes up where this one stopped; if that"
                    " fails, see 'zvaultctl vault status'",
                )
        state = await self.zpool.state(self.pool)
        if state is None:
            return DeviceGone(
                f"the pool '{self.pool}' of vault '{self.name}' is not imported any more",
                "somebody exported it",
                "run again: zvault imports it"
                if self.config.host is None
                else f"import it on {self.config.host}",
            )
        return suspended(self.pool) if state.health == "SUSPENDED" else None

    async def devices(self) -> list[DeviceState]:
        """The state of each device; never blocks."""
        try:
            return await self.stack().probe()
        except ZvaultError:
            return []


def is_lost(device: DeviceState) -> bool:
    """Whether requests to a device cannot be answered. One that is partly connected still answers."""
    return device.state in {"gone", "down"} or device.path is None
