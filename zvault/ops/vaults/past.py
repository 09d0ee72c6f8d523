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
from dataclasses import dataclass, replace
from pathlib import Path

from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ZvaultError
from zvault.core.units import format_size
from zvault.devices.nbd.past_store import past_device
from zvault.devices.stack import Stack
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment
from zvault.ops.state.known_backups import KnownBackups
from zvault.ops.vaults.assembly import Say, pool_key
from zvault.ops.vaults.device_timeouts import in_order
from zvault.ops.vaults.mounts import others_use
from zvault.ops.vaults.past_moment import fit, look_up
from zvault.ops.vaults.past_record import Past, pasts, unreadable, up_to
from zvault.ops.vaults.usable import UsableVault, VaultsByName
from zvault.ops.vaults.vault import ManagedVault, OpenVault, Vaults
from zvault.system.systemd_units import Units
from zvault.system.tasks import to_its_end, watched
from zvault.zfs.pool import new_guid
from zvault.zfs.pool.encryption import load_pool_key

LEAST_ROOM = 256 << 20
"""Bytes that the overlay's folder has to have free: some metadata is written, once."""

BY_HAND = "zvaultctl vault open"


@dataclass(kw_only=True)
class OpenPast(OpenVault):
    """A vault as it was; ``stack`` has its device."""

    stack: Stack
    past: Past

    async def trouble(self) -> ZvaultError | None:
        """Whether its server or its device is lost."""
        return await lost(self.past, self.stack)


async def lost(past: Past, stack: Stack) -> ZvaultError | None:
    """Why a vault as it was cannot be read any more, or None. What its device had for itself goes with its server."""
    for device in await stack.probe():
        if device.state not in ("up", "partial"):
            return DeviceGone(
                f"vault '{past.vault}' as it was at {past.when} cannot be read any more",
                f"{device.name} is {device.state}: {device.detail}",
                f"'zvaultctl vault close {past.vault}', and open it again",
            )
    return None


@dataclass(frozen=True)
class PastWorld:
    """What a use case is given to work on a vault as it was, in the place of its context and the vaults."""

    context: Context
    vault: OpenPast

    def __getitem__(self, name: str) -> UsableVault:
        return self

    @contextlib.asynccontextmanager
    async def use(
        self, user: str, say: Say, *, warn: Say | None = None, writes: bool = True, create: bool = False
    ) -> AsyncIterator[OpenVault]:
        """See ManagedVault: it is up for as long as this is there."""
        async with watched(self.vault.trouble):
            yield self.vault


