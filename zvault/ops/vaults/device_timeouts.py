"""Timeouts in order: each device gives a request up before OpenZFS's deadman does (core/policy/timeouts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.config.profile import VaultProfile
from zvault.config.schema import Device
from zvault.core.policy.timeouts import DEADMAN_DEFAULTS, find_deadman, fit_timeout
from zvault.core.units import format_duration
from zvault.system.process.runner import ProcessRunner
from zvault.zfs.pool import module_parameters


async def order_timeouts(
    devices: Sequence[Device], profile: VaultProfile, runner: ProcessRunner
) -> tuple[list[Device], list[str]]:
    """The devices with timeouts that are short enough, and in words which ones had to be made so."""
    bound, parameter = find_deadman(
        {**await module_parameters.read_parameters(DEADMAN_DEFAULTS, runner), **profile.module}
    )
    found, told = [], []
    for device in devices:
        timeout = fit_timeout(device.timeout, device.tries, bound)
        if timeout != device.timeout:
            several = f" on each of {device.tries} connections" if device.tries > 1 else ""
            told.append(
                f"{device.spec}: a request is given up after {format_duration(timeout)}{several}, not"
                f" {format_duration(device.timeout)}: that must be before OpenZFS's deadman,"
                f" {parameter}, after {format_duration(bound)}"
            )
        found.append(device.model_copy(update={"timeout": timeout}))
    return found, told
