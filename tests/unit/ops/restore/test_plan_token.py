"""Whether a restore that was cut off goes on with the token that its target lists."""

from __future__ import annotations

import pytest

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.replication.restore_order import RestoreStream
from zvault.core.replication.stream_flags import SentFlags
from zvault.ops.restore.plan_restore import _problem

NAME = DatasetName("cold/h/tank")
BASE, NEWEST = Snapshot(NAME, "s1", 101, 1, 1), Snapshot(NAME, "s2", 102, 2, 2)
RAW, PLAIN = SentFlags(compressed=True, raw=True), SentFlags(compressed=True)


def token(
    guid: int = 102, flags: SentFlags = PLAIN, base: int = 101, pool: str = "cold"
) -> InterruptedReceive:
    return InterruptedReceive("t", guid, flags=flags, from_guid=base, pool=pool)


@pytest.mark.parametrize(
    ("interrupted", "encrypted", "words"),
    [
        (token(), False, ""),
        (token(flags=RAW), True, ""),
        (token(101), False, "of another snapshot"),
        (token(flags=PLAIN), True, "is encrypted"),
        (token(flags=RAW), False, "begun raw"),
        (token(base=0), False, "starts from another snapshot"),
        (token(pool="desk"), False, "for the pool desk, not cold"),
        (InterruptedReceive("t", 0, "its resume token is corrupt: x"), False, "corrupt"),
    ],
)
def test_only_the_token_of_what_is_being_restored_is_followed(
    interrupted: InterruptedReceive, encrypted: bool, words: str
) -> None:
    dataset = Dataset(NAME, 1, "filesystem", snapshots=(BASE, NEWEST), encrypted=encrypted)
    problem = _problem(interrupted, [RestoreStream(NEWEST, BASE)], dataset)
    assert (words in problem) if words else not problem
