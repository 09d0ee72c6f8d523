"""Listens for signs that a vault's storage stands still or gives errors, and tells whose it is.

Three sources: the kernel's log, OpenZFS's events, and how long transaction groups are on their way, for the kernel
soon tires of telling of hung tasks (hung_task_warnings). None of them is asked in a way that waits for a pool.
What a daemon before this one has heard in the same boot is not told again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zvault.core.diagnosis.hung_tasks import HungTaskReader
from zvault.core.diagnosis.kernel_crash import MOST_CRASHES, CrashReader, KernelCrash
from zvault.core.diagnosis.stalls import (
    HUNG_TASK_PATIENCE,
    SlowGroups,
    StallLog,
    StallSign,
    VaultDevices,
    find_stalled_vault,
)
from zvault.core.errors import ZvaultError
from zvault.daemon.journald import log
from zvault.ops.context import Context
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system import kernel_log
from zvault.system.process.line_follower import follow_lines
from zvault.system.process.spawn import find_started
from zvault.system.record_store import RecordStore
from zvault.zfs.pool import stall_events
from zvault.zfs.pool.module_parameters import list_imported_pools
from zvault.zfs.pool.statistics import groups_argv, parse_syncing

GROUP_INTERVAL = 15.0
"""Seconds between looks at transaction groups."""

STALL_PROGRAM_DEADLINE = 10.0
"""Seconds for each short program."""

EVENTS_RETRY_PAUSE = 60.0
"""Seconds until OpenZFS's events are asked for again where they cannot be had."""

INTERRUPTED_WORDS = "signal received"
"""What 'zpool events' ends with (EINTR) when its process was frozen and goes on, as by a suspend."""

HUNG_TASK_TIMEOUT = Path("/proc/sys/kernel/hung_task_timeout_secs")
BLOCK_CLASS = Path("/sys/class/block")


class StallMonitor:
    """Fills ``stalls`` and the journal for as long as ``watch`` runs."""

    def __init__(self, context: Context, vaults: Vaults, stalls: StallLog) -> None:
        self.context = context
        self.vaults = vaults
        self.stalls = stalls
        self._store = RecordStore(context.env.paths.run / "heard")
        self._heard = read_positions(self._store)
        self._signs: asyncio.Queue[tuple[StallSign, SourcePositions]] = asyncio.Queue()
        self._reader = HungTaskReader()
        self._crashes = CrashReader()
        stalls.crashes += list_heard_crashes(self._store)
        self._events = stall_events.EventReader()
        self._on_their_way = SlowGroups()

    async def watch(self) -> None:
        """Listen for ever to the kernel and to OpenZFS, and tell what stalls."""
        async with asyncio.TaskGroup() as group:
            for work in (self._kernel(), self._openzfs(), self._groups(), self._tell()):
                group.create_task(work)

    # The kernel's log

    async def _kernel(self) -> None:
        try:
            listening = kernel_log.KernelLog()
        except OSError as error:
            log.warning("the kernel's log cannot be read, so hung tasks are not told: %s", error)
            return
        try:
            if self._heard.record is None:
                # The first of this boot: what was before is nobody's.
                self._heard.record = max((record.number for record in listening.read()), default=-1)
                self._write(self._heard)
            await kernel_log.follow_kernel_log(listening, self._hear_record, self._hear_silence)
        finally:
            listening.close()

    def _hear_record(self, record: kernel_log.KernelRecord) -> None:
        if record.kernel and self._heard.record is not None and record.number > self._heard.record:
            self._heard.record = record.number
            self._put(self._reader.feed(record.text))
            self._note_crashes(self._crashes.feed(record.text))

    def _hear_silence(self) -> None:
        self._put(self._reader.flush())
        self._note_crashes(self._crashes.flush())

    def _note_crashes(self, found: Iterable[KernelCrash]) -> None:
        """Tell of a crash in what zvault started or in OpenZFS; it holds for this boot, whatever becomes of zvaultd."""
        for one in found:
            argv = find_started(one.pid)
            if argv is None and not one.zfs:
                continue
            text = one.describe(" ".join(argv[:3]) if argv is not None else "")
            if text in self.stalls.crashes or len(self.stalls.crashes) >= MOST_CRASHES:
                continue
            self.stalls.crashes.append(text)
            log.critical(
                "%s. Next: start the host anew; until then commands on that pool may wait for ever", text
            )
            try:
                self._store.put("crashes", {"texts": self.stalls.crashes})
            except OSError as error:
                log.warning("cannot note that the kernel crashed: %s", error)

    # OpenZFS's events

    async def _openzfs(self) -> None:
        complaint = ""
        while True:
            began = self.context.env.clock.monotonic()
            try:
                await follow_lines(stall_events.follow_argv(), self._hear_event)
            except ZvaultError as error:
                # One that ran for a while was interrupted, as it is when the host sleeps; the next misses nothing.
                short = self.context.env.clock.monotonic() - began < EVENTS_RETRY_PAUSE
                at_once = short and not self.context.activity.asleep and INTERRUPTED_WORDS not in str(error)
                if at_once and str(error) != complaint:
                    log.warning("OpenZFS's events cannot be followed: %s", error)
                complaint = str(error) if at_once else ""
            await asyncio.sleep(EVENTS_RETRY_PAUSE)

    def _hear_event(self, line: str) -> None:
        event = self._events.feed(line)
        if event is not None and event.after(self._heard.event, self._heard.newest):
            self._heard.event, self._heard.newest = event.number, event.time
            if (sign := stall_events.find_stall_sign(event)) is not None:
                self._put([sign])

    # Transaction groups

    async def _groups(self) -> None:
        while True:
            limit = read_hang_patience()
            for vault, (number, seconds) in (await self._syncing()).items():
                sign = self._on_their_way.note(self.context.env.vault(vault).pool, number, seconds, limit)
                self._put([sign] if sign is not None else [])
            await asyncio.sleep(min(GROUP_INTERVAL, limit))

    async def _syncing(self) -> dict[str, tuple[int, float]]:
        """The oldest transaction group of each vault that is being written out, and for how long."""
        found, imported = {}, set(list_imported_pools())
        for vault in self._here():
            if vault.config.pool not in imported:
                continue
            try:
                said = await self.context.env.runner.run(
                    groups_argv(vault.config.pool), deadline=STALL_PROGRAM_DEADLINE, check=False
                )
            except ZvaultError:
                continue
            if said.returncode == 0 and (oldest := parse_syncing(said.stdout, _since_boot())) is not None:
                found[vault.name] = oldest
        return found

    # Whose it is

    def _put(self, signs: Iterable[StallSign]) -> None:
        for sign in signs:
            self._signs.put_nowait((sign, replace(self._heard)))

    async def _tell(self) -> None:
        while True:
            sign, heard_so_far = await self._signs.get()
            vault = await self._owner(sign)
            if vault is not None or sign.zfs:
                self._note(vault, sign)
            self._write(heard_so_far)

    def _write(self, heard_so_far: SourcePositions) -> None:
        """Note how far the sources were heard, once all that came of it is told."""
        try:
            self._store.put("stalls", asdict(heard_so_far))
        except OSError as error:
            log.warning("cannot note how far the kernel's log was read: %s", error)

    def _note(self, vault: str | None, sign: StallSign) -> None:
        text = self.stalls.note(vault, sign, self.context.env.clock.time())
        if text is not None:
            log.error("%s", text, extra={"VAULT": vault, "STALL": sign.kind})

    async def _owner(self, sign: StallSign) -> str | None:
        places = [
            VaultDevices(vault.name, vault.config.pool, list_device_names(vault.lease.paths()))
            for vault in self._here()
        ]
        found = find_stalled_vault(sign, places)
        if found is not None or sign.pid is None:
            return found
        waiting = {
            vault: seconds
            for vault, (_, seconds) in (await self._syncing()).items()
            if seconds > read_hang_patience() / 2
        }
        return find_stalled_vault(sign, places, await self._words(sign.pid), waiting)

    def _here(self) -> list[ManagedVault]:
        """The vaults on this host: what its kernel says is of no other."""
        return [vault for vault in self.vaults.all() if vault.config.host is None]

    async def _words(self, pid: int) -> list[str]:
        """A process's command line. Asking for it may wait for the process, so a child does."""
        try:
            said = await self.context.env.runner.run(
                ["cat", f"/proc/{pid}/cmdline"], deadline=STALL_PROGRAM_DEADLINE, check=False
            )
        except ZvaultError:
            return []
        return said.stdout.split("\0")[1:]


