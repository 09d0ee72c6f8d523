"""A mapping that does not answer: does the cluster refuse this host, and who has had the image since?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import DeviceGone, TakenOver
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.source import ImageRecord, RbdSource
from zvault.system.process.runner import ProcessResult
from zvault.system.record_store import read_boot_id
from zvault.system.systemd_units import SystemdUnits

MINE, OTHER = "10.0.0.1:0/38", "10.0.0.2:0/7"
IMAGE = RbdImage("rbd_meta", "", "cold")
RECORD = ImageRecord("rbd_meta/cold", "1a2b", "krbd", {"user": "zvault"}, mapped=True, client=MINE)


class Cluster:
    """A cluster whose blocklist, watchers and note are these."""

    def __init__(self, refused: list[str], watchers: list[str], boot: str) -> None:
        self.refused, self.watchers = refused, watchers
        self.note = {"host": "filer2", "client": OTHER, "boot": boot, "since": 0.0}
        self.down, self.flags = False, "selfmanaged_snaps"

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        out: object = {}
        if "blocklist" in argv:
            out = [{"addr": one} for one in self.refused]
        elif "status" in argv:
            out = {"watchers": [{"address": one, "client": 4} for one in self.watchers]}
        elif "lock" in argv:
            out = []
        elif "image-meta" in argv:
            out = self.note
        elif "info" in argv:
            out = {"id": "1a2b", "size": 1 << 30, "object_size": 4 << 20, "features": [], "data_pool": "data"}
        elif "dump" in argv:
            pools = {"rbd_meta": "hashpspool", "data": f"hashpspool,{self.flags}"}
            out = {"pools": [{"pool_name": name, "flags_names": flags} for name, flags in pools.items()]}
        return ProcessResult(
            tuple(argv), int(self.down), json.dumps(out), "monclient: timed out" if self.down else "", 0.0
        )


async def cause(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    mapping = rbd_map.ImageMapping(0, IMAGE, "1a2b", MINE, 1 << 30)
    monkeypatch.setattr(rbd_map, "find_mapping", lambda *_: mapping)
    source: Any = RbdSource(cluster, SystemdUnits(cluster))  # type: ignore[arg-type]
    return await source.find_cause(RECORD.as_data())


async def test_one_that_nobody_took_is_let_in_again_without_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await cause(Cluster([MINE], [], read_boot_id()), monkeypatch)
    assert isinstance(found, DeviceGone)
    assert f"osd blocklist rm {MINE}" in found.next
    assert "no reboot" in found.next


@pytest.mark.parametrize(("watchers", "boot"), [([OTHER], ""), ([], "another boot")])
async def test_one_that_another_host_has_had_since_is_not(
    monkeypatch: pytest.MonkeyPatch, watchers: list[str], boot: str
) -> None:
    found = await cause(Cluster([MINE], watchers, boot or read_boot_id()), monkeypatch)
    assert isinstance(found, TakenOver)
    assert "blocklist rm" not in found.next


async def test_one_that_is_not_refused_has_no_such_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster([OTHER], [], "")
    assert await cause(cluster, monkeypatch) is None
    cluster.down = True
    assert await cause(cluster, monkeypatch) is None


@pytest.mark.parametrize(
    ("flags", "why", "advice"),
    [
        ("full", "pool 'data' is full: each write waits", "add OSDs"),
        (
            "full,full_quota",
            "pool 'data' is over its quota: each write waits",
            "ceph osd pool set-quota data max_bytes",
        ),
    ],
)
async def test_a_pool_that_takes_no_writes_is_named(
    monkeypatch: pytest.MonkeyPatch, flags: str, why: str, advice: str
) -> None:
    cluster = Cluster([], [], "")
    cluster.flags = flags
    found = await cause(cluster, monkeypatch)
    assert isinstance(found, DeviceGone)
    assert found.why == why
    assert advice in found.next
