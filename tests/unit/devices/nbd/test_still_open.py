"""A device that somebody has open as it is disconnected: who it is, and whether the vault goes down all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zvault.devices.layer import DeviceSlot, FoundLayer
from zvault.devices.nbd import connection as nbd
from zvault.devices.nbd import nbdkit, source
from zvault.devices.nbd.source import KernelDevice, NbdSource, RecordedConnection
from zvault.system.process.runner import ProcessResult
from zvault.system.systemd_units import SystemdUnits

USER = "pvs (process 77, user root)"
UP = FoundLayer("up", "", "/dev/nbd0", 1 << 30, present=True)
RECORD = RecordedConnection("tcp:nas", 1, serves=False, number=0, pid=12, links=("1",))


class Host:
    """A kernel that keeps the device of process 12, and a systemd that says who has it open."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.ran.append(argv[0])
        return ProcessResult(tuple(argv), 0, f"{USER}\n" if argv[0] == "systemd-run" else "", "", 0.0)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(nbd, "read_nbd_status", lambda _: nbd.NbdDeviceStatus(12, 1 << 30))
    monkeypatch.setattr(nbd, "PAUSE", 0.0)
    clock = iter(range(10**6))
    monkeypatch.setattr(nbd.time, "monotonic", lambda: float(next(clock)))
    return Host()


async def test_who_has_it_open_is_named_and_no_reboot_is_asked_for(host: Host) -> None:
    with pytest.raises(nbd.StillOpen) as open_still:
        await nbd.disconnect_device(0, host)  # type: ignore[arg-type]
    assert USER in open_still.value.why
    assert "no reboot" in open_still.value.next
    assert host.ran == ["nbd-client", "systemd-run"]


@pytest.mark.parametrize(
    ("alive", "serves", "goes_down"),
    [(0, False, True), (1, False, False), (None, False, False), (1, True, True)],
)
async def test_the_number_is_left_to_them_only_where_nothing_reaches_the_store(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    alive: int | None,
    serves: bool,
    goes_down: bool,
) -> None:
    async def stop(*_: object) -> None:
        host.ran.append("stops the server")

    monkeypatch.setattr(nbdkit, "stop_nbdkit", stop)
    kernel = KernelDevice(nbd.NbdDeviceStatus(12, 1 << 30), ours=True, alive=alive)
    monkeypatch.setattr(source.KernelDevice, "of", lambda *_: kernel)
    said: list[str] = []
    layer: Any = NbdSource(host, SystemdUnits(host))  # type: ignore[arg-type]
    slot, data = DeviceSlot("cold", 0, tmp_path), replace(RECORD, serves=serves).as_data()
    if not goes_down:
        with pytest.raises(nbd.StillOpen):
            await layer.down(slot, data, UP, lost=False, say=said.append)
        return
    await layer.down(slot, data, UP, lost=False, say=said.append)
    assert USER in said[0]
    assert "takes another number" in said[0]
    assert ("stops the server" in host.ran) == serves


def test_a_number_whose_discards_were_turned_off_is_taken_last(tmp_path: Path) -> None:
    for index, (hw, limit) in enumerate([(4294966784, 0), (0, 0), (4294966784, 4294966784)]):
        queue = tmp_path / f"nbd{index}" / "queue"
        queue.mkdir(parents=True)
        (queue / "discard_max_hw_bytes").write_text(f"{hw}\n")
        (queue / "discard_max_bytes").write_text(f"{limit}\n")
    assert nbd.list_free_devices(tmp_path) == [1, 2, 3, 0]
