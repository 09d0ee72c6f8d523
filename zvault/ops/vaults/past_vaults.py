"""A vault as it was at a moment that its block store keeps, open beside the vault itself, which goes on.

A server reads the store as of then, and has what is written to its device in a file of its own (past_store.py). There
the pool gets another GUID and another name (new_guid.py): so this host's ZFS can import it while the vault is up. It is
imported read-only. What is there is written down before it is made, and taken away when it is closed, when zvaultd
ends, and, after a crash, when that starts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.core.errors import Busy, NotFound, Refused, ZvaultError
from zvault.core.units import format_size
from zvault.devices.nbd.past_store import make_past_device
from zvault.devices.stack import DeviceStack
from zvault.ops.context import Context
from zvault.ops.state.cached_backups import CachedBackups
from zvault.ops.state.environment import Environment
from zvault.ops.vaults.assembly import Say, read_pool_key
from zvault.ops.vaults.device_timeouts import order_timeouts
from zvault.ops.vaults.mounts import describe_other_use
from zvault.ops.vaults.past_context import OpenPast, PastContext, find_past_loss
from zvault.ops.vaults.past_moment import find_past_device, look_up_moment
from zvault.ops.vaults.past_record import PastVault, find_past_up_to, list_past_vaults, list_unreadable_leases
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.ops.vaults.vault_interface import VaultsByName
from zvault.system.systemd_units import SystemdUnits
from zvault.system.tasks import finish_work, watch_block
from zvault.zfs.pool import new_guid
from zvault.zfs.pool.encryption import load_pool_key

LEAST_ROOM = 256 << 20
"""Bytes that the overlay's folder has to have free: some metadata is written, once."""

BY_HAND = "zvaultctl vault open"


