"""What the state of a vault makes of its host among the others."""

from __future__ import annotations

import pytest

from zvault.core.errors import Busy, DeviceGone, HeldElsewhere, PoolSuspended, TakenOver, ZvaultError
from zvault.core.policy.vault_life import VaultLife
from zvault.core.sharing.election import ElectionState
from zvault.ops.vaults.host_state import find_election_state


@pytest.mark.parametrize("life", list(VaultLife))
def test_each_state_of_a_vault_is_one_of_the_host(life: VaultLife) -> None:
    turn = find_election_state(life, None)
    if life in (VaultLife.LOST, VaultLife.HALF_DOWN):
        assert (turn, find_election_state(life, TakenOver("gone"))) == (
            ElectionState.CUT_OFF,
            ElectionState.SHUT_OUT,
        )
    else:
        assert find_election_state(life, TakenOver("gone")) is turn
        assert (turn is ElectionState.HOLDING) == (life in (VaultLife.UP, VaultLife.EXPORTED_BY_HAND))


@pytest.mark.parametrize(
    ("error", "turn"),
    [
        (Busy("somebody has a shell in it"), ElectionState.HOLDING),
        (HeldElsewhere("a has it"), ElectionState.CUT_OFF),
        (DeviceGone("the server is gone"), ElectionState.CUT_OFF),
        (PoolSuspended("no I/O"), ElectionState.CUT_OFF),
    ],
)
def test_a_pool_that_somebody_uses_keeps_the_vault_on_its_host(
    error: ZvaultError, turn: ElectionState
) -> None:
    assert find_election_state(VaultLife.HALF_DOWN, error) is turn
    assert find_election_state(VaultLife.LOST, error) is ElectionState.CUT_OFF
