"""Making a vault: its devices measured where its profile wants that, its pool made, its settings tried out."""

from __future__ import annotations

from zvault.core.errors import ZvaultError
from zvault.ops.provision.measure import DeviceMeasurement, measure_new, settle_on_parameters
from zvault.ops.tuning.measurements import AUTO
from zvault.ops.vaults.assembly import Say, VaultAssembly
from zvault.ops.vaults.new_pool import make_creation_document
from zvault.ops.vaults.vault import ManagedVault


async def create_vault(vault: ManagedVault, say: Say) -> None:
    """Make a vault's pool, on devices that hold nothing; then it is down again, unless it is to be up always.

    Raises Busy while any of it is up, Refused for what holds anything.
    """

    async def measured(assembly: VaultAssembly) -> DeviceMeasurement | None:
        make_creation_document(assembly.name, assembly.config, assembly.profile(), assembly.stack())
        return await measure_new(assembly, say) if assembly.config.profile == AUTO else None

    async def settled(found: DeviceMeasurement | None) -> None:
        if found is not None:
            await _settle_on(vault, found, say)

    await vault.create(say, measured, settled)


async def _settle_on(vault: ManagedVault, found: DeviceMeasurement, say: Say) -> None:
    """Keep what follows from a measurement; a vault without is slow, and still a vault."""
    try:
        await settle_on_parameters(vault.context, vault.config, found, say)
    except ZvaultError as error:
        say(f"settings were worked out and could not be tried: {error}")
