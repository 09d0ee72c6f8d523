"""Scrubs of a pool: start, pause, resume, stop, and progress. argv of ``zpool scrub`` and ``status`` is built here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zvault.core.dates import reject_future
from zvault.core.errors import Busy, NotFound, ToolFailed, refuse_unparsable
from zvault.core.integrity.pool_devices import TopVdev
from zvault.core.policy.scrub import PoolScan, ScanState
from zvault.core.units import is_number
from zvault.system.process.runner import ProcessResult, ToolRunner
from zvault.zfs.pool import status_text
from zvault.zfs.pool.name_permit import NamePermit
from zvault.zfs.pool.pool import POOL_HEALTH_DEADLINE, make_read_only_error, make_suspended_error

SCRUB_ACT_DEADLINE = 120.0
"""Seconds to start, pause or stop a scrub: each waits for a txg sync of a slow device."""

LIST_DAMAGE_DEADLINE = 600.0
"""Seconds to list the names of damaged files: ZFS looks up each name in the pool."""

ERROR_SCRUB_DEADLINE = 6 * 3600.0
"""Seconds for an error scrub, which reads only the blocks on the pool's error list."""

SCRUBBED = "org.zvault:scrubbed"
"""User property of a pool (OpenZFS 2.2): when its last complete scrub ended, in seconds since the epoch. ``zpool
status`` forgets this as soon as another scrub starts."""

HELD = "org.zvault:scrub-held"
"""User property of a pool: ``on`` while its scrubs are paused by hand."""

_RUNS_ALREADY = ("currently scrubbing", "scrub already in progress")


@dataclass(frozen=True, slots=True)
class PoolErrors:
    """A pool's newest scrub, and the length of its error list.

    ``last``: when the last complete scrub ended, in seconds since the epoch. ``held``: scrubs are paused by hand.
    ``checksums``: reads of its devices that returned wrong bytes since the pool was imported or cleared.
    ``vdevs``: what it lies on.
    """

    scan: PoolScan
    errors: int
    last: float | None = None
    held: bool = False
    checksums: int = 0
    vdevs: tuple[TopVdev, ...] = ()


