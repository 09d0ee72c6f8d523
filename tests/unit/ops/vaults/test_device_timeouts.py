"""Devices give up before OpenZFS's deadman looks, and it is said where that means another timeout than configured."""

from __future__ import annotations

from zvault.config.profile import VaultProfile
from zvault.config.tables.device import Device
from zvault.ops.vaults.device_timeouts import order_timeouts
from zvault.system.process.runner import HostRunner


async def test_what_is_too_patient_is_shortened_and_told():
    short, long, many = (
        Device.model_validate({"nbd": f"unix:/{number}", **table})
        for number, table in enumerate(
            ({"timeout": "10s"}, {"timeout": "60s"}, {"timeout": "10s", "connections": 4})
        )
    )
    profile = VaultProfile.model_validate({"module": {"zfs_deadman_ziotime_ms": 20_000}})
    found, told = await order_timeouts([short, long, many], profile, HostRunner())
    assert [device.timeout for device in found] == [10, 18, 4]
    assert [device.spec for device in found] == ["unix:/0", "unix:/1", "unix:/2"]
    assert len(told) == 2
    assert "18s, not 1m" in told[0]
    assert "on each of 4 connections" in told[1]
