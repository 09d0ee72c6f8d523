"""What a takeover shows, and when it is refused."""

from pathlib import Path

import pytest

from zvault.config.tables.device import Device
from zvault.config.tables.vault import Vault
from zvault.core.errors import Refused
from zvault.devices.device_holder import StorageHolder
from zvault.devices.layer import CreationCommand, DeviceSlot
from zvault.ops.vaults.fencing import DeviceHolder, make_takeover_document, refuse_unless_fenced

IMAGE = Device.model_validate({"rbd": "p/i"})
SERVER = Device.model_validate({"nbd": "tcp:nas"})
FENCE = CreationCommand("shut it out", ["ceph", "osd", "blocklist", "add", "10.0.0.7:0/1"])
OLD = StorageHolder("filer1 (10.0.0.7)", "has it open", (FENCE,))
UNKNOWN = StorageHolder(state="not known", by_hand="an NBD server knows no lock")


def document(*held: tuple[Device, StorageHolder]) -> dict[str, object]:
    vault = Vault(pool="cold", device=[device for device, _ in held])
    devices = [DeviceHolder(DeviceSlot("cold", i, Path("/run")), *one) for i, one in enumerate(held)]
    return make_takeover_document("cold", vault, devices)


def test_what_is_shown():
    shown = document((IMAGE, OLD), (SERVER, UNKNOWN))
    assert shown["holders"] == ["filer1 (10.0.0.7)", None]
    assert shown["command"] == "zpool import -f -N -o cachefile=none -d cold-0 -d cold-1 cold"
    first, second = shown["devices"]  # type: ignore[misc]
    assert first["steps"] == [{"what": "shut it out", "command": "ceph osd blocklist add 10.0.0.7:0/1"}]
    assert (second["steps"], second["by_hand"]) == ([], "an NBD server knows no lock")


@pytest.mark.parametrize(
    ("holders", "by_hand"), [(["filer1 (10.0.0.7)"], False), (["filer1 (10.0.0.7)"], True)]
)
def test_one_that_can_be_shut_out_is_taken_from_whom_was_shown(holders: list[str], by_hand: bool):
    refuse_unless_fenced(document((IMAGE, OLD)), holders, by_hand=by_hand)


@pytest.mark.parametrize("holders", [None, [], [None], ["filer2"]])
def test_nobody_else_is_shut_out(holders: object):
    with pytest.raises(Refused, match="changed hands") as caught:
        refuse_unless_fenced(document((IMAGE, OLD)), holders, by_hand=True)
    assert "filer1" in caught.value.why


def test_what_cannot_be_shut_out_needs_somebodys_word():
    both = document((IMAGE, OLD), (SERVER, UNKNOWN))
    holders = both["holders"]
    with pytest.raises(Refused, match="cannot be taken over") as caught:
        refuse_unless_fenced(both, holders, by_hand=False)
    assert "--fenced-by-hand" in caught.value.next
    refuse_unless_fenced(both, holders, by_hand=True)


def test_a_pool_without_devices_too():
    bare = document()
    with pytest.raises(Refused, match="cannot be taken over"):
        refuse_unless_fenced(bare, bare["holders"], by_hand=False)
    assert bare["command"] == "zpool import -f -N -o cachefile=none cold"
