"""nbd-client's argv, the kernel's socket lists, which devices are free, what a device's state means."""

from dataclasses import replace
from pathlib import Path

import pytest

from zvault.devices import nbd
from zvault.devices.record import Record, Seen, Slot
from zvault.devices.sockets import kernel_address, tcp_links, unix_links, unix_listening
from zvault.devices.target import TcpTarget, UnixTarget
from zvault.system.units import UnitState

# From Linux 7.2: a server that listens, two clients of it, and a server of the same folder.
UNIX = """\
Num       RefCount Protocol Flags    Type St Inode Path
00000000de2db643: 00000003 00000000 00000000 0001 03  1279 /run/t/a b.sock
00000000a93665a2: 00000003 00000000 00000000 0001 03  1276 /run/t/a b.sock
00000000cd35a8be: 00000002 00000000 00010000 0001 01  1198 /run/t/a b.sock
000000009830fb51: 00000003 00000000 00000000 0001 03   961 /run/t/a
000000009830fb52: 00000003 00000000 00000000 0001 03     0 /run/t/a b.sock
000000009830fb53: 00000003 00000000 00000000 0001 03   962
"""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2A94 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1283 1 0 100 0 0 10 0
   1: 0100007F:A14C 0100007F:2A94 01 00000000:00000000 00:00000000 00000000     0        0 1317 1 0 21 4 1 10 -1
   2: 0100007F:A15C 0100007F:2A94 05 00000000:00000000 00:00000000 00000000     0        0 1322 1 0 21 4 29 10 -1
   3: 0100007F:2A94 0100007F:A14C 01 00000000:00000000 00:00000000 00000000     0        0 1318 1 0 21 4 1 10 -1
"""


@pytest.fixture
def proc_net(tmp_path: Path) -> Path:
    (tmp_path / "unix").write_text(UNIX)
    (tmp_path / "tcp").write_text(TCP)
    return tmp_path


def test_links_of_a_unix_socket(proc_net: Path):
    assert unix_listening("/run/t/a b.sock", proc_net)
    assert not unix_listening("/run/t/a", proc_net)
    assert unix_links("/run/t/a b.sock", proc_net) == {"1279", "1276"}
    assert unix_links("/run/t/a", proc_net) == {"961"}
    assert unix_links("/run/t/b", proc_net) == set()


def test_links_over_tcp_are_this_ends_and_established(proc_net: Path):
    assert tcp_links("127.0.0.1", 0x2A94, proc_net) == {"0100007F:A14C"}
    assert tcp_links("127.0.0.2", 0x2A94, proc_net) == set()
    assert tcp_links("::1", 0x2A94, proc_net) == set()


@pytest.mark.skipif("__import__('sys').byteorder != 'little'", reason="written for little-endian hosts")
def test_addresses_as_the_kernel_writes_them():
    assert kernel_address("192.168.1.10") == "0A01A8C0"
    assert kernel_address("::1") == "00000000000000000000000001000000"
    assert kernel_address("fe80::1%eth0") == "000080FE000000000000000001000000"


def test_command():
    unix, tcp = UnixTarget("/run/a b.sock"), TcpTarget("192.0.2.1", 10809, "cold store")
    assert nbd.command(unix, 3, timeout=90.0, connections=4) == [
        "nbd-client",
        "-unix",
        "/run/a b.sock",
        "/dev/nbd3",
        "-timeout",
        "90",
        "-connections",
        "4",
    ]
    assert nbd.command(tcp, 0, timeout=0.2, connections=1) == [
        "nbd-client",
        "192.0.2.1",
        "10809",
        "/dev/nbd0",
        "-timeout",
        "1",
        "-connections",
        "1",
        "-name",
        "cold store",
    ]


def device(sysfs: Path, index: int, size: int = 0, pid: int | None = None) -> None:
    folder = sysfs / f"nbd{index}"
    folder.mkdir()
    (folder / "size").write_text(f"{size}\n")
    if pid is not None:
        (folder / "pid").write_text(f"{pid}\n")


def test_free_devices(tmp_path: Path):
    assert nbd.candidates(tmp_path) == [0]
    device(tmp_path, 0, 2048, 77)
    device(tmp_path, 10)
    device(tmp_path, 2)
    device(tmp_path, 3, 2048)  # set up, but not by netlink
    (tmp_path / "nbdx").mkdir()
    assert nbd.candidates(tmp_path) == [2, 10, 11]
    assert nbd.status(0, tmp_path) == nbd.Status(77, 1 << 20)
    assert nbd.status(5, tmp_path) == nbd.Status(None, 0)


def test_a_process_leaves_its_number(tmp_path: Path):
    file = tmp_path / "cold-0.client"
    assert nbd.owner(file) is None
    file.write_text("")
    assert nbd.owner(file) is None
    file.write_text("4711\n")
    assert nbd.owner(file) == 4711


def test_a_record_comes_back_from_its_lease():
    record = Record(
        "tcp:nas/x",
        2,
        tcp=("192.0.2.1", 10809),
        number=3,
        pid=12,
        links=("a", "b"),
        queue={"scheduler": "none"},
    )
    lease = {**record.as_lease(), "boot_id": "x", "time": 1.0, "stale": False}
    lease["tcp"], lease["links"] = ["192.0.2.1", 10809], ["a", "b"]  # JSON has no tuples
    assert Record.from_lease(lease) == record
    assert Record.from_lease({"spec": "unix:/x", "connections": 1, "of a later version": 1}).unix is None


SLOT = Slot("cold", 0, Path("/run/zvault/device"))
RUNS = UnitState(SLOT.server.unit, True, "active", "success", 99)
DIED = UnitState(SLOT.server.unit, True, "failed", "signal", 0)
SERVED = Record("nbdkit:file /x", 2, serves=True, unix="/s", number=3, pid=12, links=("1", "2"))
FULL = Seen(SLOT, SERVED, RUNS, nbd.Status(12, 1 << 30), ours=True, alive=2)


@pytest.mark.parametrize(
    ("seen", "state", "detail", "usable"),
    [
        (Seen(SLOT, None, None), "down", "", False),
        (Seen(SLOT, None, DIED), "down", "", False),
        (Seen(SLOT, None, RUNS), "partial", "no record", False),
        (FULL, "up", "", True),
        (replace(FULL, alive=None), "up", "", True),
        (replace(FULL, alive=1), "partial", "1 of 2 connections", True),
        (replace(FULL, alive=0), "gone", "is lost", False),
        (replace(FULL, unit=DIED, alive=0), "gone", "failed (signal)", False),
        (replace(FULL, ours=False, status=nbd.Status(13, 1)), "gone", "somebody else's", False),
        (replace(FULL, ours=False, status=nbd.Status(None, 0)), "gone", "not connected any more", False),
        (Seen(SLOT, Record("unix:/x", 1), None), "partial", "being brought up", False),
        (Seen(SLOT, Record("nbdkit:x", 1, serves=True), DIED), "partial", "being brought up", False),
    ],
)
def test_what_a_devices_state_is(seen: Seen, state: str, detail: str, usable: bool):
    assert seen.verdict()[0] == state
    assert detail in seen.verdict()[1]
    assert seen.usable is usable
