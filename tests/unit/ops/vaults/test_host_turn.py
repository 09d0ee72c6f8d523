"""What the state of a vault makes of its host among the others."""

from __future__ import annotations

import pytest

from zvault.core.errors import Busy, DeviceGone, HeldElsewhere, PoolSuspended, TakenOver, ZvaultError
from zvault.core.policy.vault_life import Life
from zvault.core.sharing.turn import Turn
from zvault.ops.vaults.host_turn import turn_of


@pytest.mark.parametrize("life", list(Life))
def test_each_state_of_a_vault_is_one_of_the_host(life: Life) -> None:
    turn = turn_of(life, None)
    if life in (Life.LOST, Life.HALF_DOWN):
        assert (turn, turn_of(life, TakenOver("gone"))) == (Turn.CUT_OFF, Turn.SHUT_OUT)
    else:
        assert turn_of(life, TakenOver("gone")) is turn
        assert (turn is Turn.HOLDING) == (life in (Life.UP, Life.EXPORTED_BY_HAND))


@pytest.mark.parametrize(
    ("error", "turn"),
    [
        (Busy("somebody has a shell in it"), Turn.HOLDING),
        (HeldElsewhere("a has it"), Turn.CUT_OFF),
        (DeviceGone("the server is gone"), Turn.CUT_OFF),
        (PoolSuspended("no I/O"), Turn.CUT_OFF),
    ],
)
def test_a_pool_that_somebody_uses_keeps_the_vault_on_its_host(error: ZvaultError, turn: Turn) -> None:
    assert turn_of(Life.HALF_DOWN, error) is turn
    assert turn_of(Life.LOST, error) is Turn.CUT_OFF
