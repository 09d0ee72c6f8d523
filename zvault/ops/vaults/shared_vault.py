"""A vault that several hosts share, as this host sees it: who has it, what they have run, and whose turn it is.

What to do is decided in core/sharing; here the note and the lease are looked at, the note is written, and a host that
has stopped is shut out. Everything that moves the vault itself is ManagedVault's.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.core.errors import Busy, Refused, TakenOver, ZvaultError
from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.run_decision import (
    DueRun,
    RunAction,
    RunDecision,
    SeenNote,
    SharingHost,
    UnreadableNote,
    compute_beat,
    decide_run,
)
from zvault.core.sharing.run_decision import SeenLease as LeaseWatch
from zvault.core.sharing.shared_note import (
    LastSharedRun,
    NoteDamaged,
    NoteNewer,
    SharedNote,
    SharedRunOutcome,
)
from zvault.devices.layer import DeviceSlot
from zvault.devices.rbd import image_lease
from zvault.devices.shared_note import NoteClient, ObservedLease, ObservedNote
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.ops.vaults.fencing import fence_holders, list_holders, name_takeover_lease
from zvault.ops.vaults.host_claim import HostClaim
from zvault.ops.vaults.host_state import find_election_state
from zvault.ops.vaults.vault import ManagedVault
from zvault.system.record_store import read_boot_id
from zvault.system.tasks import cancel_tasks

NOTE_PUT_TRIES = 3
"""Times that a note is put, where another host put one in between each time."""


RunRetry = Callable[[Exception | None], bool]
"""Whether what was kept from its end, by an error or by datasets that failed, is tried again."""


def never_retry(_: Exception | None) -> bool:
    """Return False, whatever the error."""
    return False


def read_boot_time() -> float:
    """Seconds of a clock that goes on while the host sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NotePlace(Protocol):
    """The place of note and lease: see NoteClient."""

    async def read(self) -> ObservedNote:
        """Read the note."""

    async def read_lease(self) -> ObservedLease:
        """Read whose the lease is."""

    async def put(self, data: bytes, etag: str) -> str | None:
        """Put the note."""


