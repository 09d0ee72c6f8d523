"""Errors of what is half received: named by nobody, no damage, and read again once all is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, with_vault
from tests.unit.patience import PATIENCE, eventually
from zvault.core.errors import ToolFailed
from zvault.ops.context import Context
from zvault.ops.healing.vault_damage import describe_excused
from zvault.ops.vaults.examine_pool import examine_pool, recheck_excused
from zvault.ops.vaults.name_damage import name_damage
from zvault.system.process.runner import ProcessResult

HALF = "cold/host/tank"


class Host:
    """A host with a pool that has errors, in what is half received or in what is ``damaged`` as well."""

    address = None

    def __init__(self) -> None:
        self.half, self.errors, self.damaged, self.scrubbing = True, 3, 0, False
        self.scan: dict[str, object] = {}
        self.ran: list[str] = []
        self.cut_short = False
        self.slow: asyncio.Event | None = None
        self.given_up = False

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        line = " ".join(argv)
        self.ran.append(line)
        code, out, err = 0, "", ""
        if line.startswith("zpool status -j"):
            out = json.dumps({"pools": {"cold": {"error_count": self.errors, "scan_stats": self.scan}}})
        elif line.startswith("zpool status -v"):
            assert not self.half, "the kernel crashes"
            names = [f"{HALF}:/file{number}" for number in range(self.errors)]
            out = json.dumps({"pools": {"cold": {"error_count": self.errors, "errlist": names}}})
        elif line.startswith("zfs get"):
            out = f"{HALF}\tinconsistent\t{int(self.half)}\n{HALF}\treceive_resume_token\t-\n"
            out, err = ("", "cannot iterate filesystems: I/O error\n") if self.cut_short else (out, err)
        elif line.startswith("zpool scrub -e"):
            assert not self.half, "the kernel crashes"
            if self.slow is not None:
                try:
                    await self.slow.wait()
                except asyncio.CancelledError:
                    self.given_up = True
                    raise
            if self.scrubbing:
                code, err = 1, "cannot scrub cold: currently scrubbing; use 'zpool scrub -s' to cancel"
            else:
                self.errors = self.damaged
        return ProcessResult(tuple(argv), code, out, err, 0.0)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def where(host: Host, tmp_path: Path) -> Context:
    """A vault on another host has no zdb to ask: there nothing is known of any error while that lasts."""
    it = context(folder=tmp_path, vault={"pool": "cold", "host": "ssh://root@peer"})
    zpool: Any = SimpleNamespace(runner=host, sync=_nothing)
    it.clients.zpool_of = lambda _: zpool  # type: ignore[method-assign]
    it.clients.vault_zfs = lambda _: SimpleNamespace(host=host, number=_born)  # type: ignore[assignment,method-assign,return-value]
    return with_vault(it, None)


async def _nothing(*_: object) -> None:
    pass


async def _born(*_: object) -> int:
    return 1


async def test_they_are_no_damage_from_the_first_look_on(where: Context, host: Host) -> None:
    seen = await examine_pool(where, "cold")
    assert (seen.errors, seen.damaging, seen.half_received) == (3, 0, (HALF,))
    assert await name_damage(where, where.env.vault("cold")) == []
    named = where.records.conditions.get("cold")
    assert named is not None
    assert (named.named, named.damaging, named.damages) == (3, 0, ())
    host.errors = 5
    assert (await examine_pool(where, "cold")).damaging == 0, "nor are more of them"
    assert not [line for line in host.ran if line.startswith(("zpool status -v", "zpool scrub"))]


async def test_where_it_cannot_be_told_what_is_half_received_errors_are_told_and_no_names_asked(
    where: Context, host: Host
) -> None:
    """A dataset so damaged that ZFS cannot open it cuts that listing short: its errors are not to be kept quiet."""
    host.cut_short = True
    assert (await examine_pool(where, "cold")).damaging == 3
    with pytest.raises(ToolFailed, match="cannot be listed whole"):
        await name_damage(where, where.env.vault("cold"))
    assert not [line for line in host.ran if line.startswith(("zpool status -v", "zpool scrub"))]


async def test_they_are_read_again_once_it_is_whole(where: Context, host: Host) -> None:
    await examine_pool(where, "cold")
    assert not await recheck_excused(where, "cold"), "it is half received still"
    host.half = False
    assert (await examine_pool(where, "cold")).damaging == 0
    assert await recheck_excused(where, "cold")
    now = where.records.conditions.get("cold")
    assert now is not None
    assert (now.errors, now.excused) == (0, 0)
    assert not await recheck_excused(where, "cold"), "once is enough"


async def test_they_are_left_to_the_next_boot_where_the_host_goes_down(where: Context, host: Host) -> None:
    """The last user of a vault has them read, for ten minutes at most, and a UPS does not wait for that."""
    await examine_pool(where, "cold")
    host.half = False
    where.activity.going_down = True
    assert not await recheck_excused(where, "cold")
    assert not [line for line in host.ran if line.startswith("zpool scrub")]
    where.activity.going_down = False
    assert await recheck_excused(where, "cold")


async def test_one_that_is_under_way_is_given_up_where_the_host_goes_down(where: Context, host: Host) -> None:
    await examine_pool(where, "cold")
    host.half, host.slow = False, asyncio.Event()
    recheck = asyncio.create_task(recheck_excused(where, "cold"))
    await eventually(lambda: any(line.startswith("zpool scrub -e") for line in host.ran))
    where.activity.going_down = True
    assert not await asyncio.wait_for(recheck, PATIENCE)
    assert host.given_up
    where.activity.going_down, host.slow = False, None
    assert await recheck_excused(where, "cold"), "after the next boot"


async def test_what_is_bad_then_is_damage(where: Context, host: Host) -> None:
    await examine_pool(where, "cold")
    host.half, host.damaged = False, 2
    await recheck_excused(where, "cold")
    now = where.records.conditions.get("cold")
    assert now is not None
    assert (now.damaging, now.named) == (2, 0), "and is to be named"
    await name_damage(where, where.env.vault("cold"))
    named = where.records.conditions.get("cold")
    assert named is not None
    assert (named.damaging, len(named.damages)) == (2, 2)


async def test_where_they_cannot_be_read_again_they_stay_unknown(where: Context, host: Host) -> None:
    await examine_pool(where, "cold")
    host.half, host.scrubbing = False, True
    with pytest.raises(ToolFailed):
        await recheck_excused(where, "cold")
    now = where.records.conditions.get("cold")
    assert now is not None
    assert (now.excused, now.damaging) == (3, 0)


async def test_errors_where_nothing_is_half_received_are_damage_at_once(where: Context, host: Host) -> None:
    host.half = False
    assert (await examine_pool(where, "cold")).damaging == 3


@pytest.mark.parametrize("bad", [0, 3])
async def test_where_no_zfs_can_read_them_again_the_next_whole_scrub_tells(
    where: Context, host: Host, bad: int
) -> None:
    """OpenZFS 2.1, and pools without head_errlog, have no ``zpool scrub -e``: damage must not be excused for ever."""

    def scrubbed(started: float) -> dict[str, object]:
        return {"function": "SCRUB", "state": "FINISHED", "start_time": started, "end_time": started + 60}

    await examine_pool(where, "cold")
    host.half, host.scrubbing = False, True
    with pytest.raises(ToolFailed):
        await recheck_excused(where, "cold")
    began = where.env.clock.time()
    host.scan = scrubbed(began - 600)
    assert (await examine_pool(where, "cold")).excused == 3, "it may have met the outage"
    known = where.records.conditions.get("cold")
    assert known is not None
    assert "whole scrub" in describe_excused(known)
    where.env.clock.at += 3600  # type: ignore[attr-defined]
    host.scan, host.errors = scrubbed(began + 60), bad
    seen = await examine_pool(where, "cold")
    assert (seen.excused, seen.damaging, seen.named) == (0, bad, 0)
