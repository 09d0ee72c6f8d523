"""The key to an encrypted block store, by the settings of its place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from zvault.blockstore.encryption.store_key import StoreKey
from zvault.system.key_source import KeySource, read_key
from zvault.system.process.runner import HostRunner


def read_store_key(settings: Mapping[str, str]) -> StoreKey | None:
    """The key by ``encryption-key``, ``-credential`` or ``-command``; None where there is none of them.

    Raises NotFound, ToolMissing, ToolFailed, DeadlineExceeded, ConfigError.
    """
    names = ("encryption-key", "encryption-credential", "encryption-command")
    source = KeySource(*(settings.get(name, "") for name in names))
    if not any(source):
        return None
    return StoreKey.parse(asyncio.run(read_key(source, HostRunner())), str(source))
