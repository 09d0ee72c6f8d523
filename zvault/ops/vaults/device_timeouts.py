"""Timeouts in order: each device gives a request up before OpenZFS's deadman does (core/policy/timeouts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.config.profile import Profile
from zvault.config.schema import Device
from zvault.core.policy.timeouts import DEADMEN, deadman, fitted
from zvault.core.units import format_duration
from zvault.system.process.runner import Runner
from zvault.zfs.pool import module_parameters


async def in_order(
    devices: Sequence[Device], profile: Profile, runner: Runner
) -> tuple[list[Device], list[str]]:
    """The devices with timeouts that are short enough, and in words which ones had to be made so."""
    bound, parameter = deadman({**await module_parameters.known(DEADMEN, runner), **profile.module})
    found, told = [], []
    for device in devices:
        timeout = fitted(device.timeout, device.tries, bound)
        if timeout != device.timeout:
            several = f" on each of {device.tries} connections" if device.tries > 1 else ""
            told.append(
                f"{device.spec}: a request is given up after {format_duration(timeout)}{several}, not"
                f" {format_duration(device.timeout)}: that must be before OpenZFS's deadman,"
                f" {parameter}, after {format_duration(bound)}"
            )
        found.append(device.model_copy(update={"timeout": timeout}))
    return found, told