@dataclass
class SharedVault:
    """One vault that several hosts share. ``place`` is where the note is; the clock is ``read_boot_time``."""

    vault: ManagedVault
    place: NotePlace | None = None
    clock: Callable[[], float] = read_boot_time
    host: str = field(default_factory=platform.node)
    """This host's name, as its lease has it."""
    boot: str = field(default_factory=read_boot_id)
    """This host's boot, as its lease has it."""
    note: SeenNote | None = None
    lease: LeaseWatch | None = None
    running: set[str] = field(default_factory=set)
    """Backups that this host runs: while there are any, it writes the note as the one that has the vault."""
    requests: dict[str, int] = field(default_factory=lambda: {"get": 0, "put": 0})
    written: float = 0.0
    """When this host last wrote the note."""
    done: dict[str, HostClaim] = field(default_factory=dict)
    """By backup, the last run that another host was seen to have done: what runs that fail or go on do not change."""
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the note is read or put: of eight runs that began at once five failed, as each other's puts came in
    between, and stayed in the note as running.
    """

    def __post_init__(self) -> None:
        """The vault's status tells who has it."""
        self.vault.held_by = self.holder

    @property
    def name(self) -> str:
        return self.vault.name

    @property
    def me(self) -> SharingHost:
        """This host among the others. Raises Refused where the configuration does not name it."""
        hosts = tuple(self.vault.config.hosts)
        if self.host not in hosts:
            raise Refused(
                f"vault '{self.name}' is not this host's",
                f"its hosts are {', '.join(hosts)}, and this one is {self.host}",
                "add it to hosts, or give this host the name that is there",
            )
        return SharingHost(self.host, hosts, self.bound, self.turn, self.boot)

    @property
    def turn(self) -> ElectionState:
        """The state of this host among the others."""
        return find_election_state(self.vault.life, self.vault.error)

    @property
    def bound(self) -> float:
        """Seconds after which a lease that was not renewed is over."""
        return max(device.lease_bound or 0.0 for device in self.vault.config.device)

    # What the others did

    def _at(self) -> NotePlace:
        if self.place is not None:
            return self.place
        device, runner = self.vault.config.device[0], self.vault.context.env.runner
        return NoteClient(self._slot(), device, runner, self._asked)

    def _slot(self) -> DeviceSlot:
        return DeviceSlot(self.name, 0, self.vault.context.env.paths.run / "device")

    def _asked(self, asked: Mapping[str, int]) -> None:
        for kind, number in asked.items():
            self.requests[kind] = self.requests.get(kind, 0) + number
        context = self.vault.context
        context.records.costs.asked(context.env, self.name, asked)

    async def look_at_note(self) -> None:
        """See what the hosts have run. Raises DeviceGone, Refused."""
        async with self._noting:
            await self._read_note()

    async def _read_note(self) -> None:
        seen = await self._at().read()
        said = _read(seen.data)
        now = self.clock()
        self.note = (
            ForeignWatch.begin(said, seen.etag, now, seen.age)
            if self.note is None
            else self.note.look(said, seen.etag, now, seen.age)
        )
        self._remember(self.note)

    def _remember(self, note: SeenNote) -> None:
        now, runs = self.clock(), note.said.runs if isinstance(note.said, SharedNote) else {}
        for backup, run in runs.items():
            if run.outcome is not SharedRunOutcome.DONE:
                continue
            claim = HostClaim.of(run, note.at_most(now), now)
            if run.host == self.host:
                self.done.pop(backup, None)
            elif claim.lag is not None:
                self.done[backup] = claim

    async def look_at_lease(self) -> None:
        """See who has the vault. Raises DeviceGone, Refused."""
        seen = await self._at().read_lease()
        now = self.clock()
        self.lease = (
            ForeignWatch.begin(seen.holder, seen.etag, now, seen.age)
            if self.lease is None
            else self.lease.look(seen.holder, seen.etag, now, seen.age)
        )

    async def decide(self, due: DueRun) -> RunDecision:
        """Decide what to do about a backup that is due; asks the store what has to be known. Raises DeviceGone,
        Refused.

        Each is looked at once: a look may take longer than the one before it counts as one of now.
        """
        began = self.clock()
        # Where each look took longer than the other counted as one of now, a host asked for both for ever.
        decision = decide_run(due, self.me, self.note, self.lease, began)
        if decision.action is RunAction.LOOK_AT_NOTE:
            await self.look_at_note()
            decision = decide_run(due, self.me, self.note, self.lease, self.clock())
        if decision.action is not RunAction.LOOK_AT_LEASE:
            return decision
        await self.look_at_lease()
        return self._as_of_the_looks(due, began)

    async def decide_anew(self, due: DueRun) -> RunDecision:
        """The same after another host was faster: by note and lease as they are now, however long a look takes."""
        began = self.clock()
        await self.look_at_note()
        await self.look_at_lease()
        return self._as_of_the_looks(due, began)

    def _as_of_the_looks(self, due: DueRun, began: float) -> RunDecision:
        """By note and lease, both of which count as of now: as of the earlier look since ``began``."""
        assert self.note is not None  # noqa: S101
        assert self.lease is not None  # noqa: S101
        return decide_run(
            due, self.me, self.note, self.lease, max(began, min(self.note.last, self.lease.last))
        )

    def last(self, backup: str) -> LastSharedRun | None:
        """The last run of a backup that the note tells of, as this host last saw it."""
        said = self.note.said if self.note is not None else None
        return said.last(backup) if isinstance(said, SharedNote) else None

    def claim(self, backup: str) -> HostClaim | None:
        """Return what the note claims of a backup that another host ran last."""
        run, note = self.last(backup), self.note
        if run is None or note is None or run.host == self.host:
            return None
        now = self.clock()
        return HostClaim.of(run, note.at_most(now), now)

    def holder(self) -> str | None:
        """Which host has the vault, as far as this one knows; None where none has, or it was never looked at."""
        if self.turn in (ElectionState.HOLDING, ElectionState.RELEASING):
            return self.host
        note = self.note.said if self.note is not None else None
        noted = note.host if isinstance(note, SharedNote) and note.holding else None
        if self.lease is not None and (self.note is None or self.lease.last > self.note.last):
            said = self.lease.said
            held = said is not None and said.held and self.lease.age(self.clock()) <= said.bound
            return said.host if said is not None and held else None
        return None if noted == self.host else noted

    # Its turn

    async def shut_out(self, assembly: VaultAssembly, of: str, say: Say) -> None:
        """Take the lease of each device from the host of that boot, which has stopped. Raises Busy, DeviceGone."""
        held = await list_holders(assembly)
        for one in held:
            if one.holder.who is not None and f"--of={of}" not in one.holder.fence[-1].argv:
                raise Busy(f"{one.slot.name} has changed hands", f"it is held by {one.holder.who}")
        say(f"taking vault {self.name} over")
        await fence_holders(assembly, held, say)
        self.vault.context.records.undo.drop(name_takeover_lease(self.name))

    @asynccontextmanager
    async def run(
        self,
        due: DueRun,
        lag: Callable[[], float | None],
        good: Callable[[], bool],
        warn: Say,
        again: RunRetry = never_retry,
    ) -> AsyncIterator[RunDecision]:
        """While a backup is run on the vault, which is up: the note says so, and how it ended.

        Gives what is decided now that this host has the vault: nobody else writes the note any more. ``lag`` and
        ``good`` are asked at the end, and ``again`` where the block fails. A block that is cancelled, or is tried again
        later, leaves the run as one that was not finished: whoever has the vault next goes on with it. Raises what kept
        the note from being written at first; later ``warn`` is told.
        """
        await self.look_at_note()
        decision = await self.decide(due)
        if decision.action is not RunAction.RUN:
            yield decision
            return
        name = due.backup
        self.running.add(name)
        try:
            await self._write(lambda note: note.begun(self._name_of(name), self._wall()))
            beating = asyncio.ensure_future(self._beat())
            try:
                yield decision
            except Exception as error:
                if await self.vault.trouble() is None:
                    await self._end(name, None if again(error) else False, lag(), warn)
                raise
            finally:
                await cancel_tasks(beating)
            done = good()
            await self._end(name, None if not done and again(None) else done, lag(), warn)
        finally:
            self.running.discard(name)

    async def _end(self, backup: str, done: bool | None, lag: float | None, warn: Say) -> None:
        """Write how a run ended; ``done`` is None where it is tried again, and has not."""
        self.running.discard(backup)

        def ended(note: SharedNote) -> SharedNote:
            if done is None:
                return note
            return note.finished(self._name_of(backup), self._wall(), done=done, lag=lag)

        try:
            await self._write(ended)
        except (ZvaultError, NoteDamaged) as error:
            warn(f"the other hosts of vault {self.name} are not told how the run ended: {error}")

    def _name_of(self, backup: str) -> str:
        """The name that a backup has now which had this one when its run began."""
        return self.vault.context.env.current_name(backup)

    def _wall(self) -> float:
        return self.vault.context.env.clock.time()

    async def _beat(self) -> None:
        """Write the note again and again, so that the others see that this zvaultd is alive; what fails is repeated."""
        while True:
            await asyncio.sleep(compute_beat(self.bound) / 3)
            if self.clock() - self.written >= compute_beat(self.bound) / 2:
                with suppress(ZvaultError):
                    await self._write(lambda note: note)

    async def _write(self, change: Callable[[SharedNote], SharedNote]) -> None:
        """Put the note with a change. Raises DeviceGone; TakenOver where it is another host's by now."""
        async with self._noting:
            await self._put_note(change)

    async def _put_note(self, change: Callable[[SharedNote], SharedNote]) -> None:
        epoch, me = await self._epoch(), self.host
        for _ in range(NOTE_PUT_TRIES):
            if self.note is None:
                await self._read_note()
            seen = self.note
            assert seen is not None  # noqa: S101 - it was looked at
            now = self.clock()
            configured = frozenset(self.vault.context.env.config.backup)
            try:
                if isinstance(seen.said, SharedNote):
                    ours = seen.said.epoch > epoch and await self._is_ours(seen.said.epoch)
                    write = seen.said.replaced if ours else seen.said.written
                    mine = write(me, epoch, seen.age(now), holding=bool(self.running)).renamed(self._name_of)
                    new = change(mine.only(configured))
                else:
                    new = change(SharedNote(me, epoch, holding=bool(self.running)))
                data = new.as_bytes()
            except NoteDamaged as error:
                raise self._of_another(error) from None
            etag = await self._at().put(data, seen.etag)
            if etag is not None:
                self.written = self.clock()
                self.note = seen.look(new, etag, self.written, 0.0)
                self._remember(self.note)
                return
            await self._read_note()
            there = self.note.said if self.note is not None else None
            if isinstance(there, SharedNote) and there.same_as(new):
                self.written = now  # only the answer was lost
                return
        raise Busy(f"the note of vault '{self.name}' cannot be written", "others put it all the time")

    def _of_another(self, error: NoteDamaged) -> TakenOver:
        device = self.vault.config.device[0]
        place = "KEY.note"
        if device.rbd is not None:
            place = f"zvault.{device.rbd.name}.note in Ceph's pool {device.rbd.pool}"
        elif isinstance(device.nbd, BlockstoreServer):
            place = f"{device.nbd.bucket}/{device.nbd.key}.note"
        return TakenOver(
            f"the note of vault '{self.name}' is another host's",
            str(error),
            f"this host stands by; if no other host has had the vault since, remove the object {place}",
        )

    async def _is_ours(self, epoch: int) -> bool:
        """True if this host has the vault although the note has a later epoch, which its store never had then.

        Who takes the vault takes the lease first, so while that is this boot's nobody came later.
        """
        await self.look_at_lease()
        said = self.lease.said if self.lease is not None else None
        mine = said is not None and said.held and said.ours and said.boot == self.boot
        return mine and await self._epoch() < epoch

    async def _epoch(self) -> int:
        """The epoch of this host's time with the device: whoever comes later has a greater one."""
        if self.vault.config.device[0].rbd is not None and (
            number := image_lease.read_lease_epoch(self._slot())
        ):
            return number
        for device in await self.vault.devices():
            epoch = ((device.told or {}).get("engine") or {}).get("epoch")
            if isinstance(epoch, int) and epoch > 0:
                return epoch
        raise Busy(f"vault '{self.name}' does not tell its epoch", "its server is not there, or silent")


def _read(data: bytes | None) -> SharedNote | UnreadableNote | None:
    if data is None:
        return None
    try:
        return SharedNote.of_bytes(data)
    except NoteNewer as error:
        return UnreadableNote(str(error), newer=True)
    except NoteDamaged as error:
        return UnreadableNote(str(error))
