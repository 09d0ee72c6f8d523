"""What the state of a vault on this host makes of the host among those that share the vault."""

from __future__ import annotations

from zvault.core.errors import Busy, TakenOver, ZvaultError
from zvault.core.policy.vault_life import VaultLife
from zvault.core.sharing.election import ElectionState


def find_election_state(life: VaultLife, error: ZvaultError | None) -> ElectionState:
    """Return the state of this host among the others, by its vault's state and what keeps it there."""
    match life:
        case VaultLife.COMING_UP | VaultLife.COMING_BACK:
            return ElectionState.ASKING
        case VaultLife.UP | VaultLife.EXPORTED_BY_HAND:
            return ElectionState.HOLDING
        case VaultLife.GOING_DOWN | VaultLife.EXPORTED:
            return ElectionState.RELEASING
        # A shell in the pool made its host cut off: its runs stood by for no reason, and all others waited for it.
        case VaultLife.HALF_DOWN if type(error) is Busy:
            return ElectionState.HOLDING  # somebody uses it; its server runs, and renews the lease
        case VaultLife.LOST | VaultLife.HALF_DOWN:
            return ElectionState.SHUT_OUT if isinstance(error, TakenOver) else ElectionState.CUT_OFF
        case _:
            return ElectionState.STANDING_BY
