"""How the guard of a lease is called (guard.py), without what it needs itself: the client of an object store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

GUARD_STOP_SECONDS = 15.0
"""Seconds for the server to end by itself, where it has nothing to put away; its unit's TimeoutStopSec is longer."""


def guard_argv(
    verb: str,
    bound: float,
    server: Sequence[str],
    *,
    of: str = "",
    report: Path | None = None,
    resume: bool = False,
    patience: float = GUARD_STOP_SECONDS,
) -> list[str]:
    """Argv of the guard. ``report``: where ``guard`` leaves why it ended, as JSON; ``patience`` as Guard has it."""
    argv = [sys.executable, "-P", "-m", "zvault.devices.s3_lease.guard", verb, f"--bound={bound:g}"]
    argv += [f"--of={of}"] if of else []
    argv += [f"--report={report}"] if report is not None else []
    argv += [f"--patience={patience:g}"] if patience != GUARD_STOP_SECONDS else []
    return [*argv, *(["--resume"] if resume else []), "--", *server]
