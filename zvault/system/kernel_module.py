"""Loads a module of the kernel."""

from __future__ import annotations

from zvault.system.process.runner import ToolRunner

LOAD_MODULE_DEADLINE = 60.0


async def load_module(runner: ToolRunner, name: str) -> str:
    """Have systemd load a module: zvaultd itself has not the right to (zvaultd.service).

    Returns why it may not be there; whether it is there the caller has to see, as modprobe@.service never fails.
    """
    unit = f"modprobe@{name}.service"
    result = await runner.run(["systemctl", "start", unit], deadline=LOAD_MODULE_DEADLINE, check=False)
    return result.complaint() if result.returncode != 0 else f"'modprobe {name}' did not load it"
