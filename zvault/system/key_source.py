"""Where a key to something encrypted comes from: a file, a systemd credential, or a program that prints it.

A key is 32 bytes, or 64 hexadecimal digits. No error shows it.
"""

from __future__ import annotations

import os
import string
from typing import NamedTuple

from zvault.core.errors import ConfigError, NotFound, ToolFailed
from zvault.system.credentials import find_credential_file
from zvault.system.process.runner import ToolRunner

SIZE = 32
"""Bytes of a key."""
LONGEST_KEY = 4096
"""Bytes read of what should be a key."""
KEY_PROGRAM_DEADLINE = 60.0
"""Seconds that the program may take; it may ask another host."""


class KeySource(NamedTuple):
    """One of them is set."""

    file: str = ""
    credential: str = ""
    command: str = ""

    def __str__(self) -> str:
        if self.command:
            return f"what {self.command} prints"
        return self.file or f"the credential {self.credential}"


async def read_key(source: KeySource, runner: ToolRunner) -> bytes:
    """Read the key from its source, as it stands there. Raises NotFound, ToolMissing, ToolFailed, DeadlineExceeded."""
    if not source.command:
        return _read(source.file or str(find_credential_file(source.credential)))
    done = await runner.run([source.command], deadline=KEY_PROGRAM_DEADLINE, check=False)
    if done.returncode != 0:
        what = f"the program {source.command} gives no key"
        raise ToolFailed(what, done.complaint(), "run it by hand to see why")
    return done.stdout.encode()


def parse_key(data: bytes, where: str) -> bytes:
    """The 32 bytes of a key. Raises ConfigError."""
    if len(data) == SIZE:
        return data
    text = data.strip().decode("ascii", "replace")
    if len(text) == 2 * SIZE and set(text) <= set(string.hexdigits):
        return bytes.fromhex(text)
    raise ConfigError(
        f"{where} holds no key",
        f"it has {len(data)} bytes; a key is {SIZE} bytes, or {2 * SIZE} hexadecimal digits",
        f"make one with 'openssl rand -hex {SIZE}'",
    )


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return file.read(LONGEST_KEY)
    except OSError as error:
        raise NotFound(
            f"the key in {path} cannot be read", error.strerror or str(error), "correct its path or mode"
        ) from error
