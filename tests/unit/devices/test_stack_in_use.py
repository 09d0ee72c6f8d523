"""A device that somebody has open exclusively is not taken down, whoever wants it so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.core.errors import Busy, DeadlineExceeded
from zvault.devices import stack as stack_module
from zvault.devices.device_record import DeviceRecord, FoundDevice, FoundLevel, LayerRecord
from zvault.devices.layer import FoundLayer
from zvault.devices.stack import DeviceStack
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore

DEVICE = Device.model_validate({"nbd": "tcp:nas:10809/cold"})


class DownLayer:
    """A layer that notes that it was taken down."""

    def __init__(self) -> None:
        self.downs = 0

    async def down(self, *_: object, **__: object) -> None:
        self.downs += 1

    def leftover(self, _: object) -> None: ...


@pytest.mark.parametrize("held", [True, False, None])
@pytest.mark.parametrize("lost", [False, True])
async def test_a_device_that_is_in_use_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, held: bool | None, lost: bool
) -> None:
    """Also one that is lost, and is to be cleared away; and one of which nobody can tell (None)."""
    stack = DeviceStack(
        "cold", [DEVICE], QueueSettings(), HostRunner(), Paths(run=tmp_path), RecordStore(tmp_path)
    )
    layer = cast(Any, stack.kinds)["nbd"] = DownLayer()
    (slot,) = stack.inventory.list_configured()
    found_layer = FoundLayer("gone" if lost else "up", "", "/dev/nbd0", 1 << 30, present=True)
    record = DeviceRecord(DEVICE.spec, (LayerRecord("nbd", {"number": 0}),))
    found = FoundDevice(slot, record, (FoundLevel("nbd", {"number": 0}, found_layer),))

    async def look(*_: object) -> list[FoundDevice]:
        return [found]

    async def is_held(path: str, _: object) -> bool:
        assert path == "/dev/nbd0"
        if held is None:
            raise DeadlineExceeded("it does not answer")
        return held

    inventory: Any = stack.inventory
    inventory.look = inventory.look_settled = look
    monkeypatch.setattr(stack_module, "is_held", is_held)
    monkeypatch.setattr(stack_module, "REGISTERING_TIME", 0.0)
    doing = stack._settle([found], lambda _: None) if lost else stack.down(lambda _: None)
    if held is False:
        await doing
    else:
        with pytest.raises(Busy, match="/dev/nbd0 of vault cold cannot be taken down"):
            await doing
    assert layer.downs == (held is False)
