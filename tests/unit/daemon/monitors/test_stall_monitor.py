"""How the daemon finds out whose a stall is, and what it has heard already."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.diagnosis.stalls import HUNG_TASK_PATIENCE, StallLog, StallSign
from zvault.core.errors import DeadlineExceeded, ZvaultError
from zvault.daemon.monitors import stall_monitor as module
from zvault.daemon.monitors.stall_monitor import (
    SourcePositions,
    StallMonitor,
    list_device_names,
    read_hang_patience,
    read_positions,
)
from zvault.ops.vaults.undo_record import VaultUndoRecord
from zvault.system.kernel_log import KernelRecord
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore

HUNG = StallSign("hung_task", "zfs hangs", pid=427, zfs=True)
TXGS = "txg birth state\n8 0 S 0 0 0 0 0 0 0 0 0\n"


class Tools:
    """Programs, by the last word of their command line; what is not there fails, what is None hangs."""

    def __init__(self, said: dict[str, str | None]) -> None:
        self.said = said

    async def run(self, argv: list[str], **_: object) -> Any:
        text = self.said.get(argv[-1], "")
        if text is None:
            raise DeadlineExceeded("it hangs")
        return SimpleNamespace(returncode=0 if text else 1, stdout=text)


def watch(tmp_path: Path, said: dict[str, str | None]) -> StallMonitor:
    leases = RecordStore(tmp_path / "lease")
    found: list[Any] = []
    for name, device, host in (("cold", "nbd0", None), ("nas", "rbd0", None), ("far", "nbd0", "peer")):
        leases.put(f"vault/{name}", {"paths": [f"/dev/{device}"]})
        config = SimpleNamespace(pool=f"{name}pool", host=host)
        found.append(SimpleNamespace(name=name, lease=VaultUndoRecord(leases, name), config=config))
    pools = {vault.name: vault.config for vault in found}
    context: Any = SimpleNamespace(
        env=SimpleNamespace(
            runner=Tools(said),
            paths=SimpleNamespace(run=tmp_path),
            clock=SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 0.0),
            vault=pools.__getitem__,
        ),
        records=SimpleNamespace(undo=leases),
        activity=SimpleNamespace(asleep=False),
    )
    vaults: Any = SimpleNamespace(all=lambda: found)
    return StallMonitor(context, vaults, StallLog())


async def test_a_device_is_that_of_the_vault_on_this_host(tmp_path: Path):
    it = watch(tmp_path, {})
    assert await it._owner(StallSign("stuck_request", "", devices=("nbd0",))) == "cold"
    assert await it._owner(StallSign("deadman", "", pool="naspool")) == "nas"
    assert await it._owner(StallSign("deadman", "", pool="farpool")) is None


async def test_a_hung_process_is_asked_for_its_pool(tmp_path: Path):
    it = watch(tmp_path, {"/proc/427/cmdline": "zfs\0receive\0-s\0naspool/lab/tank\0"})
    assert await it._owner(HUNG) == "nas"


async def test_a_process_that_cannot_be_asked_waits_for_the_pool_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_since_boot", lambda: 100 * 10**9)
    monkeypatch.setattr(module, "list_imported_pools", lambda: ["coldpool"])
    said: dict[str, str | None] = {"/proc/427/cmdline": None, "/proc/spl/kstat/zfs/coldpool/txgs": TXGS}
    assert await watch(tmp_path, said)._owner(HUNG) == "cold"
    monkeypatch.setattr(module, "_since_boot", lambda: 10**9)
    assert await watch(tmp_path, said)._owner(HUNG) is None, "a second is no stall"


async def test_no_program_looks_at_the_groups_of_a_pool_that_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_since_boot", lambda: 100 * 10**9)
    monkeypatch.setattr(module, "list_imported_pools", lambda: ["coldpool"])
    said: dict[str, str | None] = {f"/proc/spl/kstat/zfs/{name}pool/txgs": TXGS for name in ("cold", "nas")}
    assert await watch(tmp_path, said)._syncing() == {"cold": (8, 100.0)}


async def test_what_is_told_names_the_vault(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    it = watch(tmp_path, {})
    it._note("cold", StallSign("deadman", "nbd0 is late", pool="coldpool"))
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "vault cold: nbd0 is late"
    assert {name: record.__dict__[name] for name in ("VAULT", "STALL")} == {
        "VAULT": "cold",
        "STALL": "deadman",
    }


def test_only_the_kernel_is_believed_and_nothing_is_heard_twice(tmp_path: Path):
    it = watch(tmp_path, {})
    it._heard.record = 10
    stuck = "block nbd0: Connection timed out"
    for record in (
        KernelRecord(9, True, stuck),
        KernelRecord(10, True, stuck),
        KernelRecord(11, False, stuck),
    ):
        it._hear_record(record)
    assert it._signs.empty()
    it._hear_record(KernelRecord(12, True, stuck))
    it._hear_record(KernelRecord(12, True, stuck))
    assert it._signs.qsize() == 1


def test_the_next_daemon_of_this_boot_knows_what_was_told(tmp_path: Path):
    it = watch(tmp_path, {})
    assert (it._heard.record, it._heard.event) == (None, None)
    it._write(SourcePositions(12, 7, 99))
    assert watch(tmp_path, {})._heard == SourcePositions(12, 7, 99)
    later = read_positions(RecordStore(tmp_path / "heard", boot_id="another boot"))
    assert (later.record, later.event) == (None, None)


@pytest.mark.parametrize(
    ("asleep", "why", "told"),
    [
        (False, "cannot get event: no such device", True),
        (True, "cannot get event: no such device", False),
        # Its process was frozen and goes on, by a suspend or a hypervisor: nothing is wrong.
        (False, "cannot get event: signal received", False),
    ],
)
async def test_events_that_end_at_once_are_told_unless_their_process_was_frozen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    asleep: bool,
    why: str,
    told: bool,
):
    async def follow(*_: object) -> None:
        raise ZvaultError("'zpool events' ended", why, "")

    monkeypatch.setattr(module, "follow_lines", follow)
    it = watch(tmp_path, {})
    it.context.activity.asleep = asleep  # type: ignore[misc]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(it._openzfs(), 0.05)
    assert ("cannot be followed" in caplog.text) is told


def test_devices_below_devices(tmp_path: Path):
    (tmp_path / "bcache0" / "slaves" / "nbd0").mkdir(parents=True)
    (tmp_path / "bcache0" / "slaves" / "nvme0n1p4").mkdir()
    (tmp_path / "nbd0" / "slaves").mkdir(parents=True)
    assert list_device_names(["/dev/bcache0", "/dev/rbd1"], tmp_path) == {
        "bcache0",
        "nbd0",
        "nvme0n1p4",
        "rbd1",
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30\n", 30.0), ("0\n", HUNG_TASK_PATIENCE), ("", HUNG_TASK_PATIENCE), (None, HUNG_TASK_PATIENCE)],
)
def test_patience_is_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: float
):
    file = tmp_path / "hung_task_timeout_secs"
    monkeypatch.setattr(module, "HUNG_TASK_TIMEOUT", file)
    if text is not None:
        file.write_text(text)
    assert read_hang_patience() == seconds


OOPS = (
    "Oops: 0000 [#1] PREEMPT SMP",
    "CPU: 1 UID: 0 PID: {pid} Comm: {name} Tainted: P",
    "RIP: 0010:{place}+0x1/0x2",
)


def crash(it: StallMonitor, pid: int, name: str, place: str) -> None:
    it._heard.record = 0
    for line in OOPS:
        text = line.format(pid=pid, name=name, place=place)
        it._hear_record(KernelRecord((it._heard.record or 0) + 1, kernel=True, text=text))
    it._hear_silence()


async def test_a_crash_of_the_kernel_in_what_zvault_started_holds_for_this_boot(tmp_path: Path):
    it = watch(tmp_path, {})
    done = await HostRunner().run(["sh", "-c", "echo $$"])
    crash(it, int(done.stdout), "sh", "sa_find_idx_tab")
    (told,) = it.stalls.crashes
    assert "'sh -c echo $$'" in told
    assert "sa_find_idx_tab" in told
    crash(it, int(done.stdout), "sh", "sa_find_idx_tab")
    assert it.stalls.crashes == [told], "once is enough"
    assert watch(tmp_path, {}).stalls.crashes == [told], "the next daemon runs on the same kernel"
    RecordStore(tmp_path / "heard", boot_id="before").put("crashes", {"texts": [told]})
    assert watch(tmp_path, {}).stalls.crashes == []


async def test_a_crash_elsewhere_is_told_where_it_is_in_openzfs(tmp_path: Path):
    it = watch(tmp_path, {})
    crash(it, 1, "nfsd", "nfsd_dispatch")
    assert it.stalls.crashes == []
    crash(it, 1, "txg_sync", "dsl_scan_sync")
    assert "txg_sync (process 1)" in it.stalls.crashes[0]
