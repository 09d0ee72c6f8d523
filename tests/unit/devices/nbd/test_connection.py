"""nbd-client's argv, the kernel's socket lists, which devices are free, what a device's state means."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zvault.core.errors import ToolFailed, ToolMissing
from zvault.devices.device_record import DeviceRecord, FoundDevice, FoundLevel, LayerRecord
from zvault.devices.layer import DeviceSlot, FoundLayer
from zvault.devices.nbd import connection as nbd
from zvault.devices.nbd.sockets import (
    encode_kernel_address,
    is_unix_listening,
    list_tcp_links,
    list_unix_links,
)
from zvault.devices.nbd.source import KernelDevice, NbdSource, RecordedConnection, judge_connection
from zvault.devices.nbd.target import TcpTarget, TlsFiles, UnixTarget
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

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
    assert is_unix_listening("/run/t/a b.sock", proc_net)
    assert not is_unix_listening("/run/t/a", proc_net)
    assert list_unix_links("/run/t/a b.sock", proc_net) == {"1279", "1276"}
    assert list_unix_links("/run/t/a", proc_net) == {"961"}
    assert list_unix_links("/run/t/b", proc_net) == set()


def test_links_over_tcp_are_this_ends_and_established(proc_net: Path):
    assert list_tcp_links("127.0.0.1", 0x2A94, proc_net) == {"0100007F:A14C"}
    assert list_tcp_links("127.0.0.2", 0x2A94, proc_net) == set()
    assert list_tcp_links("::1", 0x2A94, proc_net) == set()


@pytest.mark.skipif("__import__('sys').byteorder != 'little'", reason="written for little-endian hosts")
def test_addresses_as_the_kernel_writes_them():
    assert encode_kernel_address("192.168.1.10") == "0A01A8C0"
    assert encode_kernel_address("::1") == "00000000000000000000000001000000"
    assert encode_kernel_address("fe80::1%eth0") == "000080FE000000000000000001000000"


def test_command():
    unix, tcp = UnixTarget("/run/a b.sock"), TcpTarget("192.0.2.1", 10809, "cold store")
    assert nbd.connect_argv(unix, 3, timeout=90.0, connections=4) == [
        "nbd-client",
        "-unix",
        "/run/a b.sock",
        "/dev/nbd3",
        "-timeout",
        "90",
        "-connections",
        "4",
    ]
    assert nbd.connect_argv(tcp, 0, timeout=0.2, connections=1) == [
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


def test_over_tls_it_runs_in_a_scope_of_its_own():
    tls = TlsFiles("/t/ca-cert.pem", "nas.lab", "/t/client-cert.pem", "/t/client-key.pem")
    argv = nbd.connect_argv(TcpTarget("192.0.2.1", 10809, tls=tls), 0, timeout=9, connections=1)
    after = argv[argv.index("--") + 1 :]
    assert argv[:2] == ["systemd-run", "--scope"]
    assert after[:5] == ["nbd-client", "192.0.2.1", "10809", "/dev/nbd0", "-timeout"]
    assert " ".join(after[8:]) == (
        "-cacertfile /t/ca-cert.pem -tlshostname nas.lab -certfile /t/client-cert.pem -keyfile /t/client-key.pem"
    )
    assert TlsFiles("/c", "h").words() == ["-cacertfile", "/c", "-tlshostname", "h"]


def device(sysfs: Path, index: int, size: int = 0, pid: int | None = None) -> None:
    folder = sysfs / f"nbd{index}"
    folder.mkdir()
    (folder / "size").write_text(f"{size}\n")
    if pid is not None:
        (folder / "pid").write_text(f"{pid}\n")


def test_free_devices(tmp_path: Path):
    assert nbd.list_free_devices(tmp_path) == [0]
    device(tmp_path, 0, 2048, 77)
    device(tmp_path, 10)
    device(tmp_path, 2)
    device(tmp_path, 3, 2048)  # set up, but not by netlink
    (tmp_path / "nbdx").mkdir()
    assert nbd.list_free_devices(tmp_path) == [2, 10, 11]
    assert nbd.read_nbd_status(0, tmp_path) == nbd.NbdDeviceStatus(77, 1 << 20)
    assert nbd.read_nbd_status(5, tmp_path) == nbd.NbdDeviceStatus(None, 0)


def test_partitions_and_a_module_without_devices_are_no_obstacle(tmp_path: Path):
    """max_part gives a device's partitions folders below its own; with nbds_max=0 the first device is made when
    it is connected. Both were seen in a guest, with nbd.nbds_max=0 on its kernel's command line; 16 partitions and more
    are the kernel's default, and so the lab's.
    """
    assert nbd.list_free_devices(tmp_path) == [0], "nbds_max=0"
    device(tmp_path, 0, 2048, 77)
    device(tmp_path, 1)
    for partition in ("nbd0p1", "nbd0p2"):
        (tmp_path / "nbd0" / partition).mkdir()
    (tmp_path / "nbd1p1").mkdir()
    assert nbd.list_free_devices(tmp_path) == [1, 2]


class NoModule:
    """A host with nbd-client, whose kernel has no nbd. What systemd says was seen with 257 of Debian 13."""

    def __init__(self, *, brings: Path | None = None) -> None:
        self.asked: list[Sequence[str]] = []
        self.brings = brings

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.asked.append(argv)
        if self.brings is not None and argv[0] == "systemctl":
            self.brings.mkdir()
        return ProcessResult(tuple(argv), 0, "", "", 0.0)


async def test_a_kernel_without_nbd_is_told_and_one_whose_module_is_not_loaded_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(nbd, "NBD_MODULE", tmp_path / "nbd")
    without = NoModule()
    with pytest.raises(ToolMissing, match="the kernel has no network block devices") as missing:
        await nbd.check_nbd_client(without)  # type: ignore[arg-type]
    assert missing.value.why == "'modprobe nbd' did not load it"
    assert "install a kernel that has the nbd module" in missing.value.next
    there = NoModule(brings=tmp_path / "nbd")
    await nbd.check_nbd_client(there)  # type: ignore[arg-type]
    assert there.asked[-1] == ["systemctl", "start", "modprobe@nbd.service"]
    await nbd.check_nbd_client(there)  # type: ignore[arg-type]
    assert len(there.asked) == 3, "it is loaded once"


NO_NETLINK = (
    "Error: Couldn't resolve the nbd netlink family, make sure the nbd module is loaded and your nbd driver supports"
    " the netlink interface.\n"
)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (NO_NETLINK, "'modprobe nbd'"),
        ("Error: Socket failed: Connection refused\n", "see that the server runs"),
    ],
)
async def test_a_kernel_that_cannot_connect_is_not_taken_for_a_server_that_is_away(
    tmp_path: Path, said: str, advice: str
) -> None:
    """What Debian 13's nbd-client says without nbd's netlink was seen in a guest (initcall_blacklist=nbd_init)."""

    class Refusing:
        async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
            return ProcessResult(tuple(argv), 1, "", said, 0.0)

    host: Any = Refusing()
    with pytest.raises(ToolFailed, match="cannot be connected") as failed:
        await nbd.connect_device(
            UnixTarget("/nowhere"), tmp_path / "client", print, host, timeout=5.0, connections=1
        )
    assert failed.value.next.startswith(advice)


def test_a_process_leaves_its_number(tmp_path: Path):
    file = tmp_path / "cold-0.client"
    assert nbd.read_owner_pid(file) is None
    file.write_text("")
    assert nbd.read_owner_pid(file) is None
    file.write_text("4711\n")
    assert nbd.read_owner_pid(file) == 4711


def test_a_connection_comes_back_from_its_lease():
    connection = RecordedConnection(
        "tcp:nas/x", 2, tcp=("192.0.2.1", 10809), number=3, pid=12, links=("a", "b")
    )
    data = json.loads(json.dumps(connection.as_data()))
    assert RecordedConnection.of_data(data) == connection
    assert (
        RecordedConnection.of_data({"spec": "unix:/x", "connections": 1, "of a later version": 1}).unix
        is None
    )


def test_a_record_comes_back_from_its_lease():
    record = DeviceRecord(
        "tcp:nas/x",
        (LayerRecord("nbd", {"number": 3}), LayerRecord("bcache")),
        {"nbd3": {"scheduler": "none"}},
    )
    lease = json.loads(json.dumps({**record.as_lease(), "boot_id": "x", "time": 1.0, "stale": False}))
    assert DeviceRecord.from_lease(lease) == record
    assert record.with_data(1, {"a": 1}).layers == (
        LayerRecord("nbd", {"number": 3}),
        LayerRecord("bcache", {"a": 1}),
    )


SLOT = DeviceSlot("cold", 0, Path("/run/zvault/device"))
RUNS = UnitState(SLOT.server.unit, True, "active", "success", 99)
DIED = UnitState(SLOT.server.unit, True, "failed", "signal", 0)
SERVED = RecordedConnection("nbdkit:file /x", 2, serves=True, unix="/s", number=3, pid=12, links=("1", "2"))
FULL = KernelDevice(nbd.NbdDeviceStatus(12, 1 << 30), ours=True, alive=2)
NEW = RecordedConnection("nbdkit:x", 1, serves=True)


@pytest.mark.parametrize(
    ("connection", "unit", "kernel", "state", "detail", "usable"),
    [
        (SERVED, RUNS, FULL, "up", "", True),
        (SERVED, RUNS, replace(FULL, alive=None), "up", "", True),
        (SERVED, RUNS, replace(FULL, alive=1), "partial", "1 of 2 connections", True),
        (SERVED, RUNS, replace(FULL, alive=0), "gone", "is lost", False),
        (SERVED, DIED, replace(FULL, alive=0), "gone", "failed (signal)", False),
        (SERVED, RUNS, KernelDevice(nbd.NbdDeviceStatus(13, 1), False, 2), "gone", "somebody else's", False),
        (
            SERVED,
            RUNS,
            KernelDevice(nbd.NbdDeviceStatus(None, 0), False, 0),
            "gone",
            "not connected any more",
            False,
        ),
        (RecordedConnection("unix:/x", 1), None, None, "partial", "being brought up", False),
        (NEW, DIED, None, "partial", "being brought up", False),
    ],
)
def test_what_a_connections_state_is(
    connection: RecordedConnection,
    unit: UnitState | None,
    kernel: KernelDevice | None,
    state: str,
    detail: str,
    usable: bool,
):
    found = judge_connection(connection, unit, kernel)
    assert (found.state, found.usable, found.present) == (state, usable, True)
    assert detail in found.detail
    assert (found.path == "/dev/nbd3") is (kernel is not None and kernel.ours)


@pytest.mark.parametrize(
    ("unit", "found"),
    [
        (None, FoundLayer()),
        (UnitState(SLOT.server.unit, True, "inactive", "", 0), FoundLayer()),
        (DIED, FoundLayer(present=True)),
    ],
)
def test_a_source_without_a_lease(unit: UnitState | None, found: FoundLayer):
    source = NbdSource(HostRunner(), SystemdUnits(HostRunner()))
    assert source.look(SLOT, None, unit) == found
    runs = source.look(SLOT, None, RUNS)
    assert (runs.state, runs.usable, runs.present) == ("partial", False, True)
    assert "no record" in runs.detail


UP = FoundLayer("up", path="/dev/nbd3", size=9, present=True)
CACHED = FoundLayer("up", path="/dev/bcache0", size=8, present=True)
NO_CACHE = replace(CACHED, state="partial", detail="it runs without its cache")
LOST = replace(UP, state="gone", detail="its server died")
RECORD = DeviceRecord("x", (LayerRecord("nbd"), LayerRecord("bcache")))


@pytest.mark.parametrize(
    ("layers", "record", "verdict", "path", "topmost"),
    [
        ([UP], RECORD, ("up", ""), "/dev/nbd3", UP),
        ([UP, CACHED], RECORD, ("up", ""), "/dev/bcache0", CACHED),
        ([UP, NO_CACHE], RECORD, ("partial", "it runs without its cache"), "/dev/bcache0", NO_CACHE),
        ([LOST, NO_CACHE], RECORD, ("gone", "its server died"), "/dev/bcache0", NO_CACHE),
        (
            [UP, FoundLayer()],
            RECORD,
            ("partial", "it is being brought up, or was when zvault stopped"),
            None,
            UP,
        ),
        ([FoundLayer(), FoundLayer()], None, ("down", ""), None, None),
    ],
)
def test_a_device_is_as_its_lowest_layer_that_is_not_up(
    layers: list[FoundLayer],
    record: DeviceRecord | None,
    verdict: tuple[str, str],
    path: str | None,
    topmost: FoundLayer | None,
):
    seen = FoundDevice(SLOT, record, tuple(FoundLevel("any", {}, found) for found in layers))
    assert (seen.verdict(), seen.path, seen.topmost) == (verdict, path, topmost)
    assert seen.usable is (verdict[0] in {"up", "partial"} and path is not None)
