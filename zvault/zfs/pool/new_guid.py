"""A copy of a pool made importable beside the pool itself: with another GUID, and another name.

What does it (new_guid_child.py) has all of OpenZFS in it and the device open for writing, so it runs in a unit whose
/dev has that device and no other, below a file system that it cannot write to, and that has none of the host's sockets.
The pool is whatever lies in a bucket.
"""

from __future__ import annotations

import sys
from pathlib import Path

from zvault.core.errors import DeadlineExceeded, ToolFailed
from zvault.core.units import is_number
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import SystemdUnits

NEW_GUID_CHILD = Path(__file__).with_name("new_guid_child.py")

NEW_GUID_DEADLINE = 1800.0
"""Seconds: an import looks at every dataset of the pool, on storage that may be slow."""
NEW_GUID_GRACE = 30.0

_BESIDE = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


def name_change_unit(name: str) -> str:
    """The unit that the change runs in, by a name that nothing else has."""
    return f"zvault-guid-{name}.service"


def change_guid_argv(device: str, pool: str, name: str) -> list[str]:
    """Argv that changes the pool on ``device``, in a unit of its own; see ``name_change_unit`` for ``name``."""
    properties = (
        "TemporaryFileSystem=/dev:mode=755",
        f"BindPaths={device}",
        f"BindReadOnlyPaths={' '.join(_BESIDE)}",
        "DevicePolicy=closed",
        f"DeviceAllow={device} rw",
        "ProtectSystem=strict",
        "ProtectHome=read-only",
        "PrivateTmp=yes",
        "PrivateNetwork=yes",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "TemporaryFileSystem=/run:ro",
        "RestrictNamespaces=yes",
        "SystemCallFilter=@system-service",
        "SystemCallErrorNumber=EPERM",
        "LimitCORE=0",
        f"RuntimeMaxSec={NEW_GUID_DEADLINE:g}",
    )
    words = [word for one in properties for word in ("-p", one)]
    head = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--slice=zvault.slice"]
    program = [sys.executable, "-I", "-S", str(NEW_GUID_CHILD), device, pool]
    return [
        *head,
        f"--unit={name_change_unit(name)}",
        f"--description=another GUID for {pool}",
        *words,
        "--",
        *program,
    ]


async def change_guid(runner: ProcessRunner, units: SystemdUnits, device: str, pool: str, name: str) -> int:
    """Give the pool on ``device`` the name ``pool`` and another GUID; the GUID. Raises ToolFailed."""
    what = f"the pool on {device} cannot be made one beside that which it was copied from"
    try:
        result = await runner.run(
            change_guid_argv(device, pool, name), deadline=NEW_GUID_DEADLINE + NEW_GUID_GRACE, check=False
        )
    except BaseException:
        await end_guid_change(units, name)
        raise
    said = result.stdout.strip()
    if result.returncode != 0 or not is_number(said):
        raise ToolFailed(what, result.complaint(), "see the journal, and the device's server")
    return int(said)


async def import_readonly(runner: ProcessRunner, pool: str, guid: int, device: str, altroot: str) -> None:
    """Import such a pool, read-only and without mounts; what is mounted of it later is below ``altroot``.

    Raises ToolFailed.
    """
    options = ["-N", "-o", "readonly=on", "-o", "cachefile=none", "-R", altroot]
    argv = ["zpool", "import", *options, "-d", device, str(guid)]
    result = await runner.run(argv, deadline=NEW_GUID_DEADLINE, check=False)
    if result.returncode != 0:
        raise ToolFailed(f"the pool '{pool}' cannot be imported", result.complaint(), "see the kernel's log")


async def end_guid_change(units: SystemdUnits, name: str) -> None:
    """End a change that is still under way: an earlier zvaultd may have begun it. Raises ToolFailed."""
    try:
        await units.stop(name_change_unit(name))
    except DeadlineExceeded as error:
        raise ToolFailed(error.what, error.why, f"see 'systemctl status {name_change_unit(name)}'") from error
