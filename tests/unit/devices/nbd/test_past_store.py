"""The server of a block store as it was: it writes to no bucket, takes no lease, and is nobody that writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.blockstore.serve_options import ServeOptions
from zvault.config.device_specs.blockstore import SERVER_USER_IDS, BlockstoreServer
from zvault.config.device_specs.nbd import parse_nbd
from zvault.config.tables.device import Device
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import guarded_server
from zvault.devices.nbd.past_store import FOR_WRITING, PastStore, make_past_device, strip_for_reading

TEXT = (
    "zvault:zv/cold size=10T mode=writeback journal=/j journal-size=64M cache=/c cache-size=64M history=last:3"
    " lock=compliance:2d lease-bucket=leases gc=elsewhere credential=zvault.s3 upload=1M encryption-key=/k"
)


@pytest.fixture
def past() -> Device:
    return make_past_device(Device.model_validate({"nbd": TEXT, "lease": "1m"}), "3-120", "/var/overlay")


def spec_of(device: Device) -> PastStore:
    assert isinstance(device.nbd, PastStore)
    return device.nbd


def test_its_argv(past: Device):
    slot = DeviceSlot("cold:3-120", 0, Path("/run/zvault/device"))
    argv = guarded_server.guarded_server_argv(slot, past, spec_of(past))
    assert argv[:5] == ["env", "TMPDIR=/var/overlay", "nbdkit", "-f", "--filter=cow"], "no guard of a lease"
    assert "-r" not in argv, "the device can be written to"
    words = argv[next(i for i, word in enumerate(argv) if word.endswith("nbdkit_plugin.py")) + 1 :]
    told = ServeOptions.of(words)
    assert (told.readonly, told.at, told.create) == (True, (3, 120), False)
    assert told.spec.encryption == {"encryption-key": "/k"}
    assert told.status == Path("/run/zvault/device/cold:3-120-0.store/status")
    assert not FOR_WRITING & {word.partition("=")[0] for word in words}
    assert guarded_server.make_server(slot, spec_of(past)).unit == "zvault-blockstore@cold:3-120-0.service"


def test_it_is_told_apart_from_the_store_of_now(past: Device):
    assert past.spec.endswith(" at=3-120")
    assert past.lease_bound is None


@given(st.integers(0, 1000), st.integers(1, 10**6))
def test_its_user_is_another_than_that_of_the_server_that_writes(epoch: int, number: int):
    device = Device.model_validate({"nbd": TEXT})
    writer = device.nbd
    assert isinstance(writer, BlockstoreServer)
    found = spec_of(make_past_device(device, f"{epoch}-{number}", "/o"))
    assert found.user in SERVER_USER_IDS
    assert found.user != writer.user


def test_what_is_for_writing_is_left_out_and_nothing_else():
    spec = parse_nbd(TEXT)
    assert isinstance(spec, BlockstoreServer)
    left = {word.partition("=")[0] for word in strip_for_reading(spec).settings}
    assert left == {word.partition("=")[0] for word in spec.settings} - FOR_WRITING
    assert "credential" in left