class Scrubber:
    """The scrubs of the pools of one host."""

    def __init__(self, runner: ToolRunner) -> None:
        self.runner = runner

    async def health(self, pool: str, now: float) -> PoolErrors:
        """A pool's health; ``now`` (seconds since the epoch) is used for the rate. Raises NotFound, ToolFailed."""
        argv = ["zpool", "status", "-j", "--json-int", "-P", "-L", pool]
        result = await self.runner.run(argv, deadline=POOL_HEALTH_DEADLINE, check=False)
        if status_text.NO_JSON in result.stderr:
            text = await self._text(pool, POOL_HEALTH_DEADLINE)
            with refuse_unparsable(f"the state of '{pool}'"):
                told = status_text.parse_pool_status(text)
                scan, errors, wrong, vdevs = told.scan, told.errors, told.checksums, told.vdevs
        else:
            document = _pool(pool, result)
            with refuse_unparsable(f"the state of '{pool}'"):
                scan = parse_scan(document.get("scan_stats") or {}, now)
                errors = int(document.get("error_count") or 0)
                wrong = count_checksum_errors(document.get("vdevs") or {})
                vdevs = tuple(list_top_vdevs(pool, document))
        marks = await self._marks(pool)
        noted = marks.get(SCRUBBED, "")
        # Whoever had the pool may have set any; a date in the future says nothing.
        scan = scan.seen_at(now)
        known = [reject_future(float(noted) if is_number(noted) else None, now)]
        if scan.state == "finished" and not scan.resilver:
            known.append(scan.ended)
        last = max((date for date in known if date is not None), default=None)
        return PoolErrors(scan, errors, last, marks.get(HELD) == "on", wrong, vdevs)

    async def _marks(self, pool: str) -> dict[str, str]:
        """The user properties that zvault set on the pool; empty if it has none or OpenZFS is too old for them."""
        result = await self.runner.run(
            ["zpool", "get", "-Hp", "-o", "property,value", f"{SCRUBBED},{HELD}", pool],
            deadline=POOL_HEALTH_DEADLINE,
            check=False,
        )
        return dict(line.split("\t", 1) for line in result.stdout.splitlines() if "\t" in line)

    async def errors(self, permit: NamePermit) -> list[str]:
        """The damaged files of the permitted pool, as ZFS names them. Raises NotFound, ToolFailed, Refused.

        Empty if one of them is in an encrypted dataset without its key: 2.3.9 then says "permission denied" for all.
        """
        pool = permit.pool
        argv = ["zpool", "status", "-v", "-j", "--json-int", pool]
        result = await self.runner.run(argv, deadline=LIST_DAMAGE_DEADLINE, check=False)
        if status_text.NO_JSON in result.stderr:
            with refuse_unparsable(f"the errors of '{pool}'"):
                return status_text.parse_listed_errors(await self._text(pool, LIST_DAMAGE_DEADLINE, "-v"))
        document = _pool(pool, result)
        names = document.get("errlist")
        return [str(name) for name in names] if isinstance(names, list) else []

    async def _text(self, pool: str, deadline: float, *options: str) -> str:
        """``zpool status`` of an OpenZFS before 2.3. Raises NotFound, ToolFailed."""
        argv = [*status_text.STATUS_COMMAND, *options, pool]
        result = await self.runner.run(argv, deadline=deadline, check=False)
        _refuse(pool, result)
        return result.stdout

    async def start(self, pool: str) -> None:
        """Start or resume a scrub; does nothing if one runs. Raises PoolReadOnly, PoolSuspended, ToolFailed.

        Of a pool that was imported read-only ``zpool scrub`` waits for ever for a transaction group in the kernel, and
        keeps the pool from being exported (seen with 2.3.9): nothing but a reboot ends that.
        """
        argv = ["zpool", "get", "-Hpo", "value", "readonly", pool]
        told = await self.runner.run(argv, deadline=POOL_HEALTH_DEADLINE, check=False)
        if told.stdout.strip() == "on":
            raise make_read_only_error(pool, "it cannot be scrubbed")
        await self._act("start", pool, "scrub", fine=_RUNS_ALREADY)

    async def pause(self, pool: str) -> None:
        """Pause a scrub; it stays paused over an export. Does nothing if none runs."""
        await self._act("pause", pool, "scrub", "-p", fine=("there is no active scrub", "is paused"))

    async def stop(self, pool: str) -> None:
        """Stop a scrub for good; does nothing if there is none."""
        await self._act("stop", pool, "scrub", "-s", fine=("there is no active scrub",))

    async def run_whole(self, pool: str, deadline: float) -> None:
        """Scrub all of a pool and wait for the end. Raises ToolFailed, DeadlineExceeded; then it may still go on.

        Raises Busy where another one is under way.
        """
        argv = ["zpool", "scrub", "-w", pool]
        result = await self.runner.run(argv, deadline=deadline, check=False)
        if any(words in result.stderr for words in (*_RUNS_ALREADY, "currently resilvering")):
            raise Busy(f"'{pool}' cannot be scrubbed", result.complaint())
        if result.returncode != 0:
            raise ToolFailed(f"cannot scrub '{pool}'", result.complaint(), f"see 'zpool status {pool}'")

    async def error_scrub(self, permit: NamePermit, deadline: float = ERROR_SCRUB_DEADLINE) -> None:
        """Scrub the blocks on the error list and wait for the end: ZFS removes those that are well from the list.

        In the state in which names may not be asked for it panics the kernel, so it takes the same permit.
        """
        await self._act("recheck the errors of", permit.pool, "scrub", "-e", "-w", deadline=deadline)

    async def mark(self, pool: str, key: str, value: str) -> None:
        """Set one of zvault's user properties on the pool; an empty value removes it."""
        await self.runner.run(
            ["zpool", "set", f"{key}={value}", pool], deadline=SCRUB_ACT_DEADLINE, check=False
        )

    async def _act(
        self,
        what: str,
        pool: str,
        *argv: str,
        fine: tuple[str, ...] = (),
        deadline: float = SCRUB_ACT_DEADLINE,
    ) -> None:
        result = await self.runner.run(["zpool", *argv, pool], deadline=deadline, check=False)
        if result.returncode == 0 or any(words in result.stderr for words in fine):
            return
        if "suspended" in result.stderr:
            raise make_suspended_error(pool)
        raise ToolFailed(
            f"cannot {what} a scrub of '{pool}'" if argv[-1] != "-w" else f"cannot {what} '{pool}'",
            result.complaint(),
            f"see 'zpool status {pool}'",
        )


