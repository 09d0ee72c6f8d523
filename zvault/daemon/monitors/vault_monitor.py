"""Keeps an eye on the vaults: what was last seen of each, and repairs what broke.

A look at a vault asks systemd and the kernel, and may still wait for a device that is lost (``zpool list`` does while
a pool is exported). So nobody here waits long for a look: where one does not come back what was seen last is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from zvault.api.vaults import VaultDocument, VaultState
from zvault.config.schema import Vault
from zvault.core.errors import DeviceGone, ZvaultError
from zvault.core.policy.automatic_repairs import IN_PAUSES
from zvault.core.policy.vault_life import VaultLife
from zvault.daemon import journald
from zvault.daemon.journald import log
from zvault.ops.state.environment import WallClock
from zvault.ops.vault_documents import make_own_document, make_unknown_document, make_vault_document
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system.process.kernel_waits import KERNEL_WAITS
from zvault.system.tasks import cancel_tasks
from zvault.zfs.pool.module_parameters import list_imported_pools

VAULT_INTERVAL = 5.0
"""Seconds between looks of its own accord, for the metrics, the journal, and to see that something can be repaired."""

DOWN_VAULT_INTERVAL = 30.0
"""The same for a vault that is down, while nobody here moves it and no pool of its name is imported."""

FRESH_LOOK_PATIENCE = 0.8
"""Seconds to wait for a look before what was seen last is told instead."""

CHANGED_PATIENCE = 2.5
"""The same where the vault has come up or gone down since."""

LATE_LOOK_LIMIT = 10.0
"""Seconds for which a look may be late before the vault counts as gone; so long the first look at it is waited for."""

REPAIR_PACE = IN_PAUSES
"""How often a vault is repaired: all that a look at it repairs has this pace in the table of repairs."""


@dataclass
class VaultReading:
    """One vault as it was seen last (``at``, monotonic seconds); a look that has not come back, and when it began.

    ``late_for``: seconds for which that look has been waited for, as of ``waited_at``. ``config`` is what the vault was
    configured to be.
    """

    document: VaultDocument
    at: float
    seen: bool = False
    config: Vault | None = None
    late: asyncio.Task[VaultDocument] | None = None
    begun: float = 0.0
    late_for: float = 0.0
    waited_at: float = 0.0

    def begin(self, now: float) -> None:
        """Note that a look begins."""
        self.begun = self.waited_at = now
        self.late_for = 0.0

    def wait(self, now: float) -> float:
        """The seconds for which the look is late by now.

        Not since the last look came back: of a vault that is down that was half a minute ago, and each late look at one
        would be an alarm. Time in which nobody looked counts as no more than a look's distance: the whole host may have
        stood still. Of a vault never seen nothing else can be told, so there all of it counts. None of it does while a
        pool is imported here, for which every look at any other waits.
        """
        waited = min(now - self.waited_at, VAULT_INTERVAL) if self.seen else now - self.waited_at
        self.late_for += 0.0 if KERNEL_WAITS.importing else waited
        self.waited_at = now
        return self.late_for


@dataclass
class RepairSchedule:
    """A repair that is to be tried again: when (monotonic seconds), how long to pause after that, and what was in
    the way.
    """

    due: float = 0.0
    pauses: Iterator[float] = field(default_factory=REPAIR_PACE.iterate_waits)
    why: str = ""
    task: asyncio.Task[None] | None = None


@dataclass
class VaultMonitor:
    """Looks at all vaults again and again, and for whoever asks."""

    vaults: Vaults
    clock: WallClock = field(default_factory=WallClock)
    _sights: dict[str, VaultReading] = field(default_factory=dict)
    _repairs: dict[str, RepairSchedule] = field(default_factory=dict)

    async def documents(self) -> list[VaultDocument]:
        """All vaults as they are now, side by side; one that cannot be looked at as it was seen last."""
        return await self._documents(self.vaults.all())

    async def _documents(self, vaults: Sequence[ManagedVault]) -> list[VaultDocument]:
        return await asyncio.gather(*map(self._document, vaults))

    async def _document(self, vault: ManagedVault) -> VaultDocument:
        sight = self._sights.get(vault.name)
        if sight is None:
            sight = self._sights[vault.name] = VaultReading(
                make_unknown_document(vault), self.clock.monotonic()
            )
        if sight.late is not None and (sight.late.done() or sight.begun < vault.changed):
            sight.late.cancel()
            sight.late = None
        if sight.late is None:
            sight.begin(self.clock.monotonic())
            look = asyncio.ensure_future(self._look(vault, sight))
            done, _ = await asyncio.wait({look}, timeout=self._patience(vault, sight))
            if done:
                return look.result()
            sight.late = look
        late_for = sight.wait(self.clock.monotonic())
        known: VaultDocument = {**(_moved_since(vault, sight) or sight.document), **make_own_document(vault)}
        if vault.error is not None:
            known["error"] = vault.error.as_dict()
        if late_for < LATE_LOOK_LIMIT:
            return known
        if (leaving := vault.on_its_way_out()) is not None:
            return {**known, "state": "gone", "error": leaving.as_dict()}
        silent = DeviceGone(
            f"vault '{vault.name}' cannot be looked at",
            f"the kernel has not answered for {late_for:.0f} s",
            "see 'zpool status' and the kernel's log; what is shown is how it was before",
        )
        return {**known, "state": "gone", "error": silent.as_dict()}

    def _patience(self, vault: ManagedVault, sight: VaultReading) -> float:
        if not sight.seen:
            return LATE_LOOK_LIMIT
        return FRESH_LOOK_PATIENCE if sight.at > vault.changed else CHANGED_PATIENCE

    async def _look(self, vault: ManagedVault, sight: VaultReading) -> VaultDocument:
        config = vault.config
        sight.document = await self._see(vault)
        sight.at, sight.seen, sight.config = self.clock.monotonic(), True, config
        return sight.document

    async def _see(self, vault: ManagedVault) -> VaultDocument:
        """See a vault as it is once no move has come between.

        A vault that goes down in good order has its pool exported and then its devices disconnected. A look that began
        before finds them gone, which was told as critical, and as well again by the next; or half up, as a look that
        begins in a move and ends after it does.
        """
        while True:
            began, moving = self.clock.monotonic(), vault.moving
            document = await make_vault_document(vault)
            if not vault.moving and (moving or vault.changed > began):
                continue
            taken = any(device["state"] == "gone" for device in document["devices"])
            if vault.moving and document["state"] == "gone" and document["health"] is None and taken:
                return {**document, "state": "partial"}
            return document

    async def watch(self) -> list[VaultDocument]:
        """Look, and repair what can be repaired; the result is what was seen."""
        vaults, pools = self.vaults.all(), set(list_imported_pools())
        resting = {vault.name: seen for vault in vaults if (seen := self._resting(vault, pools)) is not None}
        moved = [vault for vault in vaults if vault.name not in resting]
        found = resting | dict(zip((one.name for one in moved), await self._documents(moved), strict=True))
        for vault in vaults:
            # One that rests has nothing that could be taken down.
            if vault.name not in resting or vault.facts.to_be_up:
                self._look_after(vault)
        return [found[vault.name] for vault in vaults]

    def _resting(self, vault: ManagedVault, pools: Collection[str]) -> VaultDocument | None:
        """What is known of a vault that need not be looked at yet; None where it has to be."""
        sight = self._sights.get(vault.name)
        if sight is None or vault.config.pool in pools or not _rests(vault, sight, self.clock.monotonic()):
            return None
        return {**sight.document, **make_own_document(vault)}

    def _look_after(self, vault: ManagedVault) -> None:
        repair = self._repairs.setdefault(vault.name, RepairSchedule())
        if (repair.task is None or repair.task.done()) and self.clock.monotonic() >= repair.due:
            repair.task = asyncio.create_task(self._repair(vault, repair), name=f"repair {vault.name}")

    async def _repair(self, vault: ManagedVault, repair: RepairSchedule) -> None:
        try:
            await vault.repair(journald.make_vault_logger(vault.name))
        except ZvaultError as error:
            if str(error) != repair.why:
                fields = {"VAULT": vault.name}
                log.warning("vault %s cannot be repaired yet: %s", vault.name, error, extra=fields)
            repair.why = str(error)
            repair.due = self.clock.monotonic() + next(repair.pauses)
        except Exception:
            log.exception("repairing vault %s failed", vault.name)
            repair.due = self.clock.monotonic() + (REPAIR_PACE.longest or 0.0)
        else:
            repair.why, repair.pauses = "", REPAIR_PACE.iterate_waits()

    async def close(self) -> None:
        """End what is under way; what hangs in the kernel is left there."""
        tasks = [sight.late for sight in self._sights.values()] + [m.task for m in self._repairs.values()]
        await cancel_tasks(*(task for task in tasks if task is not None))


def _moved_since(vault: ManagedVault, sight: VaultReading) -> VaultDocument | None:
    """Tell what a move that has ended since the last look left of the vault; None where there was none.

    What was seen before it, or in it, holds no longer. A host that stood still in the next look was told that a vault
    is half up, as it had been for a moment on its way down.
    """
    states: dict[VaultLife, VaultState] = {
        VaultLife.UP: "up",
        VaultLife.DOWN: "down",
        VaultLife.HELD_DOWN: "down",
    }
    if vault.moving or sight.at > vault.changed or vault.life not in states:
        return None
    return {**make_unknown_document(vault), "state": states[vault.life]}


def _rests(vault: ManagedVault, sight: VaultReading, now: float) -> bool:
    """True if a vault was down when it was seen not long ago, and nothing was done with it here since."""
    error = vault.error.as_dict() if vault.error is not None else None
    return (
        sight.seen
        and sight.late is None
        and (sight.document["state"], sight.document["error"]) == ("down", error)
        and now - sight.at < DOWN_VAULT_INTERVAL
        and sight.at > vault.changed
        and sight.config is vault.config
        and vault.config.host is None
        and not (vault.moving or vault.users or vault.lease.exists)
    )
