"""A side of a backup on which nothing is encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.model import Dataset
from zvault.core.replication.vault_encryption import NO_KEYS_ABOVE, KeysAbove


class NoKeys:
    """Answers for a vault without keys."""

    async def keys_above(self, root: str, there: Dataset | None) -> KeysAbove:
        return NO_KEYS_ABOVE

    async def loaded_keys(self, roots: Sequence[str]) -> set[str]:
        raise AssertionError(f"nothing here needs the keys of {roots}")