class PastVaults:
    """All vaults as they were that are open. One is opened or closed at a time."""

    def __init__(self, context: Context, vaults: Vaults) -> None:
        self._context = context
        self._vaults = vaults
        self._leases = context.records.leases
        self._units = Units(context.env.runner)
        self._lock = asyncio.Lock()
        self._users: dict[str, list[str]] = {}

    # Opening

    async def open(self, name: str, at: float, say: Say) -> Past:
        """Open a vault as it was at the last moment up to ``at`` that is kept, until it is closed, or join it.

        Raises Refused where that cannot be, NotFound where no such moment is kept.
        """
        async with self._lock:
            past = await self._opened(name, at, BY_HAND, say)
            if not past.pinned:
                past = self._note(replace(past, pinned=True))
            return past

    @contextlib.asynccontextmanager
    async def use(
        self, name: str, at: float, user: str, say: Say, *, warn: Say | None = None
    ) -> AsyncIterator[PastWorld]:
        """The same for a block; it is closed after its last user, unless somebody opened it until it is closed."""
        managed = self._vaults[name]
        async with managed.awake.during(f"{user} reads vault {name} as it was", say):
            async with self._lock:
                past = await self._opened(name, at, user, say)
                self._users.setdefault(past.name, []).append(user)
            try:
                yield self._world(managed, past)
            finally:
                await to_its_end(self._leave(past, user, say, warn or say))

    @contextlib.asynccontextmanager
    async def seen(
        self, name: str, at: float | None, user: str, say: Say
    ) -> AsyncIterator[tuple[Context, VaultsByName]]:
        """What to work with on a vault as it was ``at``; None: as it is."""
        if at is None:
            yield self._context, self._vaults
            return
        async with self.use(name, at, user, say) as world:
            yield world.context, world

    async def _opened(self, name: str, at: float, user: str, say: Say) -> Past:
        await self._context.activity.awake.wait()
        config = self._context.env.vault(name)
        device, spec = fit(config)
        folder = self._overlay()
        async with self._vaults[name].awake.during(f"{user} opens vault {name} as it was", say):
            past = replace(await look_up(self._context.env.runner, config, spec, at), user=user)
            there = {one.name: one for one in pasts(self._leases)}
            if (known := there.get(past.name)) is not None:
                if await self._is_whole(known):
                    say(f"vault {name} as it was at {known.when} is open already: pool {known.pool}")
                    return known
                await self._take_away(known, say)
            if any(one.pool == past.pool for one in there.values() if one.name != past.name):
                past = replace(past, pool=f"{past.pool}-{past.number}")
            await self._refuse_stranger(past)
            key = await pool_key(config, self._context.env.runner)
            self._note(past)
            try:
                return await self._make(past, device, folder, key, say)
            except BaseException:
                with contextlib.suppress(ZvaultError, OSError):
                    await to_its_end(self._take_away(past, say))
                raise

    async def _is_whole(self, past: Past) -> bool:
        """Whether it can be joined. Raises DeviceGone for one that cannot be read any more while others use it."""
        if not past.opened or await self._context.clients.zpool.kernel_state(past.pool) is None:
            return False
        trouble = await lost(past, await self._stack(past, []))
        if trouble is not None and past.name in self._users:
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

    async def _refuse_stranger(self, past: Past) -> None:
        if await self._context.clients.zpool.kernel_state(past.pool) is not None:
            raise Refused(
                f"vault '{past.vault}' is not opened as it was at {past.when}",
                f"a pool named '{past.pool}' is imported, and zvault did not import it",
                f"'zpool export {past.pool}' if it may go",
            )

    async def _make(self, past: Past, device: Device, folder: Path, key: bytes | None, say: Say) -> Past:
        runner = self._context.env.runner
        say(f"opening vault {past.vault} as it was at {past.when}")
        stack = await self._stack(past, [past_device(device, past.at, str(folder))])
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

    async def _stack(self, past: Past, devices: list[Device]) -> Stack:
        """The device, by its lease; by ``devices`` where it is to be made."""
        env, config = self._context.env, self._context.env.config.vault.get(past.vault)
        profile = self._vaults[past.vault].assembly().profile() if devices and config is not None else None
        if profile is not None:
            devices, _ = await in_order(devices, profile, env.runner)
        queue = profile.queue if profile is not None else QueueSettings()
        return Stack(past.name, devices, queue, env.runner, env.paths, self._leases)

    def _note(self, past: Past) -> Past:
        self._leases.put(past.lease, past.as_lease())
        return past

    def _world(self, managed: ManagedVault, past: Past) -> PastWorld:
        context, config = self._context, self._context.env.vault(past.vault)
        env = context.env
        as_it_was = config.model_copy(update={"pool": past.pool, "device": []})
        tables = env.config.model_copy(update={"vault": {**env.config.vault, past.vault: as_it_was}})
        then = Environment(tables, env.paths, env.runner, env.host, env.clock)
        zfs = context.clients.past_zfs(past.name, past.pool if config.encryption is not None else "")
        stack = Stack(past.name, [], QueueSettings(), env.runner, env.paths, self._leases)
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
        known = KnownBackups()
        return PastWorld(Context(then, context.records, context.clients, context.activity, known), opened)

    # Closing

    async def close(self, name: str, at: float | None, say: Say) -> list[Past]:
        """Close what is open of a vault: the last moment up to ``at``, or all. Raises NotFound, and Busy while used."""
        async with self._lock:
            found = pasts(self._leases, name)
            if at is not None:
                last = up_to(found, at)
                found = [] if last is None else [last]
            if not found:
                raise NotFound(
                    f"vault '{name}' is not open as it was" + ("" if at is None else " then"),
                    "nothing of it is open",
                    "'zvaultctl vault status' shows what is",
                )
            for past in found:
                if users := self._users.get(past.name):
                    raise Busy(
                        f"vault '{name}' as it was at {past.when} is in use",
                        f"by {', '.join(users)}",
                        "wait for it to end",
                    )
            for past in found:
                await to_its_end(self._take_away(past, say))
            return found

    async def _leave(self, past: Past, user: str, say: Say, warn: Say) -> None:
        async with self._lock:
            self._users[past.name].remove(user)
            if self._users[past.name]:
                return
            del self._users[past.name]
            now = {one.name: one for one in pasts(self._leases)}.get(past.name)
            if now is None or now.pinned:
                return
            try:
                await self._take_away(now, say)
            except (ZvaultError, OSError) as error:
                warn(f"vault {past.vault} as it was at {past.when} could not be closed: {error}")

    async def sweep(self, say: Say, *, all_of_it: bool = True) -> list[str]:
        """Close what an earlier zvaultd left, or could not be closed; what is left, in words.

        Without ``all_of_it`` what is open, pinned or used stays.
        """
        left = unreadable(self._leases)
        async with self._lock:
            for past in pasts(self._leases):
                if past.name in self._users or (past.opened and past.pinned and not all_of_it):
                    continue
                try:
                    await to_its_end(self._take_away(past, say))
                except (ZvaultError, OSError) as error:
                    left.append(f"vault {past.vault} as it was at {past.when} is left open: {error}")
        return left

    async def _take_away(self, past: Past, say: Say) -> None:
        """Take away whatever there is of it; the lease goes last. Raises what is in the way."""
        lease = self._leases.get(past.lease)
        if lease is not None and not lease["stale"]:
            await new_guid.end(self._units, past.name)
            await self._export(past, say)
        await (await self._stack(past, [])).down(say)
        self._leases.drop(past.lease)
        with contextlib.suppress(OSError):
            os.rmdir(self._context.env.paths.run / past.lease)  # noqa: PTH106 - ZFS may have made it

    async def _export(self, past: Past, say: Say) -> None:
        zpool = self._context.clients.zpool
        if await zpool.kernel_state(past.pool) is None:
            return
        state = await zpool.state(past.pool)
        if state is not None and past.guid not in (0, state.guid):
            say(f"the pool '{past.pool}' that is imported is not what zvault imported: leaving it alone")
            return
        await self._context.clients.forget_past(past.name)
        try:
            await zpool.export(past.pool)
        except Busy as busy:
            used = others_use(past.pool, str(self._context.env.paths.run))
            raise Busy(busy.what, f"{busy.why}; {used}" if used else busy.why, busy.next) from None
        say(f"exported pool {past.pool}")
