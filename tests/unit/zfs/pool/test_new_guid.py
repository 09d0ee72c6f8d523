"""The change of a pool's GUID: what it can reach, and what is believed of what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.system.systemd_units import SystemdUnits
from zvault.zfs.pool import new_guid


class Host:
    """Answers, and what was run."""

    def __init__(self, returncode: int = 0, out: str = "", err: str = "") -> None:
        self.answer = ProcessResult(("zpool",), returncode, out, err, 0.0)
        self.ran: list[list[str]] = []
        self.hangs = False

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.ran.append(list(argv))
        if argv[0] == "systemctl":
            return ProcessResult(tuple(argv), 0, f"Id={argv[-1]}\nActiveState=inactive\n", "", 0.0)
        if self.hangs:
            await asyncio.Event().wait()
        return self.answer


async def change(host: Any) -> int:
    return await new_guid.change_guid(host, SystemdUnits(host), "/dev/nbd3", "cold_then", "cold:1-2")


def test_it_reaches_its_device_and_no_other():
    argv = new_guid.change_guid_argv("/dev/nbd3", "cold_then", "cold:1-2")
    properties = [argv[i + 1] for i, word in enumerate(argv) if word == "-p"]
    assert "TemporaryFileSystem=/dev:mode=755" in properties
    assert "DevicePolicy=closed" in properties
    assert "ProtectSystem=strict" in properties
    assert "CapabilityBoundingSet=" in properties
    devices = {
        word for one in properties for word in one.partition("=")[2].split() if word.startswith("/dev/")
    }
    assert {word for word in devices if "nbd" in word} == {"/dev/nbd3"}
    assert argv[-2:] == ["/dev/nbd3", "cold_then"]
    assert f"--unit={new_guid.name_change_unit('cold:1-2')}" in argv
    assert new_guid.NEW_GUID_CHILD.is_file()


def test_what_it_reads_of_a_bucket_gets_at_nothing_of_the_host():
    argv = new_guid.change_guid_argv("/dev/nbd3", "cold_then", "cold:1-2")
    properties = {argv[i + 1] for i, word in enumerate(argv) if word == "-p"}
    assert properties >= {
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictNamespaces=yes",
        "TemporaryFileSystem=/run:ro",
        "SystemCallFilter=@system-service",
        "SystemCallErrorNumber=EPERM",
    }
    # With /run among them a unit does not start (226/NAMESPACE): seen with systemd 253 (systemd's issue 27997).
    assert not any(one.startswith("InaccessiblePaths=") for one in properties)


async def test_the_guid_that_it_says():
    assert await change(Host(out="17196771132410102962\n")) == 17196771132410102962


@pytest.mark.parametrize(
    "host",
    [
        Host(1, err="its pool cannot be imported: Input/output error"),
        Host(out=""),
        Host(out="-1"),
        Host(out="9" * 40),
    ],
)
async def test_what_it_says_that_is_no_guid(host: Host):
    with pytest.raises(ToolFailed, match="cannot be made one beside"):
        await change(host)


async def test_who_stops_waiting_ends_it():
    host = Host()
    host.hangs = True
    task = asyncio.create_task(change(host))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ["systemctl", "--quiet", "stop", "zvault-guid-cold:1-2.service"] in host.ran


async def test_the_import_writes_nothing_and_mounts_nothing():
    host: Any = Host()
    await new_guid.import_readonly(host, "cold_then", 7, "/dev/nbd3", "/run/x")
    ((*argv,),) = host.ran
    assert argv == [
        *("zpool", "import", "-N", "-o", "readonly=on", "-o", "cachefile=none", "-R", "/run/x"),
        *("-d", "/dev/nbd3", "7"),
    ]
    failing: Any = Host(1, err="cannot import")
    with pytest.raises(ToolFailed, match="cold_then"):
        await new_guid.import_readonly(failing, "cold_then", 7, "/dev/nbd3", "/run/x")
