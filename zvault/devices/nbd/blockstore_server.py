"""zvault's own block store as an NBD server: nbdkit with zvault/blockstore/nbdkit_plugin.py, in a unit of its own.

What the server says of itself is in a file in a folder beside its socket, made anew each second (see
zvault/blockstore/server.py): ``is_ready`` once it serves, ``closed`` once all is in the bucket, ``error`` why it ended,
``engine`` and ``requests`` what it does.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
from pathlib import Path

import zvault
from zvault.api.blockstore import EngineFigures, StoreDocument
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.paths import Paths
from zvault.core.errors import DeviceGone, ToolMissing
from zvault.core.units import format_duration, format_size
from zvault.devices.layer import Data, SayProgress
from zvault.devices.nbd import nbdkit
from zvault.devices.nbd.server_status import check_server_status
from zvault.devices.server_unit import DeviceServer
from zvault.system.process.runner import ProcessRunner
from zvault.system.systemd_units import SystemdUnits

PLUGIN = Path(zvault.__file__).parent / "blockstore" / "nbdkit_plugin.py"

ATTACH_DEADLINE = 300.0
"""Seconds to attach: what a killed server left in its journal goes to the bucket first."""
STORE_STOP_SECONDS = 600.0
"""Seconds for a server that is to stop to have all in the bucket; the unit's TimeoutStopSec is longer."""
STORE_STOP_DEADLINE = STORE_STOP_SECONDS + 90.0

NBDKIT_THREADS = 32
"""Requests that nbdkit works on at a time; each may wait for the bucket."""

SILENT = 30.0
"""Seconds without a word from a server that is ready, after which it is in trouble."""

LONGEST_STATUS = 1 << 20
"""Characters read of what a server says."""

EMPTY = 4096
"""Bytes: a journal that holds less has no block in it."""

NEEDED_MODULES = ("boto3", "numpy", "xxhash")


def serve_store_argv(
    server: DeviceServer, spec: BlockstoreServer, *, create: bool = False, uploads: int | None = None
) -> list[str]:
    """Argv that serves ``spec`` in the foreground; with ``create`` a store that is not there is made.

    ``uploads``: the number of uploads where the spec has none; the server's own default where that is None.
    """
    argv = ["nbdkit", "-f", *nbdkit_program_argv(server.socket, spec)]
    if spec.journal is None:
        argv.append(f"journal={find_memory_journal(server, spec)}")
    argv += [f"status={find_status_file(server)}", f"seen={Paths().blockstore_positions}"]
    argv.append(f"user={spec.user}")
    if uploads is not None and not spec.setting("uploads"):
        argv.append(f"uploads={uploads}")
    return [*argv, *(["create=yes"] if create else [])]


def view_store_argv(
    socket: Path, spec: BlockstoreServer, at: str = "", before: float | None = None
) -> list[str]:
    """Argv that serves ``spec`` read-only in the foreground: as it is when that begins, whoever writes to it.

    ``at``: as it was at a moment that is kept, by its checkpoint's epoch and number, as in 3-120; or that was the last
    one ``before`` a time, in seconds since the epoch, by the versions of then.
    """
    argv = ["nbdkit", "-f", "-r", *nbdkit_program_argv(socket, spec), "readonly=yes"]
    argv += [f"at={at}"] if at else []
    return [*argv, f"before={before!r}"] if before is not None else argv


def throw_away_store_argv(server: DeviceServer, spec: BlockstoreServer) -> list[str]:
    """Argv that serves ``spec`` as it is in the bucket, to be written to: what is written ends with the server.

    nbdkit-cow-filter(1) keeps it in a file without a name. Nothing asks for the lease, for nothing reaches the store.
    No request may fail (see zvault/blockstore/latest_device.py), and a write waits for the store only where the
    filter has to read the rest of a block: so its blocks are as small as they can be.
    """
    argv = [
        "nbdkit",
        "-f",
        "--filter=cow",
        *nbdkit_program_argv(server.socket, spec),
        "readonly=yes",
        "latest=yes",
    ]
    argv.append(f"cow-block-size={nbdkit.COW_BLOCK}")
    return [*argv, f"status={find_status_file(server)}", f"user={spec.user}"]


def nbdkit_program_argv(socket: Path, spec: BlockstoreServer) -> list[str]:
    """Return the argv of nbdkit that is given in any case."""
    argv = [f"--threads={NBDKIT_THREADS}", "-U", str(socket), "python", str(PLUGIN)]
    return [*argv, f"bucket={spec.bucket}", f"key={spec.key}", *spec.settings]


