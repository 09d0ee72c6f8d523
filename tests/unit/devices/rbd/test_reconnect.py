"""An image whose mapping was lost is mapped again only where no other host has had it since."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.devices.rbd.test_shut_out import OTHER, Cluster
from zvault.config.schema import Device
from zvault.core.errors import Refused, ToolFailed
from zvault.devices.layer import DeviceSlot, LayerJob
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd import source as source_module
from zvault.devices.rbd.source import RbdSource
from zvault.system.process.runner import ProcessResult
from zvault.system.record_store import read_boot_id
from zvault.system.systemd_units import SystemdUnits

DEVICE = Device.model_validate({"rbd": "rbd_meta/cold", "exclusive": False})


class Mapping(Cluster):
    """A cluster, and a kernel that maps nothing; whether it was asked to."""

    mapped = False

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        if "map" in argv:
            self.mapped = True
            raise ToolFailed("it cannot be mapped", "this test has no kernel")
        return await super().run(argv)


@pytest.mark.parametrize("boot", ["another", read_boot_id()], ids=["another", "this one"])
async def test_an_image_that_another_host_had_since_is_not_mapped(
    boot: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rbd_map, "find_mapping", lambda *_: None)

    async def may_do_all(*_: object, **__: object) -> None: ...

    monkeypatch.setattr(source_module, "check_access", may_do_all)
    cluster: Any = Mapping([], [], boot)
    source = RbdSource(cluster, SystemdUnits(cluster))
    slot, wrote = DeviceSlot("cold", 0, tmp_path), list[object]()
    job = LayerJob(slot, DEVICE, "", {"client": OTHER}, False, wrote.append, print, resume=True)
    with pytest.raises(ToolFailed if boot == read_boot_id() else Refused):
        await source.up(job)
    assert cluster.mapped == (boot == read_boot_id())
