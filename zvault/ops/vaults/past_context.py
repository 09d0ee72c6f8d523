"""What a use case is given to work on a vault as it was, for as long as that can be read."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from zvault.core.errors import DeviceGone, ZvaultError
from zvault.devices.stack import DeviceStack
from zvault.ops.context import Context
from zvault.ops.vaults.assembly import Say
from zvault.ops.vaults.past_record import PastVault
from zvault.ops.vaults.vault import OpenVault
from zvault.ops.vaults.vault_interface import UsableVault
from zvault.system.tasks import watch_block


@dataclass(kw_only=True)
class OpenPast(OpenVault):
    """A vault as it was; ``stack`` has its device."""

    stack: DeviceStack
    past: PastVault

    async def trouble(self) -> ZvaultError | None:
        """Return the error if its server or its device is lost, else None."""
        return await find_past_loss(self.past, self.stack)


async def find_past_loss(past: PastVault, stack: DeviceStack) -> ZvaultError | None:
    """Why a vault as it was cannot be read any more, or None. What its device had for itself goes with its server."""
    for device in await stack.probe():
        if device.state not in ("up", "partial"):
            return DeviceGone(
                f"vault '{past.vault}' as it was at {past.when} cannot be read any more",
                f"{device.name} is {device.state}: {device.detail}",
                f"'zvaultctl vault close {past.vault}', and open it again",
            )
    return None


@dataclass(frozen=True)
class PastContext:
    """The context and vaults that a use case gets to work on a vault as it was."""

    context: Context
    vault: OpenPast

    def __getitem__(self, name: str) -> UsableVault:
        return self

    @contextlib.asynccontextmanager
    async def use(
        self,
        user: str,
        say: Say,
        *,
        warn: Say | None = None,
        writes: bool = True,
        reads: bool = False,
        create: bool = False,
    ) -> AsyncIterator[OpenVault]:
        """See ManagedVault: it is up for as long as this is there."""
        async with watch_block(self.vault.trouble):
            yield self.vault
