"""A slot for a device and the server that its configuration asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import parse_nbd
from zvault.devices.layer import DeviceSlot

TEXT = "zvault:zv/cold size=10T endpoint=https://s3.example.org region=eu credential=zvault.s3"


@pytest.fixture(name="slot")
def slot_for_test(tmp_path: Path) -> DeviceSlot:
    return DeviceSlot("cold", 0, tmp_path)


def spec(text: str) -> BlockstoreServer:
    found = parse_nbd(text)
    assert isinstance(found, BlockstoreServer)
    return found