_STATES: Mapping[str, ScanState] = {"SCANNING": "scanning", "FINISHED": "finished", "CANCELED": "canceled"}


def parse_scan(stats: Mapping[str, Any], now: float) -> PoolScan:
    """Parse ``scan_stats`` of ``zpool status -j --json-int``. Progress counts bytes read (issued), not only found."""
    state = _STATES.get(str(stats.get("state")), "none")
    if state == "none":
        return PoolScan()
    total = _number(stats, "to_examine") - _number(stats, "skipped")
    done = _number(stats, "issued")
    paused = _number(stats, "scrub_pause")
    if state == "scanning" and paused:
        state = "paused"
    spent = now - _number(stats, "pass_start") - _number(stats, "scrub_spent_paused")
    passed = _number(stats, "issued_bytes_per_scan")
    return PoolScan(
        state,
        started=_time(stats, "start_time"),
        ended=_time(stats, "end_time") if state in {"finished", "canceled"} else None,
        total=max(total, 0),
        done=done,
        rate=passed / spent if state == "scanning" and spent > 0 and passed else None,
        errors=_number(stats, "errors"),
        repaired=_number(stats, "processed"),
        resilver=stats.get("function") not in {"SCRUB", "ERRORSCRUB"},
    )


def count_checksum_errors(vdevs: Mapping[str, Any]) -> int:
    """The CKSUM column of ``zpool status``, of all devices together."""
    return sum(
        count_checksum_errors(vdev["vdevs"]) if vdev.get("vdevs") else _number(vdev, "checksum_errors")
        for vdev in vdevs.values()
    )


_ROLES = ("special", "dedup", "logs", "l2cache", "spares")
"""What ``zpool status -j`` has beside a pool's normal vdevs, each by the name of its role."""


def list_top_vdevs(pool: str, document: Mapping[str, Any]) -> Iterator[TopVdev]:
    """The top-level vdevs in a pool's part of ``zpool status -j -P -L``."""
    root = (document.get("vdevs") or {}).get(pool) or {}
    for role, group in (("normal", root.get("vdevs")), *((role, document.get(role)) for role in _ROLES)):
        for name, vdev in (group or {}).items():
            yield TopVdev(str(name), str(vdev.get("class") or role), tuple(_paths(str(name), vdev)))


def _paths(name: str, vdev: Mapping[str, Any]) -> Iterator[str]:
    """The paths of all devices of a vdev. One without any is a device itself, unless it was removed or is a hole."""
    below = vdev.get("vdevs")
    if below:
        for one, inner in below.items():
            yield from _paths(str(one), inner)
    elif name.startswith("/"):
        yield name


def _number(stats: Mapping[str, Any], key: str) -> int:
    """A number; 0 if it is missing, ``-``, or below zero.

    OpenZFS counts unsigned, and takes off what could not be read: of a scan during which a pool was suspended it told
    2^64 - 196,608 bytes.
    """
    value = str(stats.get(key))
    number = int(value) if is_number(value) else 0
    return number if number < 1 << 63 else 0


def _time(stats: Mapping[str, Any], key: str) -> float | None:
    return float(_number(stats, key)) or None


def _refuse(pool: str, result: ProcessResult) -> None:
    """Raise NotFound or ToolFailed for a command that failed."""
    if result.returncode != 0:
        if "no such pool" in result.stderr or "cannot open" in result.stderr:
            raise NotFound(f"the pool '{pool}' is not imported", result.complaint())
        raise ToolFailed(
            f"cannot examine the pool '{pool}'", result.complaint(), f"see 'zpool status {pool}'"
        )


def _pool(pool: str, result: ProcessResult) -> dict[str, Any]:
    """The pool's part of the document."""
    _refuse(pool, result)
    try:
        found = json.loads(result.stdout)["pools"][pool]
        if isinstance(found, dict):
            return found
        why = f"of the pool it tells {type(found).__name__}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = str(error)
    raise ToolFailed(f"cannot parse the output of 'zpool status -j {pool}'", why)
