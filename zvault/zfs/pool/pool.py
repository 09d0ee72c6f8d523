"""Pools: create, import, examine, export. argv of ``zpool`` is built here."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zvault.core.errors import (
    Busy,
    DeadlineExceeded,
    DeviceGone,
    NotFound,
    PoolReadOnly,
    PoolSuspended,
    Refused,
    ToolFailed,
    ZfsRefused,
    ZvaultError,
    refuse_unparsable,
)
from zvault.core.integrity.put_back import PoolTxgs
from zvault.core.policy.automatic_repairs import END_DISCARDS, TRIMS
from zvault.core.units import format_duration, format_size, is_number
from zvault.system.process.runner import ProcessResult, ToolRunner
from zvault.system.procfs import measure_running_time
from zvault.zfs.pool import encryption, hostid, label
from zvault.zfs.pool.exports import ExportWatch

POOL_HEALTH_DEADLINE = 30.0
"""Seconds for a query of a pool's health; a suspended pool answers at once, a hung one never."""

SUSPENDED_DEADLINE = 10.0
"""The same of a pool that the kernel calls suspended: where no answer comes at once, mostly none will."""

EXPORTING_PATIENCE = 10.0
"""Seconds for which a pool that is being exported is asked all the same: mostly it is gone by then."""

COLUMNS = "name,guid,size,alloc,free,health,readonly,multihost,failmode,autotrim,cachefile,expandsize"
"""What ``zpool list`` is asked for about a pool: the fields of PoolState, in their order."""

PERHAPS_PARTIAL = ("no such pool", "I/O error", "one or more devices is currently unavailable")
"""What ``zpool import`` says where a top-level device is missing, by whether it was a data, special or log device (seen
with 2.3.9); it says so of other things too."""

CHANGE_DEADLINE = 600.0
"""Seconds for create, import and export: each waits for several txg syncs on a slow device."""


BUSY_POOL_PATIENCE = 30.0
"""Seconds for which to retry an export while the pool is busy."""

_TRIMMING = re.compile(r"\(\d+% trimmed, started at ")

POOL_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PoolState:
    """One imported pool; sizes in bytes. ``health`` is zpoolconcepts(7)'s: ONLINE, DEGRADED, SUSPENDED…"""

    name: str
    guid: int
    size: int
    allocated: int
    free: int
    health: str
    readonly: bool = False
    """Whether it was imported read-only: nothing in it can be changed, not even a hold."""
    multihost: bool = False
    """Whether it has ``multihost=on``: once it is suspended nothing resumes it (MultihostSuspended)."""
    failmode: str = ""
    """What its I/O does when its devices fail (zpoolprops(7)): wait, continue or panic; empty: not known."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """failmode, autotrim and cachefile, as ``zpool list`` prints them."""
    expandable: int = 0
    """Bytes that its devices have and it does not use, since they were grown."""

    @property
    def stuck(self) -> bool:
        """True if it accepts no writes until its devices are back and ``zpool clear`` has run."""
        return self.health in {"SUSPENDED", "UNAVAIL", "FAULTED"}


class MultihostSuspended(PoolSuspended):
    """A pool with ``multihost=on`` is suspended. Nothing but a reboot ends that, and a ``zpool clear`` makes it worse.

    While it was suspended another host may have imported it, so OpenZFS refuses to resume it (its pull request 8460 and
    issue 19033). Where it was suspended in the middle of a transaction group the clear is not even refused: it waits in
    the kernel for that group, with the lock that every other command of every pool needs (issue 19036).
    """

    retryable = False


class UnknownFeature(ZfsRefused):
    """A pool has a feature that this host's OpenZFS does not know. ``readable``: it can be imported read-only."""

    readable = False


class PoolExporting(Busy):
    """The pool is being exported, and every query of it in the kernel waits for that."""


@dataclass(frozen=True, slots=True)
class Vdev:
    """A top-level vdev to create; several devices form a mirror."""

    kind: Literal["data", "special"]
    devices: tuple[str, ...]

    def words(self) -> list[str]:
        """Its arguments for zpool-create(8)."""
        return ["mirror", *self.devices] if len(self.devices) > 1 else list(self.devices)


