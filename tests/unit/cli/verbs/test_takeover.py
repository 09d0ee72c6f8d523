"""zvaultctl vault take: shows who has it, and orders only what was shown."""

from pathlib import Path

import pytest

from tests.unit.cli.api_documents import vault
from zvault.config.tables.device import Device
from zvault.config.tables.vault import Vault
from zvault.devices.device_holder import StorageHolder
from zvault.devices.layer import CreationCommand, DeviceSlot
from zvault.ops.vaults.fencing import DeviceHolder, make_takeover_document

IMAGE = Device.model_validate({"rbd": "p/i"})
SERVER = Device.model_validate({"nbd": "tcp:nas"})
FENCE = CreationCommand("shut it out of the cluster", ["ceph", "osd", "blocklist", "add", "10.0.0.7:0/1"])
TAKEOVER = make_takeover_document(
    "cold",
    Vault(pool="cold", device=[IMAGE, SERVER]),
    [
        DeviceHolder(
            DeviceSlot("cold", 0, Path("/run")),
            IMAGE,
            StorageHolder("filer1 (10.0.0.7)", "has it open", (FENCE,)),
        ),
        DeviceHolder(
            DeviceSlot("cold", 1, Path("/run")),
            SERVER,
            StorageHolder(state="not known", by_hand="an NBD server knows no lock"),
        ),
    ],
)


@pytest.fixture
def held(daemon):
    daemon.documents["GET /v1/vaults/cold/takeover"] = {"takeover": TAKEOVER}
    daemon.documents["POST /v1/vaults/cold/take"] = {"vault": vault()}
    return daemon


def orders(daemon):
    return [body for asked, _, body in daemon.asked if asked.startswith("POST")]


@pytest.mark.parametrize(("arguments", "code"), [(["-n"], 0), ([], 2)])
def test_it_is_shown_and_nobody_is_shut_out_unasked(held, ctl, arguments, code):
    said = ctl("vault", "take", "cold", *arguments)
    assert said.code == code
    for shown in (
        "held by filer1 (10.0.0.7): has it open",
        "blocklist add",
        "knows no lock",
        "import -f -N",
    ):
        assert shown in said.out
    assert orders(held) == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_order_names_whom_it_is_about(held, ctl, by_hand):
    said = ctl("vault", "take", "cold", "--yes", *(["--fenced-by-hand"] if by_hand else []))
    assert said.code == 0
    assert "vault cold is taken over and up" in said.out
    assert orders(held) == [{"holders": TAKEOVER["holders"], "fenced_by_hand": by_hand}]


def test_a_refusal_is_told(held, ctl):
    held.refuse(
        "POST /v1/vaults/cold/take", 403, reason="refused", what="it has changed hands", why="", next=""
    )
    said = ctl("vault", "take", "cold", "--yes")
    assert said.code == 2
    assert "it has changed hands" in said.err