def find_status_file(server: DeviceServer) -> Path:
    """Return the file in which the server says how it fares: in a folder of its own, the only one there that it may
    write to.
    """
    return server.directory / f"{server.name}.store" / "status"


def find_memory_journal(server: DeviceServer, spec: BlockstoreServer) -> Path:
    """The folder of a journal in /run: by the store, whose frames it holds, and not by the place in the vault."""
    digest = hashlib.sha256("\0".join(spec.identity).encode()).hexdigest()
    return server.directory / f"journal-{digest[:16]}"


def read_server_status(server: DeviceServer) -> Data | None:
    """Read what the server said last, as far as it can be; None where it said nothing."""
    try:
        # Whatever the server put there: its folder is not root's.
        fd = os.open(find_status_file(server), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            return check_server_status(json.loads(file.read(LONGEST_STATUS)))
    except (OSError, ValueError, RecursionError):
        return None


def is_ready(server: DeviceServer) -> bool:
    """True if it serves: nbdkit listens before its plugin has attached."""
    return bool((read_server_status(server) or {}).get("ready"))


def count_unfinished(found: Data | None) -> int:
    """Bytes that were answered and are in the journal on disk only, of a server that ended."""
    engine = (found or {}).get("engine") or {}
    if found is None or found.get("closed") or engine.get("mode") != "writeback":
        return 0
    used = int(engine.get("journal_used") or 0)
    return used if used > EMPTY else 0


def make_store_document(found: Data, now: float) -> StoreDocument:
    """Return what the API tells of it: the engine's figures, ``requests`` by kind, and ``trouble`` in words or None."""
    figures: EngineFigures = found.get("engine") or {}
    return {
        **figures,
        "at": found.get("at"),
        "ready": found.get("ready"),
        "closed": found.get("closed"),
        "requests": found.get("requests"),
        "bounds": found.get("bounds"),
        "trouble": _trouble(found, now),
    }


def _trouble(found: Data, now: float) -> str | None:
    if error := found.get("error"):
        return ": ".join(part for part in (error["what"], error["why"]) if part)
    if not found.get("ready") and (left := count_unfinished(found)):
        return (
            f"{format_size(left)} is not in the bucket, but in its journal: the next 'vault up' puts it there"
        )
    silent = now - float(found.get("at") or now)
    if found.get("ready") and silent > SILENT:
        return f"its server has said nothing for {format_duration(silent)}"
    return found.get("trouble")


async def check_store_tools(runner: ProcessRunner) -> None:
    """See that nbdkit, its Python plugin and the libraries are there. Raises ToolMissing."""
    await nbdkit.check_nbdkit(NbdkitServer("python"), runner)
    if missing := [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]:
        raise ToolMissing(
            "zvault's block store cannot be used",
            f"Python has no {', '.join(missing)}",
            f"apt install {' '.join(f'python3-{name}' for name in missing)}",
        )


async def stop_store_server(server: DeviceServer, units: SystemdUnits, say: SayProgress) -> None:
    """Stop it, which puts all into the bucket. Raises DeviceGone, once, when that could not be done."""
    ran = (await units.state(server.unit)).running
    await nbdkit.stop_nbdkit(server, units, deadline=STORE_STOP_DEADLINE)
    found = read_server_status(server)
    left = count_unfinished(found)
    if not left:
        forget_store_server(server, found)
        return
    what = f"{format_size(left)} of {server.name} is not in the bucket"
    following = "bring the vault up when the store answers again: then it goes on from its journal"
    if not ran:
        say(f"{what}, but in its journal: {following}")
        return
    error = (found or {}).get("error") or {}
    why = str(
        error.get("why") or error.get("what") or f"it was not done within {STORE_STOP_SECONDS / 60:g} minutes"
    )
    raise DeviceGone(what, f"{why}; it is in its journal", following)


def forget_store_server(server: DeviceServer, found: Data | None) -> None:
    """Remove what a server leaves that has put everything away.

    The journal in memory of one that has not stays, but for the empty folder of one that never began.
    """
    folder = (found or {}).get("journal")
    if found is not None and folder:
        journal = Path(folder)
        with contextlib.suppress(OSError):
            own = journal.parent == server.directory and _has_one_owner(
                journal, find_status_file(server).parent
            )
            if own and found.get("closed"):
                shutil.rmtree(journal)
            elif own and not found.get("engine"):
                journal.rmdir()
    remove_status_file(server)


def _has_one_owner(journal: Path, status: Path) -> bool:
    """True if a server may have this journal: it says so itself, and each store's is another user."""
    return journal.lstat().st_uid == status.lstat().st_uid


def remove_status_file(server: DeviceServer) -> None:
    """Forget what a server said."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(find_status_file(server).parent)
