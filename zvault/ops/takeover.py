"""Taking a vault over on this host: who has it is shown, then shut out, and the vault comes up here."""

from __future__ import annotations

from typing import Any

from zvault.ops.assembly import Say
from zvault.ops.take import lease_name, look, refuse_if_up, refuse_unless_fenced, take, takeover_document
from zvault.ops.vault import Keeper


async def takeover(keeper: Keeper) -> dict[str, Any]:
    """Who has a vault, and what taking it over would do. Raises Refused while it is up here."""
    await refuse_if_up(keeper.assembly(), keeper.users)
    return takeover_document(
        keeper.name, keeper.config, await look(keeper.context, keeper.name, keeper.config)
    )


async def take_over(keeper: Keeper, holders: object, say: Say, *, by_hand: bool) -> None:
    """Shut out whoever has a vault, then bring it up here, and keep it so until it is taken down.

    ``holders`` are those of the ``takeover`` that somebody said yes to; ``by_hand``: he has shut out those whom
    zvault cannot. Raises Refused before anything is done, or what went wrong.
    """
    context, name = keeper.context, keeper.name
    async with keeper.turn:
        await refuse_if_up(keeper.assembly(), keeper.users)
        held = await look(context, name, keeper.config)
        refuse_unless_fenced(takeover_document(name, keeper.config, held), holders, by_hand=by_hand)
        await take(context, name, held, say)
        await keeper.keep_up("zvaultctl vault take", say, keeper.assembly(fenced=True))
        context.leases.drop(lease_name(name))
