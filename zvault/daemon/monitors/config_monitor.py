"""Looks whether the configuration on disk is the one in force. daemon/reload.py puts it in force."""

from __future__ import annotations

import asyncio

from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import ConfigError
from zvault.ops.state.environment import Environment

CONFIG_INTERVAL = 30.0
"""Seconds between looks."""

RELOAD_ADVICE = "its tables are not those that were loaded: 'systemctl reload zvaultd' has them count"

ConfigStamp = tuple[tuple[str, int, int], ...]
"""Path, time of change in nanoseconds and inode of each file: what is the same has not changed."""


class ConfigMonitor:
    """Reads the configuration when a file of it changed. ``differs``: how it differs from the one in force, empty if it
    does not, None before the first look."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.differs: str | None = None
        self._stamp: ConfigStamp | None = None
        self._found: Config | str = ""

    async def look(self) -> None:
        """Look at the configuration's files, and read them where one has changed."""
        stamp = await asyncio.to_thread(make_config_stamp, self.env.paths)
        if stamp != self._stamp:
            self._found = await asyncio.to_thread(read_config, self.env.paths)
            self._stamp = stamp
        if isinstance(self._found, str):
            self.differs = self._found
        else:
            self.differs = "" if self._found == self.env.config else RELOAD_ADVICE


def read_config(paths: Paths) -> Config | str:
    """The configuration on disk, or why it cannot be used."""
    try:
        return load_config(paths)
    except ConfigError as error:
        return f"{error.what}: {error.why}"


def make_config_stamp(paths: Paths) -> ConfigStamp:
    """Return a stamp that changes whenever a file of the configuration does.

    A file that cannot be looked at counts as not there.
    """
    found = []
    folder = paths.config_file.parent / "conf.d"
    try:
        files = sorted(folder.glob("*.toml"))
    except OSError:
        files = []
    for file in (paths.config_file, *files):
        try:
            seen = file.stat()
        except OSError:
            continue
        found.append((str(file), seen.st_mtime_ns, seen.st_ino))
    return tuple(found)