@dataclass(frozen=True, slots=True)
class NewPool:
    """A pool to create: its vdevs, its properties, and those of its root dataset."""

    name: str
    vdevs: Sequence[Vdev]
    properties: Mapping[str, str]
    dataset: Mapping[str, str]
    encrypted: bool = False
    """Its root dataset, with a key that it is given."""

    def argv(self) -> list[str]:
        """The command that creates it."""
        argv = ["zpool", "create", "-o", "cachefile=none"]
        for key, value in self.properties.items():
            argv += ["-o", f"{key}={value}"]
        for key, value in {
            **self.dataset,
            **(encryption.POOL_KEY_PROPERTIES if self.encrypted else {}),
        }.items():
            argv += ["-O", f"{key}={value}"]
        data = [word for vdev in self.vdevs if vdev.kind == "data" for word in vdev.words()]
        special = [word for vdev in self.vdevs if vdev.kind == "special" for word in vdev.words()]
        return [*argv, self.name, *data, *(["special", *special] if special else [])]


class Zpool:
    """The pools of the host on which ``runner`` runs programs. ``proc``: its procfs; None for another host."""

    def __init__(self, runner: ToolRunner, proc: Path | None = None) -> None:
        self.runner = runner
        self.proc = proc
        self._exports = ExportWatch(proc) if proc is not None else None
        self._multihost: dict[str, bool] = {}
        """Whether a pool has ``multihost=on``, as it was last seen: a suspended one may not answer."""

    async def state(self, pool: str) -> PoolState | None:
        """A pool's state; None if it is not imported. Raises PoolExporting while an export of it hangs.

        On this host this checks the kernel's statistics first, for two reasons seen with 2.3.9: ``zpool list`` shows a
        suspended pool as ONLINE while there is something to resilver, and it hangs behind an export that waits for a
        lost device. Raises
        PoolSuspended where the kernel calls it so and nothing else answers.

        It also notes whether the pool has ``multihost=on``, which ``suspended`` and ``clear`` go by.
        """
        kernel = None
        if self.proc is not None:
            kernel = await self.kernel_state(pool)
            if kernel is None:
                return None
            patience = EXPORTING_PATIENCE if kernel == "ONLINE" else 0.0
            leaving = self.on_its_way_out(pool, patience, everywhere=kernel != "ONLINE")
            if leaving is not None:
                raise leaving
        argv = ["zpool", "list", "-Hp", "-o", COLUMNS, pool]
        try:
            result = await self._run(
                argv, pool, SUSPENDED_DEADLINE if kernel == "SUSPENDED" else POOL_HEALTH_DEADLINE
            )
        except DeadlineExceeded:
            if kernel == "SUSPENDED":
                raise self.suspended(pool) from None
            raise
        if result.returncode != 0:
            if "no such pool" in result.complaint() or "cannot open" in result.complaint():
                return None
            raise ToolFailed(f"cannot examine the pool '{pool}'", result.complaint())
        with refuse_unparsable(f"the state of the pool '{pool}'"):
            name, guid, size, allocated, free, health, *rest = result.stdout.rstrip("\n").split("\t")
            readonly, multihost, failmode, autotrim, cachefile, expandable = rest
        if not is_number(guid):
            return None  # "-": it was being exported, and is gone now
        health = "SUSPENDED" if kernel == "SUSPENDED" else health
        self._multihost[pool] = multihost == "on"
        return PoolState(
            *(name, int(guid), _int(size), _int(allocated), _int(free), health),
            readonly=readonly == "on",
            multihost=multihost == "on",
            failmode=failmode,
            properties={"failmode": failmode, "autotrim": autotrim, "cachefile": cachefile},
            expandable=_int(expandable),
        )

    def suspended(self, pool: str) -> PoolSuspended:
        """The error for a pool whose I/O is suspended: MultihostSuspended where it was seen with ``multihost=on``."""
        return never_resumes(pool) if self._multihost.get(pool) else make_suspended_error(pool)

    def on_its_way_out(
        self, pool: str, seconds: float = 0.0, *, everywhere: bool = True
    ) -> PoolExporting | None:
        """The error for a pool that has been in an export for so long, whoever began it; None where it is in none.

        Without ``everywhere`` a process that was there long before it became an export is not seen.
        """
        if self._exports is None or self.proc is None:
            return None
        process = self._exports.everywhere(pool) if everywhere else self._exports.find_exporter(pool)
        if process is None:
            return None
        age = measure_running_time(process, self.proc)
        return None if age is not None and age < seconds else _on_its_way_out(pool, process, age)

    async def _run(self, argv: Sequence[str], pool: str, deadline: float) -> ProcessResult:
        """Run a command that asks for a pool. Raises PoolExporting where it did not end because of an export."""
        try:
            return await self.runner.run(argv, deadline=deadline, check=False)
        except DeadlineExceeded as error:
            raise self.on_its_way_out(pool) or error from None

    async def kernel_state(self, pool: str) -> str | None:
        """The state in this host's kernel's statistics, which never wait for a pool; None if there is no such pool.

        Read here and not by a program: it is the first question of every look (spa_state_data in spa_stats.c takes no
        lock of the pool's).
        """
        file = (self.proc or POOL_PROC) / "spl/kstat/zfs" / pool / "state"
        # This asks /proc alone, and most looks are at what is not imported: no thread for those.
        if not file.exists():
            return None
        try:
            return (await asyncio.to_thread(file.read_text)).strip()
        except OSError:
            return None

    async def read_txgs(self, pool: str) -> PoolTxgs | None:
        """The newest transaction groups in this host's kernel's statistics; None where it has none, as of a pool that
        was imported read-only, or where zfs_txg_history is 0. Never waits for the pool (spa_stats.c).

        A line each: number, birth, state (open, quiesced, waiting, syncing, C for committed), then bytes that it had
        dirty, read and wrote. One that had nothing to write is committed, too, and no device has its number: an idle
        pool has one each 5 s, and writes no uberblock (vdev_config_sync in vdev_label.c).
        """
        if self.proc is None:
            return None
        try:
            text = await asyncio.to_thread((self.proc / "spl/kstat/zfs" / pool / "txgs").read_text)
        except OSError:
            return None
        rows = [words for line in text.splitlines() if len(words := line.split()) > 2 and is_number(words[0])]
        newest = max((int(row[0]) for row in rows), default=None)
        committed = max((int(row[0]) for row in rows if row[2] == "C" and _has_written(row)), default=None)
        return PoolTxgs(newest, committed) if newest is not None else None

    async def sync(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Sync the pool, without taking a lock that others need. Raises PoolSuspended, ToolFailed.

        A pool that was imported read-only has nothing to write, so that is no error.
        """
        result = await self._run(["zpool", "sync", pool], pool, deadline)
        if "suspended" in result.stderr:
            raise self.suspended(pool)
        if result.returncode != 0 and "pool is read-only" not in result.stderr:
            raise ToolFailed(f"the pool '{pool}' cannot be synced", result.complaint())

    async def read_freeing(self, pool: str) -> int:
        """The bytes of what was destroyed that are still to be freed (zpoolprops(7)). Raises ToolFailed."""
        result = await self._run(
            ["zpool", "get", "-Hpo", "value", "freeing", pool], pool, POOL_HEALTH_DEADLINE
        )
        if result.returncode != 0:
            raise ToolFailed(f"cannot look at the pool '{pool}'", result.complaint())
        return _int(result.stdout.strip())

    async def read_feature(self, pool: str, feature: str) -> str | None:
        """The state of a feature, as zpool-features(7) has it: ``disabled``, ``enabled`` or ``active``; None where that
        cannot be told.
        """
        argv = ["zpool", "get", "-Hpo", "value", f"feature@{feature}", pool]
        result = await self._run(argv, pool, POOL_HEALTH_DEADLINE)
        return result.stdout.strip() or None if result.returncode == 0 else None

    async def devices(self, pool: str) -> list[str]:
        """The device paths of an imported pool's leaf vdevs, as ``zpool list -vHPL`` prints them."""
        result = await self._run(["zpool", "list", "-vHPL", "-o", "name", pool], pool, POOL_HEALTH_DEADLINE)
        words = [line.strip().split("\t")[0] for line in result.stdout.splitlines()]
        return [word for word in words if word.startswith("/")]

    async def import_(
        self, pool: str, devices: Sequence[str], *, force: bool = False, readonly: bool = False
    ) -> bool:
        """Import a pool from these devices, without mounts and cachefile; False if it is not on them.

        Refuses a pool that another host used last and names that host. ``force`` overrides this; use it only if the
        last host is known to be fenced. ``readonly``: nothing is written to its devices. Raises PartMissing where the
        pool has devices besides these, Shrunk, UnknownFeature.
        """
        search = [word for device in devices for word in ("-d", device)]
        result = await self.runner.run(
            format_import(pool, search, force=force, readonly=readonly),
            deadline=CHANGE_DEADLINE,
            check=False,
        )
        if result.returncode == 0:
            return True
        if any(words in result.stderr for words in PERHAPS_PARTIAL):
            await label.refuse_partial_pool(pool, devices, self.runner)
        if "no such pool" in result.stderr:
            return False
        if "invalid vdev configuration" in result.stderr:
            await label.refuse_shrunk_device(pool, devices, self.runner)
        raise _import_failure(pool, result)

    async def create(self, new: NewPool, key: bytes | None = None) -> None:
        """Create a pool. Never forced, so zpool refuses a device that holds a filesystem or pool.

        ``key``: of its root dataset, where that is encrypted.
        """
        given = encryption.format_key_input(key) if key is not None else None
        result = await self.runner.run(new.argv(), deadline=CHANGE_DEADLINE, stdin=given, check=False)
        if result.returncode != 0:
            raise Refused(
                f"cannot create the pool '{new.name}' on {', '.join(d for v in new.vdevs for d in v.devices)}",
                _last_words(result),
                "check the vault's profile, and that the device is big enough and blank",
            )

    async def export(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Export a pool, never forced; does nothing if it is not imported. Raises Busy or PoolSuspended.

        Retries for a while if the pool is busy: a stopped receive may still be saving its state, and udev may still be
        probing a volume that just appeared.
        """
        give_up = time.monotonic() + BUSY_POOL_PATIENCE
        while True:
            result = await self._run(["zpool", "export", pool], pool, deadline)
            if result.returncode == 0 or "no such pool" in result.stderr:
                return
            if "busy" not in result.stderr or time.monotonic() > give_up:
                break
            await asyncio.sleep(1.0)
        if "suspended" in result.stderr:
            raise self.suspended(pool)
        leaked = await self._run(["zpool", "get", "-Hpo", "value", "leaked", pool], pool, deadline)
        raise _in_use(pool, _last_words(result), _int(leaked.stdout.strip()))

    async def clear(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Reopen a pool's devices and resume it. Raises ToolFailed if that fails; lost devices then stay closed.

        Raises MultihostSuspended, and runs nothing, for a suspended pool that was last seen with ``multihost=on``.
        """
        if self._multihost.get(pool) and await self.kernel_state(pool) == "SUSPENDED":
            raise never_resumes(pool)
        await self.runner.run(["zpool", "clear", pool], deadline=deadline)

    async def is_trimming(self, pool: str) -> bool:
        """Whether a trim of the pool is under way, so that it may be ended (END_DISCARDS); False too where that cannot
        be told. Answers while it is suspended.

        What ``zpool status -t`` says of each device (zpool_main.c, print_status_trim): "(12% trimmed, started at …)";
        "completed at" and "suspended, started at" otherwise.
        """
        try:
            result = await self.runner.run(
                ["env", "LC_ALL=C", "zpool", "status", "-t", pool], deadline=SUSPENDED_DEADLINE, check=False
            )
        except ZvaultError:
            return False
        return END_DISCARDS.find_unmet({TRIMS: _TRIMMING.search(result.stdout) is not None}) is None

    async def expand(self, pool: str, devices: Sequence[str], deadline: float = CHANGE_DEADLINE) -> None:
        """Have a pool use all of its devices, which were grown; nothing makes it smaller again. Raises ToolFailed."""
        await self.runner.run(format_expand(pool, devices), deadline=deadline)

    async def reopen(self, pool: str, deadline: float = CHANGE_DEADLINE) -> None:
        """Have ZFS close a pool's devices and open what their paths lead to now. Raises ToolFailed, as if suspended."""
        await self.runner.run(["zpool", "reopen", pool], deadline=deadline)


def _in_use(pool: str, said: str, leaked: int) -> Busy:
    """The error for a pool that cannot be exported; ``leaked`` is the property, in bytes.

    The first time that ZFS gives up space it opens a directory of the pool for it and never closes it
    (dsl_process_async_destroys in dsl_scan.c), so a pool that leaked since it was imported counts as used for ever.
    """
    then = f"'zfs mount' and 'lsof' show what uses it; end that, then 'zpool export {pool}'"
    if leaked:
        then += (
            f"; where nothing does: {format_size(leaked)} of it have leaked (zfs_free_leak_on_eio), and OpenZFS exports"
            " a pool to which that happened since its import no more before the host is started anew; what is in it"
            " is safe"
        )
    return Busy(f"cannot export the pool '{pool}'", said, then)


def format_import(
    pool: str, search: Sequence[str], *, force: bool = False, readonly: bool = False
) -> list[str]:
    """The command that imports a pool; ``search`` says where."""
    options = [
        *(["-f"] if force else []),
        "-N",
        "-o",
        "cachefile=none",
        *(["-o", "readonly=on"] if readonly else []),
    ]
    return ["zpool", "import", *options, *search, pool]


def format_expand(pool: str, devices: Sequence[str]) -> list[str]:
    """The command that has a pool use all of these devices."""
    return ["zpool", "online", "-e", pool, *devices]


def make_suspended_error(pool: str) -> PoolSuspended:
    """The error for a pool whose I/O is suspended."""
    return PoolSuspended(
        f"the pool '{pool}' has suspended its I/O",
        "its device failed or went away",
        f"bring the device back, then 'zpool clear {pool}'; never where it has multihost=on: only a reboot helps there",
    )


def _has_written(row: Sequence[str]) -> bool:
    """True if a transaction group changed something on the devices: snapshots and holds write, and dirty no bytes."""
    return len(row) > 5 and _int(row[5]) > 0


def never_resumes(pool: str) -> MultihostSuspended:
    """The error for a suspended pool that has ``multihost=on``."""
    return MultihostSuspended(
        f"the pool '{pool}' is suspended for good",
        "it has multihost=on: after ten seconds without a write OpenZFS suspends such a pool, and cannot resume it",
        f"reboot this host, and never run 'zpool clear {pool}': it would stop every zpool command of every pool"
        f" (OpenZFS issue 19036). Once it is imported again, 'zpool set multihost=off {pool}' keeps this from happening"
        " again",
    )


def make_read_only_error(pool: str, so: str, vault: str = "") -> PoolReadOnly:
    """The error for a pool that was imported read-only, hence ``so``; ``vault``: its name where zvault imports it."""
    again = (
        f"'zvaultctl vault down {vault}', then 'zvaultctl vault up {vault}', imports it to be written to"
        if vault
        else f"'zpool export {pool}', then 'zpool import {pool}', imports it to be written to"
    )
    return PoolReadOnly(
        f"the pool '{pool}' is read-only, so {so}", "it was imported with 'readonly=on'", again
    )


def _on_its_way_out(pool: str, process: int, age: float | None) -> PoolExporting:
    since = "has" if age is None else f"began {format_duration(age)} ago and has"
    return PoolExporting(
        f"the pool '{pool}' is being exported",
        f"process {process} {since} not finished the export yet",
        "if its storage is lost or stands still, it waits for that in the kernel, and so does every other command that"
        " asks for the pool: bring the storage back; where it has not ended a few minutes after that, only a reboot"
        " helps (known of OpenZFS up to 2.3: its issues 1857 and 6649)",
    )


def _int(text: str) -> int:
    return int(text) if is_number(text) else 0


def _last_words(result: ProcessResult) -> str:
    return " ".join(line.strip() for line in result.stderr.strip().splitlines()[:3]) or result.complaint()


def _unknown_feature(pool: str, said: str) -> UnknownFeature:
    """The error for a pool that has a feature which this host's OpenZFS does not know (zpool_import_props)."""
    names = re.findall(r"^\t(\S+:\S+)", said, re.M)
    error = UnknownFeature(
        f"the pool '{pool}' has features that this host's OpenZFS does not know",
        ", ".join(names) or "zpool does not say which",
        "update OpenZFS on this host ('zfs version' shows it), or use the vault on the host that enabled them",
    )
    error.readable = "readonly=on" in said
    return error


def _import_failure(pool: str, result: ProcessResult) -> ZvaultError:
    said = _last_words(result)
    if (elsewhere := hostid.make_foreign_host_error(pool, result.stderr)) is not None:
        return elsewhere
    if "unsupported version or feature" in said:
        return _unknown_feature(pool, result.stderr)
    if "already exists" in said:
        return NotFound(f"another pool named '{pool}' is imported", said, "rename one of the two")
    if "one or more devices is currently unavailable" in said or "I/O error" in said:
        return DeviceGone(
            f"the pool '{pool}' cannot be imported", said, "check the device and the kernel's log"
        )
    return ToolFailed(f"cannot import the pool '{pool}'", said, "run 'zpool import' to see the details")