@dataclass
class SourcePositions:
    """The positions up to which the sources were heard: the log's newest record, and the newest event's number and
    time.

    ``newest`` is in nanoseconds since the epoch. None: nothing of that was heard in this boot.
    """

    record: int | None
    event: int | None
    newest: int


def read_positions(store: RecordStore) -> SourcePositions:
    """As far as a daemon of this boot has heard; without one, nothing that was before now is told."""
    return store.recall("stalls", _load_positions) or SourcePositions(None, None, time.time_ns())


def _load_positions(kept: dict[str, Any]) -> SourcePositions | None:
    if kept["stale"]:
        return None
    record, event = (None if kept[key] is None else int(kept[key]) for key in ("record", "event"))
    return SourcePositions(record, event, int(kept["newest"]))


def list_heard_crashes(store: RecordStore) -> list[str]:
    """Return what a daemon of this boot has told of crashes of the kernel: only the next boot ends them."""
    return store.recall("crashes", lambda kept: [] if kept["stale"] else list(map(str, kept["texts"]))) or []


def read_hang_patience() -> float:
    """Seconds that a wait may take before the kernel calls a task hung; what that is by default where it never does."""
    try:
        return float(HUNG_TASK_TIMEOUT.read_text(encoding="ascii")) or HUNG_TASK_PATIENCE
    except (OSError, ValueError):
        return HUNG_TASK_PATIENCE


def list_device_names(paths: Sequence[str], sys_class: Path = BLOCK_CLASS) -> set[str]:
    """The kernel's names of block devices and of all below them: bcache0 lies on nbd0."""
    found: set[str] = set()
    names = [Path(path).name for path in paths]
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names += [below.name for below in (sys_class / name / "slaves").glob("*")]
    return found


def _since_boot() -> int:
    """Nanoseconds as OpenZFS counts them: gethrtime() is the raw monotonic clock (include/os/linux/spl/sys/time.h)."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
