"""Each automatic repair has a test in which it must not be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zvault.core.policy.automatic_repairs import AUTOMATIC_REPAIRS, AutomaticRepair

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("repair", AUTOMATIC_REPAIRS, ids=lambda one: one.command)
def test_its_test_is_there(repair: AutomaticRepair) -> None:
    file, _, name = repair.test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.M), repair.test


def test_nothing_that_is_called_never_run_is_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "zvault").rglob("*.py"))
    for words in ('"export", "-f"', '"import", "-F"', '"trim", "-s"', '"trim"'):
        assert words not in code
