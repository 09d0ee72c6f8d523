"""One NBD connection: the kernel's client, set up and torn down with nbd-client.

nbd-client uses netlink, so the kernel decides who gets a device: of two that want the same one, one is refused.
The kernel also keeps the number of the process that connected it (``/sys/block/nbdN/pid``). Ours leaves its number
in a file before it connects: that is how, after a crash, our connection is told from somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zvault.core.errors import Busy, DeadlineExceeded, DeviceGone, ToolFailed, ToolMissing
from zvault.devices.nbd.target import Target
from zvault.system.device_users import find_device_users, name_users
from zvault.system.kernel_module import load_module
from zvault.system.process.runner import ProcessResult, ProcessRunner
from zvault.system.systemd_units import scope_argv

NBD_SYS_BLOCK = Path("/sys/block")
NBD_MODULE = Path("/sys/module/nbd")
NBD_SECTOR = 512
"""Bytes; sysfs counts in these whatever the device's own."""

NBD_CONNECT_DEADLINE = 20.0
"""Seconds for one nbd-client; a server that accepts and says nothing would keep it for ever."""
FIND_DEADLINE = 60.0
"""Seconds to try devices; when the module was just loaded udev opens each, and for a moment all are busy."""
DISCONNECT_DEADLINE = 20.0
HELD_DEADLINE = 10.0
PAUSE = 0.1
PREFER_TRIES = 20

_KEEP_PID = 'echo $$ >"$0" && exec "$@"'
_HELD = """import errno, os, sys
try: os.open(sys.argv[1], os.O_RDONLY | os.O_EXCL)
except OSError as error: sys.exit(3 if error.errno == errno.EBUSY else str(error))
"""


@dataclass(frozen=True, slots=True)
class NbdDeviceStatus:
    """A device as the kernel has it: who connected it (None: nobody) and its size in bytes."""

    pid: int | None
    size: int


def nbd_device_path(index: int) -> str:
    """Return the path of the device, as "/dev/nbd0"."""
    return f"/dev/nbd{index}"


def connect_argv(target: Target, index: int, *, timeout: float, connections: int) -> list[str]:
    """Argv that connects a device. ``timeout`` (seconds) is never left out: a dead server would hang the pool."""
    argv = ["nbd-client", *target.words(), nbd_device_path(index)]
    argv += ["-timeout", str(max(1, round(timeout))), "-connections", str(connections)]
    if target.export:
        argv += ["-name", target.export]
    if not target.tls:
        return argv
    # The kernel speaks no TLS: nbd-client leaves a process for each connection that does.
    return scope_argv(f"TLS of {nbd_device_path(index)}", [*argv, *target.tls.words()])


def read_nbd_status(index: int, sys_block: Path = NBD_SYS_BLOCK) -> NbdDeviceStatus:
    """Read what the kernel says of a device. Never waits."""
    folder = sys_block / f"nbd{index}"
    return NbdDeviceStatus(_number(folder / "pid"), (_number(folder / "size") or 0) * NBD_SECTOR)


def list_free_devices(sys_block: Path = NBD_SYS_BLOCK) -> list[int]:
    """Devices nobody has connected, lowest first, and last one that does not exist: the kernel makes it.

    One whose discards were turned off (DeviceStack.end_discards) comes after the others: Linux takes no limit but 0
    for it any more, since it has no granularity then (seen with 7.2).
    """
    found = (re.fullmatch(r"nbd(\d+)", path.name) for path in sys_block.glob("nbd*"))
    indices = sorted(int(match[1]) for match in found if match)
    free = [index for index in indices if read_nbd_status(index, sys_block) == NbdDeviceStatus(None, 0)]
    spoiled = [index for index in free if _takes_no_discards(sys_block / f"nbd{index}" / "queue")]
    return [*(index for index in free if index not in spoiled), max(indices, default=-1) + 1, *spoiled]


def _takes_no_discards(queue: Path) -> bool:
    """Whether a device was connected to a server that takes discards, and has them turned off since."""
    return bool(_number(queue / "discard_max_hw_bytes")) and _number(queue / "discard_max_bytes") == 0


async def check_nbd_client(runner: ProcessRunner) -> None:
    """See that nbd-client and the kernel's nbd are there. Raises ToolMissing."""
    await runner.run(["nbd-client", "--help"], deadline=10, check=False)
    if _loaded():
        return
    why = await load_module(runner, "nbd")
    if not _loaded():
        raise ToolMissing(
            "the kernel has no network block devices",
            why,
            "install a kernel that has the nbd module",
        )


