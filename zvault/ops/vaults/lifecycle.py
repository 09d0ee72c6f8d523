"""The moves of one vault: up, down, exported by others. Each fires the events of core/policy/vault_life.py.

Who may make a move, and when, is vault.py's part: it has the lock that keeps moves apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from zvault.config.schema import Vault
from zvault.core.errors import DiskAway, NotFound, ZvaultError
from zvault.core.policy.pool_properties import describe_growth, describe_properties
from zvault.core.policy.vault_life import (
    VaultEvent,
    VaultLife,
    VaultLifeFacts,
    is_withheld,
    may_happen,
    move_vault,
)
from zvault.devices.device_state import DeviceState
from zvault.ops.context import Context
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.tuning.parameters import restore_parameters, set_vault_parameters
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.ops.vaults.copied_machine import MachineBook, describe_other_machine
from zvault.ops.vaults.inhibitor import VaultInhibitor
from zvault.ops.vaults.lease import VaultLease
from zvault.ops.vaults.pool_copies import describe_copy, find_original
from zvault.ops.vaults.pool_progress import note_progress
from zvault.system.block_devices import has_label_link
from zvault.system.tasks import finish_work
from zvault.zfs.pool.hostid import read_hostid
from zvault.zfs.pool.module_parameters import list_imported_pools
from zvault.zfs.pool.pool import PoolState


class VaultLifecycle:
    """One vault's state on this host, and the moves that change it."""

    def __init__(self, context: Context, name: str) -> None:
        self.context = context
        self.name = name
        self.lease = VaultLease(context.records.leases, name)
        self.awake = VaultInhibitor(lambda: context.env.config.daemon.inhibitor_modes, context.env.clock.time)
        self.life = VaultLife.UNKNOWN
        self.users: dict[str, int] = {}
        self.pinned = False
        """Whether it stays up until somebody takes it down; the lease keeps it over a restart."""
        self.error: ZvaultError | None = None
        self.changed = 0.0
        """When it last came up or went down, in monotonic seconds: what was seen before that holds no longer."""
        self._assembly: VaultAssembly | None = None

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
        config = self.config
        return (
            config.removable and config.pool not in list_imported_pools() and not has_label_link(config.pool)
        )

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
