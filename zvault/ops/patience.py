"""Timeouts in order: each device gives a request up before OpenZFS's deadman does (core/timeouts.py)."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.config.profile import Profile
from zvault.config.schema import Device
from zvault.core.errors import ZvaultError
from zvault.core.timeouts import DEADMAN, DEADMAN_PARAMETER, fitted
from zvault.core.units import format_duration
from zvault.system import params
from zvault.system.process import Runner


async def in_order(
    devices: Sequence[Device], profile: Profile, runner: Runner
) -> tuple[list[Device], list[str]]:
    """The devices with timeouts that are short enough, and in words which ones had to be made so."""
    deadman = await _deadman(profile, runner)
    found, told = [], []
    for device in devices:
        connections = device.connections if device.nbd is not None else 1
        timeout = fitted(device.timeout, connections, deadman)
        if timeout != device.timeout:
            several = f" on each of {connections} connections" if connections > 1 else ""
            told.append(
                f"{device.spec}: a request is given up after {format_duration(timeout)}{several}, not"
                f" {format_duration(device.timeout)}: that must be before OpenZFS's deadman,"
                f" {DEADMAN_PARAMETER}, after {format_duration(deadman)}"
            )
        found.append(device.model_copy(update={"timeout": timeout}))
    return found, told


async def _deadman(profile: Profile, runner: Runner) -> float:
    """Seconds; what the profile sets once the vault is up, else what this host has, else OpenZFS's own."""
    value = profile.module.get(DEADMAN_PARAMETER)
    if value is None:
        try:
            value = (await params.look(runner)).parameters[DEADMAN_PARAMETER].value
        except (ZvaultError, OSError, KeyError):
            return DEADMAN
    return int(value) / 1000 if value.isdecimal() else DEADMAN
