"""Have systemd stop zvaultd before the units by which its vaults are reached: a VPN, a tunnel, a server on this host.

systemd stops units that are not ordered at the same time. A VPN that went first left the pool suspended in mid-run, a
``zfs receive`` that could not be ended, and a host that did not go down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from zvault.system.process.runner import ProcessRunner

RUNTIME_UNITS = Path("/run/systemd/system")
"""Where units are that end with the boot (systemd.unit(5)). It is there wherever systemd runs (sd_booted(3))."""

ORDER_DROP_IN = "zvaultd.service.d/50-zvault-requires-unit.conf"

RELOAD_DEADLINE = 60.0
"""Seconds for systemd to read its units again: generators of other packages run too."""


def format_order(units: Iterable[str]) -> str:
    """The drop-in that has zvaultd start after these units, and so be stopped before them; empty without any."""
    wanted = sorted(set(units))
    if not wanted:
        return ""
    return f"# Written by zvaultd: requires_unit in zvault.toml.\n[Unit]\nAfter={' '.join(wanted)}\n"


async def order_daemon(units: Iterable[str], runner: ProcessRunner, folder: Path = RUNTIME_UNITS) -> bool:
    """Order zvaultd after some units and no others, until the boot ends; whether anything had to be changed.

    What systemd reads counts for units that run already. Raises OSError, ToolFailed, DeadlineExceeded.
    """
    path = folder / ORDER_DROP_IN
    # While it is there systemd may not have read the drop-in. Else who is killed, or fails, between the two leaves one
    # that is as it is to be, and that nobody has read.
    unread = path.with_suffix(".unread")
    if not await asyncio.to_thread(_write, folder, path, unread, format_order(units)):
        return False
    await runner.run(["systemctl", "daemon-reload"], deadline=RELOAD_DEADLINE)
    await asyncio.to_thread(unread.unlink, missing_ok=True)
    return True


def _write(folder: Path, path: Path, unread: Path, text: str) -> bool:
    before = path.read_text() if path.exists() else ""
    if not folder.is_dir() or (before == text and not unread.exists()):
        return False
    path.parent.mkdir(exist_ok=True)
    unread.touch()
    if text:
        path.write_text(text)
    else:
        path.unlink(missing_ok=True)
    return True
