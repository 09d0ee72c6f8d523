"""What the state of a vault on this host makes of the host among those that share the vault."""

from __future__ import annotations

from zvault.core.errors import Busy, TakenOver, ZvaultError
from zvault.core.policy.vault_life import Life
from zvault.core.sharing.turn import Turn


def turn_of(life: Life, error: ZvaultError | None) -> Turn:
    """Return the state of this host among the others, by its vault's state and what keeps it there."""
    match life:
        case Life.COMING_UP | Life.COMING_BACK:
            return Turn.ASKING
        case Life.UP | Life.EXPORTED_BY_HAND:
            return Turn.HOLDING
        case Life.GOING_DOWN | Life.EXPORTED:
            return Turn.RELEASING
        # A shell in the pool made its host cut off: its runs stood by for no reason, and all others waited for it.
        case Life.HALF_DOWN if type(error) is Busy:
            return Turn.HOLDING  # somebody uses it; its server runs, and renews the lease
        case Life.LOST | Life.HALF_DOWN:
            return Turn.SHUT_OUT if isinstance(error, TakenOver) else Turn.CUT_OFF
        case _:
            return Turn.STANDING_BY
