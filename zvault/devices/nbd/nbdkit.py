"""The NBD servers zvault starts itself: nbdkit, each in a systemd unit of its own.

The unit ``zvault-device@NAME.service`` runs the script ``/run/zvault/device/NAME`` and does not depend on
zvaultd: the daemon may end and start again while a pool's disk goes on.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zvault.config.device_specs.nbd import NbdkitServer, OwnServer
from zvault.core.errors import DeviceGone, ToolFailed, ToolMissing
from zvault.devices.nbd import sockets
from zvault.devices.server_unit import DeviceServer, exec_shell_script
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import UNIT_STOP_DEADLINE, SystemdUnits

NBDKIT_START_DEADLINE = 30.0
"""Seconds for a server to come up; a plugin may have to reach its storage first."""
FILE_DEADLINE = 30.0
COW_BLOCK = 4096
"""Bytes of a block of nbdkit-cow-filter(1), the smallest that it takes: a write waits for what is below only where the
filter has to read the rest of a block."""
NBDKIT_POLL = 0.05

_THERE = '[ -s "$1" ] || [ -b "$1" ]'
"""An empty file counts as none: it is what an interrupted truncate leaves."""
_MAKE_FILE = f'umask 077; {_THERE} || {{ shift; exec "$@"; }}'


def nbdkit_argv(spec: NbdkitServer, socket: Path) -> list[str]:
    """Argv that serves ``spec`` on ``socket`` in the foreground."""
    return ["nbdkit", "-f", "-U", str(socket), *_program(spec), *spec.params]


def _program(spec: NbdkitServer) -> list[str]:
    return [*(f"--filter={name}" for name in spec.filters), spec.plugin]


async def check_nbdkit(spec: NbdkitServer, runner: ProcessRunner) -> None:
    """See that nbdkit, the plugin and the filters are there. Raises ToolMissing; starts nothing."""
    result = await runner.run(["nbdkit", *_program(spec), "--dump-plugin"], deadline=10, check=False)
    if result.returncode == 0:
        return
    why = find_first_complaint(result.stderr)
    for kind, names in (("plugin", [spec.plugin]), ("filter", spec.filters)):
        for name in names:
            if f"nbdkit-{name}-{kind}." in result.stderr:
                raise ToolMissing(
                    f'nbdkit has no {kind} "{name}"',
                    why,
                    f"install it (Debian may have it as nbdkit-{kind}-{name}), or correct the configuration",
                )
    raise ToolFailed(f"nbdkit cannot load {spec}", why, "see nbdkit(1)")


def find_first_complaint(text: str) -> str:
    """The first thing nbdkit found wrong."""
    lines = [line.removeprefix("nbdkit: error: ") for line in text.splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"


def truncate_argv(path: str, size: int) -> list[str]:
    """Argv that makes a sparse file of ``size`` bytes."""
    return ["truncate", f"--size={size}", "--", path]


async def has_backing_file(path: str, runner: ProcessRunner) -> bool:
    """True if there is a file with any content, or a block device. In a process: a mount may hang."""
    result = await runner.run(["sh", "-c", _THERE, "sh", path], deadline=FILE_DEADLINE, check=False)
    return result.returncode == 0


async def make_backing_file(path: str, size: int, runner: ProcessRunner) -> None:
    """Make a sparse file of ``size`` bytes, for root alone, unless something of that name has any content."""
    result = await runner.run(
        ["sh", "-c", _MAKE_FILE, "sh", path, *truncate_argv(path, size)],
        deadline=FILE_DEADLINE,
        check=False,
    )
    if result.returncode != 0:
        what = f"the backing file {path} cannot be made"
        raise ToolFailed(what, result.complaint(), "make its folder, or correct the path")


async def start_nbdkit(
    server: DeviceServer,
    spec: OwnServer,
    units: SystemdUnits,
    *,
    argv: Sequence[str],
    deadline: float = NBDKIT_START_DEADLINE,
    ready: Callable[[], bool] = lambda: True,
) -> None:
    """Start a server by ``argv`` in its unit, and wait until it listens and is ``ready``.

    Raises ToolFailed with its last words.
    """
    server.socket.unlink(missing_ok=True)
    write_unit_script(server.script, exec_shell_script(argv))
    began = time.time()
    await units.start(server.unit)
    give_up = time.monotonic() + deadline
    while not (ready() and sockets.is_unix_listening(str(server.socket))):
        late = time.monotonic() >= give_up
        if late or not (await units.state(server.unit)).running:
            failed = ToolFailed(
                f"the server of {spec} did not come up" + (f" within {deadline:g} s" if late else ""),
                await _last_words(server, units, began),
                f"correct it in the configuration; see also 'journalctl -u {server.unit}'",
            )
            failed.retryable = True  # what it serves may be out of reach for a while
            raise failed
        await asyncio.sleep(NBDKIT_POLL)


async def _last_words(server: DeviceServer, units: SystemdUnits, since: float) -> str:
    lines = await units.journal_tail(server.unit, since=since)
    words = "; ".join(line.removeprefix("nbdkit: error: ") for line in lines)
    return words or f"it ended without a word ({(await units.state(server.unit)).result})"


async def stop_nbdkit(
    server: DeviceServer, units: SystemdUnits, deadline: float = UNIT_STOP_DEADLINE
) -> None:
    """Stop a server and remove its files. It need not run. Raises DeviceGone when it cannot be stopped."""
    try:
        await units.stop(server.unit, deadline)
    except ToolFailed as error:
        raise DeviceGone(error.what, error.why, error.next) from error
    for path in (server.script, server.socket):
        path.unlink(missing_ok=True)


def write_unit_script(path: Path, text: str) -> None:
    """In one step, so that the unit never runs half a script."""
    scratch = path.with_name(f".{path.name}")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o700)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    scratch.replace(path)
