"""What creating a vault would run; no device is asked."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.config.paths import Paths
from zvault.config.profile import VaultProfile
from zvault.config.schema import Vault
from zvault.core.errors import Refused
from zvault.devices.device_state import BlockDevice
from zvault.devices.stack import DeviceStack
from zvault.ops.vaults.new_pool import make_creation_document, make_new_pool, refuse_unless_blank
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore

NOWHERE = Path("/nowhere")
PROFILE = VaultProfile.model_validate({"pool": {"ashift": 12}, "dataset": {"atime": "off"}})


def document(vault: Vault) -> list[tuple[str | None, str]]:
    paths = Paths(run=Path("/run/zvault"))
    stack = DeviceStack("cold", vault.device, PROFILE.queue, HostRunner(), paths, RecordStore(NOWHERE))
    found = make_creation_document("cold", vault, PROFILE, stack)
    return [(step["device"], step["command"]) for step in found["steps"]]


def test_every_step_by_device_and_the_pool_last():
    vault = Vault.model_validate(
        {
            "pool": "c",
            "device": [
                {"nbd": "nbdkit:file '/srv/a b'", "size": "1T", "cache": {"bcache": "/dev/x"}},
                {"nbd": "tcp:nas:10809/meta", "vdev": "special"},
            ],
            "special_small_blocks": "64K",
        }
    )
    assert document(vault) == [
        ("cold-0", "truncate --size=1099511627776 -- '/srv/a b'"),
        ("cold-0", "nbdkit -f -U /run/zvault/device/cold-0.sock file '/srv/a b'"),
        ("cold-0", "make-bcache -B --data-offset 8192 cold-0"),
        ("cold-0", "make-bcache -C /dev/x"),
        (
            None,
            "zpool create -o cachefile=none -o ashift=12 -O atime=off -O special_small_blocks=65536 c"
            " cold-0 special cold-1",
        ),
    ]


def test_mirrors_are_grouped_by_name_and_kind_in_the_order_they_come():
    devices = [
        {"nbd": f"tcp:h{number}", "vdev": vdev, "mirror": mirror}
        for number, (vdev, mirror) in enumerate(
            [("data", "a"), ("special", "a"), ("data", "b"), ("data", "a"), ("special", "a"), ("data", "b")]
        )
    ]
    vault = Vault.model_validate({"pool": "c", "device": devices})
    new = make_new_pool(vault, VaultProfile(), [f"/{number}" for number in range(6)])
    assert new.argv()[-11:] == [
        "c",
        "mirror",
        "/0",
        "/3",
        "mirror",
        "/2",
        "/5",
        "special",
        "mirror",
        "/1",
        "/4",
    ]


def test_only_a_pool_on_devices_of_its_own_is_made():
    with pytest.raises(Refused, match="no devices"):
        document(Vault.model_validate({"pool": "c"}))
    with pytest.raises(Refused, match="it is on ssh://far"):
        document(Vault.model_validate({"pool": "c", "host": "ssh://far"}))


@pytest.mark.parametrize(
    ("holds", "advised"), [("a gpt partition table", True), ('zfs_member "other"', False), ("", None)]
)
async def test_where_the_pool_may_be_in_a_partition_it_is_told_how_to_have_that_served(
    holds: str, *, advised: bool | None
) -> None:
    async def tell_blank(path: str) -> tuple[bool, str]:
        assert path == "/dev/nbd0"
        return not holds, holds

    stack: Any = SimpleNamespace(blank=tell_blank)
    devices = [BlockDevice("/dev/nbd0", 1 << 30, "tcp:nas:10809/cold")]
    if advised is None:
        await refuse_unless_blank(stack, devices, "cold")
        return
    with pytest.raises(Refused, match="zvault will not overwrite what is") as refused:
        await refuse_unless_blank(stack, devices, "cold")
    assert ("filter=partition partition=1" in refused.value.next) == advised