async def connect_device(
    target: Target,
    client_file: Path,
    record: Callable[[int], None],
    runner: ProcessRunner,
    *,
    timeout: float,
    connections: int,
    prefer: int | None = None,
) -> int:
    """Connect a free device to a server, ``prefer`` if it can be had; the result is its number.

    ``record`` is called with a device's number before the device is tried, and ``client_file`` holds the number
    of the process that tries. Raises Busy when no device is free, ToolFailed when server or kernel refuse.
    """
    give_up = time.monotonic() + FIND_DEADLINE
    for index in _endless_candidates(prefer):
        forget_owner(client_file)
        record(index)
        argv = connect_argv(target, index, timeout=timeout, connections=connections)
        result = await runner.run(
            pid_file_argv(client_file, argv), deadline=NBD_CONNECT_DEADLINE, check=False
        )
        if result.returncode == 0:
            await _see_it(index)
            return index
        why = await _refusal(index, result, runner)
        if why is not None:
            refused = ToolFailed(
                f"{nbd_device_path(index)} cannot be connected", why, _advice(why, connections)
            )
            refused.retryable = True  # the server, or the way to it, may be back soon
            raise refused
        if time.monotonic() >= give_up:
            break
        await asyncio.sleep(PAUSE)
    raise Busy(
        "no network block device is free",
        f"the kernel has refused each for {FIND_DEADLINE:g} s",
        "see who has them: 'grep . /sys/block/nbd*/pid', and the kernel's log",
    )


def _endless_candidates(prefer: int | None) -> Iterator[int]:
    """The preferred one for a while, then one after the other, again and again: they come free."""
    if prefer is not None:
        for _ in range(PREFER_TRIES):
            if read_nbd_status(prefer).pid is not None:
                break
            yield prefer
    while True:
        yield from list_free_devices()


async def _see_it(index: int) -> None:
    """Wait for the size, which the kernel sets after nbd-client has its answer."""
    give_up = time.monotonic() + 5
    while read_nbd_status(index).size == 0:
        if time.monotonic() >= give_up:
            raise DeviceGone(
                f"{nbd_device_path(index)} is connected but holds nothing",
                "its size is 0: the server's export is empty",
                "give the backing file a size",
            )
        await asyncio.sleep(PAUSE)


async def _refusal(index: int, result: ProcessResult, runner: ProcessRunner) -> str | None:
    """Why a connection failed; None if only because somebody else has the device just then."""
    if "Failed to setup device" not in result.stderr:
        lines = result.stderr.splitlines()
        words = [line for line in lines if line.startswith(("E:", "Error", "nbd-client:"))]
        return "; ".join(words) or result.complaint()
    # The kernel refused. It says EBUSY and EINVAL alike through nbd-client; its log knows which.
    log = await runner.run(["dmesg", "--notime"], deadline=10, check=False)
    words = [line for line in log.stdout.splitlines() if re.search(rf"\bnbd{index}\b", line)]
    complaints = [line for line in words if "shutting down sockets" not in line]
    if not complaints or "already in use" in complaints[-1] or read_nbd_status(index).pid is not None:
        return None
    return complaints[-1].strip()


def _advice(why: str, connections: int) -> str:
    if connections > 1 and "multiple connections" in why:
        return "set connections = 1 for this device"
    if "netlink family" in why:
        return "'modprobe nbd', or a kernel whose nbd can be set up by netlink (Linux 4.12)"
    return "see that the server runs, has this export, and allows this host"


def pid_file_argv(client_file: Path, argv: Sequence[str]) -> list[str]:
    """Argv that leaves its number in a file, then becomes the program."""
    return ["sh", "-c", _KEEP_PID, str(client_file), *argv]


def read_owner_pid(client_file: Path) -> int | None:
    """The process that was to connect a device, from the file that it left."""
    return _number(client_file)


def forget_owner(client_file: Path) -> None:
    """Remove the file with the number of the connecting process."""
    client_file.unlink(missing_ok=True)


async def stop_client(client_file: Path, word: str) -> None:
    """End a tool that a crashed zvault left on its way to a device, lest it arrive later; its argv has ``word``."""
    pid = read_owner_pid(client_file)
    if pid is None:
        return
    if word not in _words(pid):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for _ in range(50):
        if not _words(pid):
            return
        await asyncio.sleep(PAUSE)


async def is_held(path: str, runner: ProcessRunner) -> bool:
    """True if somebody uses a device exclusively: a pool, a mount, another layer. Raises DeadlineExceeded."""
    # Opening may wait for the device, so a child does it.
    argv = [sys.executable, "-I", "-S", "-c", _HELD, path]
    result = await runner.run(argv, deadline=HELD_DEADLINE, check=False)
    return result.returncode == 3


async def cut_device_off(index: int, runner: ProcessRunner) -> None:
    """Disconnect a device; requests on their way fail. It stays as it is for who has it open."""
    with contextlib.suppress(DeadlineExceeded):
        await runner.run(
            ["nbd-client", "-d", nbd_device_path(index)], deadline=DISCONNECT_DEADLINE, check=False
        )


class StillOpen(Busy):
    """A device was disconnected, and the kernel keeps its number for as long as somebody has it open."""


async def disconnect_device(index: int, runner: ProcessRunner) -> None:
    """Disconnect a device. Raises StillOpen, with who has it open, where the kernel keeps it all the same."""
    await cut_device_off(index, runner)
    give_up = time.monotonic() + 5
    while read_nbd_status(index).pid is not None:
        if time.monotonic() >= give_up:
            users = await find_device_users(f"nbd{index}", runner)
            raise StillOpen(
                f"the kernel keeps {nbd_device_path(index)}, which is disconnected",
                f"it is open: {name_users(users)}" if users else "something in the kernel has it open",
                "end what has it open; no reboot is needed",
            )
        await asyncio.sleep(PAUSE)


def _loaded() -> bool:
    return NBD_MODULE.exists()


def _words(pid: int) -> list[str]:
    """A process's argv; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
