"""Where the key to an encrypted block store comes from: a file, a systemd credential, or a program that prints it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from zvault.blockstore.encryption.store_key import LONGEST, StoreKey
from zvault.core.errors import NotFound, ToolFailed
from zvault.system.credentials import credential_file
from zvault.system.process.runner import HostRunner

DEADLINE = 60.0
"""Seconds that the program may take; it may ask another host."""


def key_of(source: Mapping[str, str]) -> StoreKey | None:
    """The key by the settings ``encryption-key``, ``-credential`` or ``-command``; None where there is none of them.

    Raises NotFound, ToolMissing, ToolFailed, DeadlineExceeded, ConfigError. No error shows the key.
    """
    if path := source.get("encryption-key"):
        return StoreKey.parse(_read(path), path)
    if name := source.get("encryption-credential"):
        return StoreKey.parse(_read(str(credential_file(name))), f"the credential {name}")
    if program := source.get("encryption-command"):
        done = asyncio.run(HostRunner().run([program], deadline=DEADLINE, check=False))
        if done.returncode != 0:
            what = f"the program {program} gives no key"
            raise ToolFailed(what, done.complaint(), "run it by hand to see why")
        return StoreKey.parse(done.stdout.encode(), f"what {program} prints")
    return None


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return file.read(LONGEST)
    except OSError as error:
        raise NotFound(
            f"the key in {path} cannot be read", error.strerror or str(error), "correct its path or mode"
        ) from error
