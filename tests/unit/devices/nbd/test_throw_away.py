"""A block store served so that what is written to it ends with the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.blockstore.latest_device import READ_PATIENCE
from zvault.config.device_specs.blockstore import parse_store_words
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.tables.device import Device
from zvault.core.errors import Refused
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import guarded_server
from zvault.devices.nbd.source import compute_request_timeout

SPEC = parse_store_words(["bucket=zv", "key=cold", "size=1G"])


def test_a_copy_that_is_thrown_away_neither_writes_to_the_store_nor_asks_for_its_lease(
    tmp_path: Path,
) -> None:
    slot = DeviceSlot("cold", 0, tmp_path)
    argv = guarded_server.throw_away_server_argv(slot, SPEC)
    assert argv[0] == "nbdkit", "it runs below a guard"
    assert argv.index("--filter=cow") < argv.index("python")
    assert {"readonly=yes", "latest=yes"} <= set(argv), (
        "what its writer removes would fail the pool in its export"
    )
    assert "cow-block-size=4096" in argv, "a write would wait for the store, for the rest of its block"
    assert "-r" not in argv, "the pool could not write"
    assert not [word for word in argv if word.startswith(("create=", "seen=", "journal="))]
    with pytest.raises(Refused, match="no copy"):
        guarded_server.throw_away_server_argv(slot, NbdkitServer("S3"))


@pytest.mark.parametrize("timeout", ["6s", "90s", "10m"])
def test_the_kernel_waits_for_a_copy_until_its_server_has_given_up_the_store(timeout: str) -> None:
    device = Device.model_validate({"nbd": str(SPEC), "timeout": timeout})
    assert compute_request_timeout(device, throw_away=False) == device.timeout
    assert compute_request_timeout(device, throw_away=True) >= max(device.timeout, 6 * READ_PATIENCE), (
        "two requests after each other, each tried again, and the look for a newer checkpoint"
    )
