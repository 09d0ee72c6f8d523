"""restic, rclone and rsync, which get-peers fetches, as this guest finds them in its share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

PROGRAMS = Path("/share/programs/usr")


def find_program(name: str) -> str | None:
    """The path of one; None where it was not fetched."""
    path = PROGRAMS / "bin" / name
    return str(path) if path.exists() else None


def run_program(*argv: str, env: Mapping[str, str] | None = None, enter: tuple[str, ...] = ()) -> str:
    """Run one to its end: what it wrote. ``enter`` is what its command begins with."""
    libraries = {"LD_LIBRARY_PATH": f"{PROGRAMS}/lib/x86_64-linux-gnu", "HOME": "/root"}
    given = {**os.environ, **libraries, **(env or {})}
    done = subprocess.run([*enter, *argv], env=given, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr[-2000:])
    return done.stdout
