"""A pool whose devices are lost, or that has suspended its I/O: given its devices back, and resumed.

A pool whose device is lost suspends its I/O and cannot be exported. What works (seen with OpenZFS 2.3 on NBD):
disconnect the device, so that what waits for it fails at once; have ZFS close the dead device; connect a new server
under the same number; ``zpool clear``, and ZFS repeats every write that failed. Only then can it be exported.

What has ZFS close it is ``zpool reopen`` until the pool is suspended, and ``zpool clear`` from then on. Both open the
device anew, find that it fails, and close it. With two things a clear hangs for ever, and then the device stays open:
whoever closes a file lets go of it only on its way back to user space (fput in the kernel's fs/file_table.c). The
kernel's nbd then has a device that no process has open, and takes no server for it. So neither is done here:

- a clear of a pool that is not suspended yet waits for a transaction group (spa_vdev_state_exit in spa_misc.c);
- a clear of one whose txg_sync turns round and round, which it does in a suspended pool once it is time for the next
  transaction group or somebody waits for one (txg_sync_thread in txg.c). It holds tx_sync_lock then, which zio_suspend
  wants as the repeated I/O fails. It stops if the time is put off (``pause_txgs``) and nobody waits. Each clear itself
  leaves somebody who waits, for the pool's history. So there is one for each loss, and none where the device is closed
  already. Once the device answers a clear ends that too.

Before the disconnect a clear never ends at all.

A pool with ``multihost=on`` is never cleared once it is suspended: that hangs ZFS on the whole host
(zfs/pool/pool.py: MultihostSuspended).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from zvault.core.errors import (
    Busy,
    DeadlineExceeded,
    DeviceGone,
    PoolSuspended,
    TakenOver,
    ToolFailed,
    ZvaultError,
)
from zvault.core.policy.automatic_repairs import (
    ANSWERS,
    AS_NEW,
    CLEAR_POOL,
    CLOSE_DEVICE,
    CUT_OFF,
    MULTIHOST_OFF,
    OWN,
    TAKES_WRITES,
)
from zvault.devices.device_state import DeviceState
from zvault.devices.response_check import check_response
from zvault.devices.stack import DeviceStack, SayProgress
from zvault.system.device_users import find_device_users, name_users
from zvault.system.process.runner import ProcessRunner
from zvault.system.tasks import Look, watch_block
from zvault.zfs.pool.hostid import refuse_if_had_since
from zvault.zfs.pool.label import refuse_if_devices_went_back
from zvault.zfs.pool.pool import PoolState, Zpool, never_resumes

EXPORT_SYNC_DEADLINE = 3600.0
"""Seconds to write out what is dirty before an export: with 4 GiB at 1 MiB/s it would be that long."""

CLOSE_TRY = 3.0
"""Seconds for a command that shall make ZFS close dead devices. A clear closes them, and may go on to wait."""

LET_GO_DEADLINE = 30.0
"""Seconds until they are closed."""

LET_GO_PAUSE = 0.5
"""Seconds between two looks at whether they are."""

PauseTxgs = Callable[[], AbstractAsyncContextManager[None]]
"""Has OpenZFS begin no transaction group because it is time for one: ops/tuning/set_parameters.py."""

MULTIHOST_SETTLES = 15.0
"""Seconds within which a pool with ``multihost=on`` is suspended that has lost what it needs: OpenZFS waits for ten
without a write (zfs_multihost_fail_intervals times zfs_multihost_interval, 10 times 1 s)."""

LOSS_NOTICE_TIME = 20.0
"""Seconds for a server to see that its connection is gone, or for a device to answer after all."""


@dataclass
class SuspendedPoolClear:
    """The parts of one vault that a revival needs.

    ``trouble`` tells whether its storage is lost, without waiting for it. ``doubt`` is called where the storage that is
    back may have lost what it had confirmed.
    """

    vault: str
    pool: str
    zpool: Zpool
    stack: DeviceStack
    runner: ProcessRunner
    trouble: Look
    doubt: Callable[[], None]
    pause_txgs: PauseTxgs

    async def revive(self, state: PoolState, say: SayProgress) -> None:
        """Give an imported pool its devices back if they are lost, and resume it if it is suspended."""
        devices = await self.stack.probe()
        lost = [device for device in devices if is_lost(device)]
        if not lost and not state.stuck:
            return
        zpool = self.zpool

        async def connect_lost() -> None:
            lost.extend([] if lost else await self._lost_after_all([one.path for one in devices if one.path]))
            if lost:
                await self._connect_again(lost, say)

        async def refuse_blocked() -> None:
            # As of a Ceph pool that is full: reads are answered, and each write is lost after the timeout again.
            cause = None if lost else await self.stack.find_cause()
            if cause is not None:
                raise cause if isinstance(cause, TakenOver) else self._pointed(cause)

        await CLEAR_POOL.require_known(
            {
                MULTIHOST_OFF: partial(refuse_multihost, self.pool, state, zpool, self.stack, say),
                ANSWERS: connect_lost,
                TAKES_WRITES: refuse_blocked,
                OWN: self._refuse_if_had_since,
                AS_NEW: self._refuse_if_devices_went_back,
            }
        )
        if lost:
            await self._end_trim(say)
        try:
            await zpool.clear(self.pool)
            async with watch_block(self.trouble):
                await zpool.sync(self.pool, EXPORT_SYNC_DEADLINE)
        except (ToolFailed, PoolSuspended) as error:
            raise PoolSuspended(
                f"the pool '{self.pool}' stays suspended",
                f"its storage answers but takes no writes ({error.why or error.what})",
                self._by_hand("see whether it is full or read-only, and the kernel's log"),
            ) from error
        if any(may_forget_writes(device) for device in lost):
            self.doubt()
        say(f"pool {self.pool} goes on; 'zpool scrub {self.pool}' shows whether its storage kept everything")

    async def _connect_again(self, lost: Sequence[DeviceState], say: SayProgress) -> None:
        """Give the pool its devices back where it looks for them."""

        async def checked_before() -> None:
            """Nothing: ``revive`` has just waited for it."""

        say(f"pool {self.pool} lost {', '.join(device.spec for device in lost)}: connecting it again")
        try:
            await close_lost(self.pool, self.zpool, self.stack, say, checked_before, self.pause_txgs)
            await self._reconnect(say)
        except ZvaultError as error:
            raise self._pointed(error) from error

    async def _refuse_if_had_since(self) -> None:
        await refuse_if_had_since(self.pool, await self.zpool.devices(self.pool), self.zpool.runner)

    async def _refuse_if_devices_went_back(self) -> None:
        txgs = await self.zpool.read_txgs(self.pool)
        if txgs is not None:
            devices = await self.zpool.devices(self.pool)
            await refuse_if_devices_went_back(self.pool, devices, txgs.committed, self.zpool.runner)

    async def _end_trim(self, say: SayProgress) -> None:
        """Have a trim that was under way as the device was lost come to its end without the device.

        Most likely one of its discards took longer than the device's timeout. ZFS goes on with it as soon as the pool
        does, and loses the device again, for ever. ``zpool trim -s`` would wait for the discards in flight with the
        lock that ``zpool clear`` needs (spa_vdev_trim): if they cost the device again, nothing ends that. Where the
        kernel refuses discards the trim has gone through the rest within moments.
        """
        if not await self.zpool.is_trimming(self.pool):
            return
        await self.stack.end_discards(say)
        say(
            f"pool {self.pool} was trimmed as its device was lost. Discards are off until the vault goes down, so that"
            " the trim ends: the device's 'timeout' has to be longer than its slowest discard, or discards shorter"
            " ('discard_max_bytes' in the profile)"
        )

    async def _lost_after_all(self, paths: Sequence[str]) -> list[DeviceState]:
        """Devices of a stuck pool that turn out to be lost when they are read from; none where all answer.

        A ``zpool clear`` waits for devices that do not answer, so they are asked before. A connection that the kernel
        has given up fails each read at once, but counts as live as long as its server is at work on a request: a
        server whose storage was away may be for seconds more. Raises DeviceGone where neither is so after NOTICED.
        """
        give_up = time.monotonic() + LOSS_NOTICE_TIME
        while True:
            try:
                for path in paths:
                    await check_response(path, self.runner)
            except DeviceGone as error:
                if time.monotonic() >= give_up:
                    raise await self._caused(error) from error
            else:
                return []
            await asyncio.sleep(0.5)
            if lost := [device for device in await self.stack.probe() if is_lost(device)]:
                return lost

    async def _caused(self, error: DeviceGone) -> ZvaultError:
        """The error for devices that do not answer: with the cause, where their storage knows one."""
        cause = await self.stack.find_cause()
        if isinstance(cause, TakenOver):
            return cause
        if cause is None:
            return self._pointed(error)
        told = type(cause)(cause.what, cause.why, f"{cause.next}; then zvault goes on by itself")
        told.retryable = cause.retryable
        return told

    def _pointed(self, error: ZvaultError) -> ZvaultError:
        """An error in giving the pool its devices back, with what can be done about the pool."""
        told = type(error)(error.what, error.why, self._by_hand(error.next))
        told.retryable = error.retryable
        return told

    async def _reconnect(self, say: SayProgress) -> None:
        """Bring the devices up where the pool looks for them: a suspended pool cannot be told of other paths."""
        self.stack.resume = True
        found = {device.path for device in await self.stack.up(say)}
        if missing := sorted(set(await self.zpool.devices(self.pool)) - found):
            await self.stack.down(say)
            raise Busy(
                f"pool {self.pool} needs {', '.join(missing)}, and somebody else has it now",
                f"its devices came back as {', '.join(sorted(found))}",
                f"see who with 'grep . /sys/block/nbd*/pid', and free {', '.join(missing)}",
            )

    def _by_hand(self, first: str) -> str:
        return (
            f"{first}; then zvault goes on by itself, or at once with 'zvaultctl vault up {self.vault}'. Until its"
            " device is back the pool stays suspended and holds up nothing else; if it is lost for good, only a reboot"
            " gets rid of the pool"
        )


async def refuse_multihost(
    pool: str, state: PoolState, zpool: Zpool, stack: DeviceStack, say: SayProgress
) -> None:
    """Raise MultihostSuspended where a pool with ``multihost=on`` is suspended, or is about to be.

    One that goes on without the lost device, as a mirror does, is not suspended within MULTIHOST_SETTLES.
    """
    if not state.multihost:
        return
    if state.stuck:
        raise never_resumes(pool)
    await stack.cut_off(say)  # what waits for the device fails now, or the pool would wait for its timeout
    give_up = time.monotonic() + MULTIHOST_SETTLES
    while time.monotonic() < give_up:
        if await zpool.kernel_state(pool) == "SUSPENDED":
            raise never_resumes(pool)
        await asyncio.sleep(0.5)


async def close_lost(
    pool: str,
    zpool: Zpool,
    stack: DeviceStack,
    say: SayProgress,
    refuse: Callable[[], Awaitable[None]],
    pause_txgs: PauseTxgs,
) -> None:
    """Cut lost devices off and have ZFS close them, so that their numbers are free again.

    ``refuse``: raises MultihostSuspended where the pool must not be cleared.
    """
    await CLOSE_DEVICE.require_known({MULTIHOST_OFF: refuse, CUT_OFF: partial(stack.cut_off, say)})
    give_up = time.monotonic() + LET_GO_DEADLINE
    async with AsyncExitStack() as paused:
        cleared = False
        while held := [one.path for one in await stack.probe() if one.state == "gone" and one.path]:
            if time.monotonic() >= give_up:
                raise await _not_released(pool, held, stack.runner)
            with contextlib.suppress(ToolFailed, DeadlineExceeded):
                if await zpool.kernel_state(pool) != "SUSPENDED":
                    await zpool.reopen(pool, CLOSE_TRY)
                elif not cleared:
                    cleared = True
                    await paused.enter_async_context(pause_txgs())
                    await zpool.clear(pool, CLOSE_TRY)
            await asyncio.sleep(LET_GO_PAUSE)


async def _not_released(pool: str, held: Sequence[str], runner: ProcessRunner) -> DeviceGone:
    """The error for lost devices whose numbers the kernel keeps: ZFS has them open still, or somebody else has."""
    users = [user for path in held for user in await find_device_users(Path(path).name, runner)]
    if users:
        return DeviceGone(
            f"the kernel keeps {', '.join(held)}, whose server is gone, and pool {pool} goes on under that number only",
            f"it is open: {name_users(users)}",
            "end what has it open; no reboot is needed",
        )
    return DeviceGone(
        f"ZFS does not release {', '.join(held)}, whose server is gone",
        f"pool {pool} was told to with 'zpool clear' for {LET_GO_DEADLINE:g} s",
        f"see 'zpool status {pool}' and the kernel's log",
    )


def is_lost(device: DeviceState) -> bool:
    """True if requests to a device cannot be answered. One that is partly connected still answers."""
    return device.state in {"gone", "down"} or device.path is None


def may_forget_writes(device: DeviceState) -> bool:
    """True for a server that is somebody else's: when its host loses power, what was not flushed is gone.

    ZFS repeats only the writes that had no answer. A server of zvault's own that dies leaves its writes in this host's
    memory or in its store's journal, and Ceph confirms only what its disks have.
    """
    return device.spec.startswith(("tcp:", "unix:"))
