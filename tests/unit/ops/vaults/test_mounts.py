"""What is mounted of a vault's pool keeps it from being zvault's alone, and comes back after an export."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import ToolFailed
from zvault.ops.vaults import mounts
from zvault.ops.vaults.mounts import describe_other_use, mount_again
from zvault.system.procfs import PoolMount


class Host:
    """Writes down what it is asked to run."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, argv: Sequence[str], **_: object) -> None:
        self.ran.append(" ".join(argv))


def client(host: Host, properties: dict[str, dict[str, str]]) -> Any:
    async def get(name: str, *_: str) -> dict[str, str]:
        return {"sharenfs": "off", "sharesmb": "off", **properties[name]}

    async def mount(name: str) -> None:
        if name == "cold/locked":
            raise ToolFailed("cannot mount it", "encryption key not loaded")
        host.ran.append(f"zfs mount {name}")

    return SimpleNamespace(host=host, get=get, mount=mount)


async def test_each_is_mounted_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    there = PoolMount("cold", "/cold")
    before = [
        PoolMount("cold/lab/x", "/cold/lab/x"),
        PoolMount("cold/lab", "/cold/lab"),
        PoolMount("cold/legacy", "/mnt/legacy", ("ro",)),
        PoolMount("cold/elsewhere", "/mnt/elsewhere", ("rw", "noatime")),
        PoolMount("cold/none", "/mnt/none", ("ro",)),
        PoolMount("cold/lab@s1", "/mnt/s1", ("ro", "nosuid")),
        PoolMount("cold/locked", "/locked"),
        there,
    ]
    monkeypatch.setattr(mounts, "list_pool_mounts", lambda _: [there])
    host = Host()
    zfs = client(
        host,
        {
            "cold/lab/x": {"mountpoint": "/cold/lab/x", "sharenfs": "on"},
            "cold/lab": {"mountpoint": "/cold/lab"},
            "cold/legacy": {"mountpoint": "legacy"},
            "cold/elsewhere": {"mountpoint": "/own"},
            "cold/none": {"mountpoint": "none"},
            "cold/locked": {"mountpoint": "/locked"},
        },
    )
    failed = await mount_again(zfs, "cold", before)
    assert failed == ["cold/locked was mounted at /locked and is not again: encryption key not loaded"]
    assert sorted(host.ran) == [
        "mount -t zfs -o ro cold/legacy /mnt/legacy",
        "mount -t zfs -o ro,nosuid cold/lab@s1 /mnt/s1",
        "mount -t zfs -o ro,zfsutil cold/none /mnt/none",
        "mount -t zfs -o rw,noatime,zfsutil cold/elsewhere /mnt/elsewhere",
        "zfs mount cold/lab",
        "zfs mount cold/lab/x",
        "zfs share cold/lab/x",
    ]
    assert host.ran.index("zfs mount cold/lab") < host.ran.index("zfs mount cold/lab/x")


def test_what_zvault_mounted_itself_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [PoolMount("cold/lab@s", "/run/zvault/look/12")]
    monkeypatch.setattr(mounts, "list_pool_mounts", lambda _: found)
    monkeypatch.setattr(mounts, "list_open_volumes", lambda _: [])
    assert describe_other_use("cold", "/run/zvault") == ""
    found += [PoolMount(f"cold/{n}", f"/mnt/{n}") for n in range(4)]
    monkeypatch.setattr(mounts, "list_open_volumes", lambda _: ["/dev/zvol/cold/vm"])
    assert describe_other_use("cold", "/run/zvault") == (
        "cold/0 is mounted at /mnt/0, cold/1 is mounted at /mnt/1, cold/2 is mounted at /mnt/2, and 2 more"
    )
