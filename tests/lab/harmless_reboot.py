"""A guest whose reboot is announced, waited for and done, and does nothing."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

TARGET = Path("/run/systemd/system/reboot.target")


@contextlib.contextmanager
def harmless_reboot() -> Iterator[None]:
    """While this lasts, 'systemctl reboot' reaches an empty target, after which logind calls the shutdown off."""
    TARGET.write_text("[Unit]\nDescription=no reboot\nDefaultDependencies=no\n")
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    try:
        yield
    finally:
        TARGET.unlink()
        subprocess.run(["systemctl", "stop", "reboot.target"], check=True)
        subprocess.run(["systemctl", "daemon-reload"], check=True)
