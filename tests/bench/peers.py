"""The peers, each as its own documentation would have it for a fast replication between two local pools.

What is left out is what a local replication has no use for (compression, pv) and what a peer's manual calls a safe way
to be faster. Their holds, bookmarks and resumable receives stay as they come, as zvault's do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

SHARED = Path("/share")
"""Where the guest finds what ``get-peers`` fetched."""

LAUNCHER = """#!/usr/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""

SYNCOID = ["syncoid", "--recursive", "--no-sync-snap", "--quiet"]
AUTOBACKUP = ["zfs-autobackup", "--no-snapshot", "--no-thinning", "--no-guid-check"]
AUTOBACKUP += ["--snapshot-format", "zvault_%Y-%m-%dT%H:%M:%SZ", "--utc"]
BZFS = ["bzfs", "--recursive", "--quiet", "--no-estimate-send-size", "--pv-program=-", "--ps-program=-"]


def install() -> None:
    """Put the peers from PyPI where the guest's Python finds them, compiled as a package's would be."""
    there = Path(sysconfig.get_path("purelib", "posix_local"))
    shutil.copytree(SHARED, there, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bin", "programs"))
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(there)], check=True)
    for name, module, function in (
        ("bzfs", "bzfs_main.bzfs", "main"),
        ("zfs-autobackup", "zfs_autobackup.ZfsAutobackup", "cli"),
    ):
        path = Path("/usr/local/bin") / name
        path.write_text(LAUNCHER.format(module=module, function=function))
        path.chmod(0o755)
    for name in ("syncoid", "bzfs", "zfs-autobackup"):
        assert shutil.which(name) is not None, f"the guest has no {name}"


def timed(*argv: str) -> float:
    """Seconds a command took; it must succeed."""
    started = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True)
    took = time.monotonic() - started
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return took


def syncoid(source: str, target: str) -> float:
    """syncoid, sending the snapshots that are there."""
    return timed(*SYNCOID, source, target)


def autobackup(source: str, target: str, *more: str) -> float:
    """zfs-autobackup; it selects by a property, and puts the source's full name below its target."""
    assert target.endswith(f"/{source}")
    return timed(*AUTOBACKUP, *more, "bench", target.removesuffix(f"/{source}"))


def bzfs(source: str, target: str, *more: str) -> float:
    """bzfs, with the number of threads it takes by itself unless told otherwise."""
    return timed(*BZFS, *more, source, target)
