"""What a use case that only reads vaults needs of them, so that it may be given the vaults as they were
(past_vaults.py).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from zvault.ops.vaults.assembly import Say
from zvault.ops.vaults.vault import OpenVault


class UsableVault(Protocol):
    """A vault that is up for as long as somebody uses it."""

    def use(
        self,
        user: str,
        say: Say,
        *,
        warn: Say | None = None,
        writes: bool = True,
        reads: bool = False,
        create: bool = False,
    ) -> AbstractAsyncContextManager[OpenVault]:
        """See ManagedVault.use."""


class VaultsByName(Protocol):
    """Vaults that can be used: those of now, or one as it was."""

    def __getitem__(self, name: str, /) -> UsableVault: ...
