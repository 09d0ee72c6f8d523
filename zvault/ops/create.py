"""Making a vault: its devices measured where its profile wants that, its pool made, its settings tried out."""

from __future__ import annotations

from zvault.core.errors import Busy, ZvaultError
from zvault.ops.assembly import Say
from zvault.ops.creation import creation_document
from zvault.ops.measure import Found, measure_new, settle_on
from zvault.ops.measured import AUTO
from zvault.ops.vault import Keeper
from zvault.ops.watch import to_its_end


async def create(keeper: Keeper, say: Say) -> None:
    """Make a vault's pool, on devices that hold nothing; then it is down again, unless it is to be up always.

    Raises Busy while any of it is up, Refused for what holds anything.
    """
    async with keeper.turn:
        assembly = keeper.assembly(new=True)
        if keeper.users or await assembly.anything_up():
            raise Busy(
                f"vault '{keeper.name}' is up",
                "only one that is down can be new",
                f"zvaultctl vault status {keeper.name}",
            )
        creation_document(keeper.name, keeper.config, assembly.profile(), assembly.stack())
        found = await _measured_blank(keeper, say)
        async with keeper.once("zvaultctl vault create", say, assembly):
            if found is not None:
                await _settle_on(keeper, found, say)


async def _measured_blank(keeper: Keeper, say: Say) -> Found | None:
    """Measure the devices of a vault that is to be made, where its profile wants that."""
    if keeper.config.profile != AUTO:
        return None
    keeper.write_down(pinned=False, paths=[])
    try:
        return await measure_new(keeper.assembly(new=True), say)
    except BaseException:
        await to_its_end(keeper.forget_if_down())
        raise


async def _settle_on(keeper: Keeper, found: Found, say: Say) -> None:
    """Keep what follows from a measurement; a vault without is slow, and still a vault."""
    try:
        await settle_on(keeper.context, keeper.name, found, say)
    except ZvaultError as error:
        say(f"settings were worked out and could not be tried: {error}")
