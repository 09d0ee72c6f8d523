"""What is told of a vault's damage, and what to do about it."""

from dataclasses import replace

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.integrity.damage import METADATA_NAME, DamagedFile
from zvault.ops.healing.vault_damage import make_damaged_error
from zvault.ops.state.pool_health import PoolCondition

METADATA = DamagedFile(METADATA_NAME, None, "<0x3d>")
GONE = DamagedFile(None, None, "<0x21>:<0x8>")
FILE = DamagedFile("cold/host/tank", "zvault_1", "/etc/passwd")


@pytest.mark.parametrize(
    ("damages", "what", "advice"),
    [
        ((METADATA,), "no dataset or snapshot is known to be damaged", "'zvaultctl scrub cold', and again"),
        ((METADATA, FILE), "is damaged", "'zvaultctl heal cold'"),
        ((GONE,), "no dataset or snapshot is known to be damaged", "'zvaultctl scrub cold', and again"),
        ((), "no dataset or snapshot is known to be damaged", "'zvaultctl scrub cold', and again"),
    ],
)
def test_nobody_is_sent_to_heal_what_no_stream_carries(
    damages: tuple[DamagedFile, ...], what: str, advice: str
) -> None:
    found = replace(PoolCondition(1.0), errors=2, damages=damages)
    error = make_damaged_error(context().env.vault("cold"), found)
    assert what in error.what
    assert advice in error.next
