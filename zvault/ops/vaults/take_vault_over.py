"""Taking a vault over on this host: who has it is shown, then shut out, and the vault comes up here."""

from __future__ import annotations

from zvault.api.vaults import TakeoverDocument
from zvault.ops.vaults.assembly import Say
from zvault.ops.vaults.fencing import (
    fence_holders,
    list_holders,
    make_takeover_document,
    name_takeover_lease,
    refuse_if_up,
    refuse_unless_fenced,
)
from zvault.ops.vaults.vault import ManagedVault


async def show_takeover(vault: ManagedVault) -> TakeoverDocument:
    """Report who has a vault, and what taking it over would do. Raises Refused while it is up here."""
    assembly = vault.assembly()
    await refuse_if_up(assembly, vault.users)
    return make_takeover_document(vault.name, vault.config, await list_holders(assembly))


async def take_vault_over(vault: ManagedVault, holders: object, say: Say, *, by_hand: bool) -> None:
    """Shut out whoever has a vault, then bring it up here, and keep it so until it is taken down.

    ``holders`` are those of the ``show_takeover`` that somebody said yes to; ``by_hand``: he has shut out those whom
    zvault cannot. Raises Refused before anything is done, or what went wrong.
    """

    async def shut_out() -> None:
        assembly = vault.assembly()
        held = await list_holders(assembly)
        refuse_unless_fenced(make_takeover_document(vault.name, vault.config, held), holders, by_hand=by_hand)
        await fence_holders(assembly, held, say)

    await vault.take_over(shut_out, say)
    vault.context.records.undo.drop(name_takeover_lease(vault.name))
