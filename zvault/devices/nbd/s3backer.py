"""s3backer as an NBD server: the file that it shows of a bucket, served by nbdkit, both in one unit.

Debian 13 has s3backer 1.5.4, which is a FUSE file system of one file and whose fsync does nothing (fuse_op_fsync in
fuse_ops.c). A cache that writes back would lose what the pool was told is on disk; so it is always told to answer a
write only when the store has it.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.core.errors import Busy, DeadlineExceeded, ToolFailed
from zvault.devices.nbd import nbdkit
from zvault.devices.server_unit import DeviceServer
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import SystemdUnits

S3BACKER_START_DEADLINE = 60.0
"""Seconds for it to ask the bucket who has it mounted, and for nbdkit to follow."""
UMOUNT_DEADLINE = 20.0

S3BACKER_FILE = "disk"
ALREADY_MOUNTED = "already mounted"

CONSISTENT = ["--md5CacheSize=0", "--md5CacheTime=0", "--minWriteDelay=0"]
"""S3 gives back what was written last, since 2020, and RGW always has: nothing need be remembered or waited for."""

SAFE = ["--blockCacheSync", "--blockCacheWriteDelay=0", f"--filename={S3BACKER_FILE}", "-o", "big_writes"]
"""Every write is in the store when it is answered; and it comes in pieces of 128 KiB, not of 4 (libfuse 2)."""

_SUPERVISE = """# The file system first, the server on it; when either ends, so does the other.
mount={mount}
mkdir -p "$mount"
{s3backer} "$mount" &
files=$!
while [ ! -e "$mount/{file}" ]; do
    kill -0 $files 2>/dev/null || {{ wait $files; exit 1; }}
    sleep 0.1
done
{nbdkit} &
server=$!
trap 'kill $server' TERM
(while kill -0 $files 2>/dev/null; do sleep 1; done; kill $server) 2>/dev/null &
while kill -0 $server 2>/dev/null; do wait $server; done
umount "$mount" || umount -l "$mount"
wait $files
"""


def find_s3backer_mount(server: DeviceServer) -> Path:
    """Return the folder in which its file appears, for root alone."""
    return server.directory / f"{server.name}.s3backer"


def s3backer_argv(spec: S3backerServer) -> list[str]:
    """Argv of s3backer in the foreground, less the mount point at its end."""
    prefix = [f"--prefix={spec.prefix}/"] if spec.prefix else []
    settings = [f"--{word}" for word in spec.settings]
    return ["s3backer", "-f", *CONSISTENT, *settings, *prefix, *SAFE, spec.bucket]


def write_s3backer_script(server: DeviceServer, spec: S3backerServer) -> str:
    """Return the script that its unit runs."""
    mount = find_s3backer_mount(server)
    below = NbdkitServer("file", params=(str(mount / S3BACKER_FILE),))
    return _SUPERVISE.format(
        mount=shlex.quote(str(mount)),
        file=S3BACKER_FILE,
        s3backer=shlex.join(s3backer_argv(spec)),
        nbdkit=shlex.join(nbdkit.nbdkit_argv(below, server.socket)),
    )


async def check_s3backer(runner: ProcessRunner) -> None:
    """See that s3backer and nbdkit are there. Raises ToolMissing."""
    await runner.run(["s3backer", "--version"], deadline=10, check=False)
    await nbdkit.check_nbdkit(NbdkitServer("file", params=("/dev/null",)), runner)


async def start_s3backer(
    server: DeviceServer, spec: S3backerServer, units: SystemdUnits, runner: ProcessRunner, *, ours: bool
) -> None:
    """Start it. Raises Busy when the bucket says that somebody has it mounted, else as nbdkit.start_nbdkit.

    ``ours``: this host had it, and its server is dead; then the mark that this left is removed.
    """
    await _unmount(server, runner)
    if ours:
        await runner.run(_reset(spec), deadline=S3BACKER_START_DEADLINE, check=False)
    argv = ["sh", "-c", write_s3backer_script(server, spec)]
    try:
        await nbdkit.start_nbdkit(server, spec, units, argv=argv, deadline=S3BACKER_START_DEADLINE)
    except ToolFailed as error:
        if ALREADY_MOUNTED not in error.why:
            raise
        raise Busy(
            f"{spec} is mounted somewhere, or its last server was killed",
            "s3backer leaves a mark in the bucket while it has it mounted",
            f"see that no other host has it; then remove the mark: {shlex.join(_reset(spec))}",
        ) from error


def _reset(spec: S3backerServer) -> list[str]:
    """Argv that removes the mark of who has it mounted."""
    _, _, *words, bucket = s3backer_argv(spec)
    return [
        "s3backer",
        "--reset-mounted-flag",
        *(word for word in words if word not in ("-o", "big_writes")),
        bucket,
    ]


async def stop_s3backer(server: DeviceServer, units: SystemdUnits, runner: ProcessRunner) -> None:
    """Stop it, and take its mount away if it died on it."""
    await nbdkit.stop_nbdkit(server, units)
    await _unmount(server, runner)


async def _unmount(server: DeviceServer, runner: ProcessRunner) -> None:
    mount = find_s3backer_mount(server)
    with contextlib.suppress(DeadlineExceeded):
        await runner.run(["umount", "-l", str(mount)], deadline=UMOUNT_DEADLINE, check=False)
    with contextlib.suppress(OSError):
        mount.rmdir()