class PastVaults:
    """All vaults as they were that are open. Each is opened or closed once at a time, and waits for no other."""

    def __init__(self, context: Context, vaults: Vaults) -> None:
        self._context = context
        self._vaults = vaults
        self._leases = context.records.undo
        self._units = SystemdUnits(context.env.runner)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._naming = asyncio.Lock()
        self._users: dict[str, list[str]] = {}
        self._stopping: str | None = None

    def _lock(self, past: str) -> asyncio.Lock:
        """Who has it opens or closes that one, which may take an hour: under one lock for all, a restore out of another
        one could not leave meanwhile, nor could zvaultd end.
        """
        return self._locks.setdefault(past, asyncio.Lock())

    def stop(self, why: str) -> None:
        """Give up what is being opened, and open nothing more; what is open stays for who uses it."""
        self._stopping = why

    # Opening

    async def open(self, name: str, at: float, say: Say) -> PastVault:
        """Open a vault as it was at the last moment up to ``at`` that is kept, until it is closed, or join it.

        Raises Refused where that cannot be, NotFound where no such moment is kept.
        """
        past = await self._joined(name, at, BY_HAND, say, pin=True)
        self._drop_user(past.name, BY_HAND)
        return past

    @contextlib.asynccontextmanager
    async def use(
        self, name: str, at: float, user: str, say: Say, *, warn: Say | None = None
    ) -> AsyncIterator[PastContext]:
        """The same for a block; it is closed after its last user, unless somebody opened it until it is closed."""
        managed = self._vaults[name]
        async with managed.awake.during(f"{user} reads vault {name} as it was", say):
            past = await self._joined(name, at, user, say)
            try:
                yield self._world(managed, past)
            finally:
                await finish_work(self._leave(past, user, say, warn or say))

    @contextlib.asynccontextmanager
    async def seen(
        self, name: str, at: float | None, user: str, say: Say
    ) -> AsyncIterator[tuple[Context, VaultsByName]]:
        """Give the context and vaults to work with on a vault as it was ``at``; None: as it is."""
        if at is None:
            yield self._context, self._vaults
            return
        async with self.use(name, at, user, say) as world:
            yield world.context, world

    async def _joined(self, name: str, at: float, user: str, say: Say, *, pin: bool = False) -> PastVault:
        """One that is open, and has this user more."""
        joined: list[str] = []
        try:
            async with watch_block(partial(self._given_up, name)):
                await self._context.activity.awake.wait()
                async with self._vaults[name].awake.during(f"{user} opens vault {name} as it was", say):
                    return await self._found(name, at, user, say, joined, pin=pin)
        except BaseException:
            for past in joined:
                self._drop_user(past, user)
            raise

    async def _given_up(self, name: str) -> ZvaultError | None:
        if self._stopping is None:
            return None
        return Refused(
            f"vault '{name}' is not opened as it was", self._stopping, "again once zvaultd goes on"
        )

    async def _found(
        self, name: str, at: float, user: str, say: Say, joined: list[str], *, pin: bool
    ) -> PastVault:
        if (error := await self._given_up(name)) is not None:
            raise error
        config = self._context.env.vault(name)
        _, spec = find_past_device(config)
        past = replace(await look_up_moment(self._context.env.runner, config, spec, at), user=user)
        async with self._lock(past.name):
            used = past.name in self._users
            self._users.setdefault(past.name, []).append(user)
            joined.append(past.name)
            past = await self._opened(past, say, used=used)
            return self._note(replace(past, pinned=True)) if pin and not past.pinned else past

    def _drop_user(self, past: str, user: str) -> bool:
        """True if nobody uses it any more."""
        self._users[past].remove(user)
        if self._users[past]:
            return False
        del self._users[past]
        return True

    async def _opened(self, past: PastVault, say: Say, *, used: bool) -> PastVault:
        """Open one, or find it open. ``used``: others use it."""
        config = self._context.env.vault(past.vault)
        device, _ = find_past_device(config)
        folder = self._overlay()
        there = {one.name: one for one in list_past_vaults(self._leases)}
        if (known := there.get(past.name)) is not None:
            if await self._is_whole(known, used=used):
                say(f"vault {past.vault} as it was at {known.when} is open already: pool {known.pool}")
                return known
            await self._take_away(known, say)
        key = await read_pool_key(config, self._context.env.runner)
        past = await self._named(past)
        try:
            return await self._make(past, device, folder, key, say)
        except BaseException:
            with contextlib.suppress(ZvaultError, OSError):
                await finish_work(self._take_away(self._there(past) or past, say))
            raise

    async def _named(self, past: PastVault) -> PastVault:
        """Written down, with a pool's name that nothing else has. Raises Refused."""
        async with self._naming:
            if any(one.pool == past.pool for one in list_past_vaults(self._leases) if one.name != past.name):
                past = replace(past, pool=f"{past.pool}-{past.number}")
            await self._refuse_stranger(past)
            return self._note(past)

    async def _is_whole(self, past: PastVault, *, used: bool) -> bool:
        """True if it can be joined. Raises DeviceGone for one that cannot be read any more while others use it."""
        if not past.opened or await self._context.clients.zpool.kernel_state(past.pool) is None:
            return False
        trouble = await find_past_loss(past, await self._stack(past, []))
        if trouble is not None and used:
            raise trouble
        return trouble is None

    def _overlay(self) -> Path:
        """The folder of what is written to the devices. Raises Refused where it is full."""
        folder = self._context.env.paths.state / "overlay"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder).free) < LEAST_ROOM:
            raise Refused(
                "no vault can be opened as it was",
                f"{folder} has {format_size(free)} free: what its pool has to write goes there, and it may be"
                f" {format_size(LEAST_ROOM)}",
                "make room there",
            )
        return folder

    async def _refuse_stranger(self, past: PastVault) -> None:
        if await self._context.clients.zpool.kernel_state(past.pool) is not None:
            raise Refused(
                f"vault '{past.vault}' is not opened as it was at {past.when}",
                f"a pool named '{past.pool}' is imported, and zvault did not import it",
                f"'zpool export {past.pool}' if it may go",
            )

    async def _make(
        self, past: PastVault, device: Device, folder: Path, key: bytes | None, say: Say
    ) -> PastVault:
        runner = self._context.env.runner
        say(f"opening vault {past.vault} as it was at {past.when}")
        stack = await self._stack(past, [make_past_device(device, past.at, str(folder))])
        (found,) = await stack.up(say)
        say(f"giving its pool another GUID, and the name {past.pool}")
        guid = await new_guid.change_guid(runner, self._units, found.path, past.pool, past.name)
        past = self._note(replace(past, guid=guid))
        altroot = str(self._context.env.paths.run / past.lease)
        await new_guid.import_readonly(runner, past.pool, guid, found.path, altroot)
        if key is not None:
            await load_pool_key(runner, past.pool, key)
        say(f"imported pool {past.pool}, read-only")
        return self._note(replace(past, opened=True))

    async def _stack(self, past: PastVault, devices: list[Device]) -> DeviceStack:
        """The device, by its lease; by ``devices`` where it is to be made."""
        env, config = self._context.env, self._context.env.config.vault.get(past.vault)
        profile = self._vaults[past.vault].assembly().profile() if devices and config is not None else None
        if profile is not None:
            devices, _ = await order_timeouts(devices, profile, env.runner)
        queue = profile.queue if profile is not None else QueueSettings()
        return DeviceStack(past.name, devices, queue, env.runner, env.paths, self._leases)

    def _note(self, past: PastVault) -> PastVault:
        self._leases.put(past.lease, past.as_lease())
        return past

    def _world(self, managed: ManagedVault, past: PastVault) -> PastContext:
        context, config = self._context, self._context.env.vault(past.vault)
        env = context.env
        as_it_was = config.model_copy(update={"pool": past.pool, "device": []})
        tables = env.config.model_copy(update={"vault": {**env.config.vault, past.vault: as_it_was}})
        then = Environment(tables, env.paths, env.runner, env.host, env.clock)
        zfs = context.clients.past_zfs(past.name, past.pool if config.encryption is not None else "")
        stack = DeviceStack(past.name, [], QueueSettings(), env.runner, env.paths, self._leases)
        opened = OpenPast(
            name=past.vault,
            pool=past.pool,
            guid=past.guid,
            zfs=zfs,
            profile=managed.assembly().profile(),
            managed=managed,
            readonly=True,
            stack=stack,
            past=past,
        )
        known = CachedBackups()
        return PastContext(Context(then, context.records, context.clients, context.activity, known), opened)

    # Closing

    async def close(self, name: str, at: float | None, say: Say) -> list[PastVault]:
        """Close what is open of a vault: the last moment up to ``at``, or all. Raises NotFound, and Busy while used."""
        found = list_past_vaults(self._leases, name)
        if at is not None:
            last = find_past_up_to(found, at)
            found = [] if last is None else [last]
        if not found:
            raise NotFound(
                f"vault '{name}' is not open as it was" + ("" if at is None else " then"),
                "nothing of it is open",
                "'zvaultctl vault status' shows what is",
            )
        for past in found:
            self._refuse_used(past)
        for past in found:
            async with self._lock(past.name):
                self._refuse_used(past)
                await finish_work(self._take_away(past, say))
        return found

    def _refuse_used(self, past: PastVault) -> None:
        if users := self._users.get(past.name):
            raise Busy(
                f"vault '{past.vault}' as it was at {past.when} is in use",
                f"by {', '.join(users)}",
                "wait for it to end",
            )

    async def _leave(self, past: PastVault, user: str, say: Say, warn: Say) -> None:
        """Not to be waited for long: where somebody opens or closes it just now, ``sweep`` sees to what is left."""
        if not self._drop_user(past.name, user) or self._lock(past.name).locked():
            return
        async with self._lock(past.name):
            now = self._there(past)
            if now is None or now.pinned:
                return
            try:
                await self._take_away(now, say)
            except (ZvaultError, OSError) as error:
                warn(f"vault {past.vault} as it was at {past.when} could not be closed: {error}")

    def _there(self, past: PastVault) -> PastVault | None:
        """What is written down of one now."""
        return next(
            (one for one in list_past_vaults(self._leases, past.vault) if one.name == past.name), None
        )

    async def sweep(self, say: Say, *, all_of_it: bool = True) -> list[str]:
        """Close what an earlier zvaultd left, or could not be closed; what is left, in words.

        What is used stays. Without ``all_of_it`` what is pinned does, too, and what somebody opens or closes just now
        is not waited for.
        """
        left = list_unreadable_leases(self._leases)
        for past in list_past_vaults(self._leases):
            if not all_of_it and (past.name in self._users or self._lock(past.name).locked()):
                continue
            async with self._lock(past.name):
                now = self._there(past)
                if now is None or past.name in self._users or (now.opened and now.pinned and not all_of_it):
                    continue
                try:
                    await finish_work(self._take_away(now, say))
                except (ZvaultError, OSError) as error:
                    left.append(f"vault {past.vault} as it was at {past.when} is left open: {error}")
        return left

    async def _take_away(self, past: PastVault, say: Say) -> None:
        """Take away whatever there is of it; the lease goes last. Raises what is in the way."""
        lease = self._leases.get(past.lease)
        if lease is not None and not lease["stale"]:
            await new_guid.end_guid_change(self._units, past.name)
            await self._export(past, say)
        await (await self._stack(past, [])).down(say)
        self._leases.drop(past.lease)
        with contextlib.suppress(OSError):
            os.rmdir(self._context.env.paths.run / past.lease)  # noqa: PTH106 - ZFS may have made it

    async def _export(self, past: PastVault, say: Say) -> None:
        zpool = self._context.clients.zpool
        if await zpool.kernel_state(past.pool) is None:
            return
        state = await zpool.state(past.pool)
        # Before it has a GUID of its own, none of that name is the one that zvault imported.
        if past.guid == 0 or (state is not None and state.guid != past.guid):
            say(f"the pool '{past.pool}' that is imported is not what zvault imported: leaving it alone")
            return
        await self._context.clients.forget_past(past.name)
        try:
            await zpool.export(past.pool)
        except Busy as busy:
            used = describe_other_use(past.pool, str(self._context.env.paths.run))
            raise Busy(busy.what, f"{busy.why}; {used}" if used else busy.why, busy.next) from None
        say(f"exported pool {past.pool}")
