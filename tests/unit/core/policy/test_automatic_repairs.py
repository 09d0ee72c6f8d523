"""Each precondition of an automatic repair has a test in which it does not hold, and the table decides."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from zvault.core.errors import Refused
from zvault.core.policy.automatic_repairs import (
    AUTOMATIC_REPAIRS,
    CLEAR_POOL,
    AutomaticRepair,
    Precondition,
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    "known",
    [known for repair in AUTOMATIC_REPAIRS for known in repair.first],
    ids=lambda one: one.key,
)
def test_its_test_is_there(known: Precondition) -> None:
    file, _, name = known.test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.M), known.test


def test_each_repair_has_preconditions_of_different_keys() -> None:
    for repair in AUTOMATIC_REPAIRS:
        keys = [known.key for known in repair.first]
        assert keys
        assert len(keys) == len(set(keys))


class Checks:
    """Checks that note that they were made; those of ``fails`` raise."""

    def __init__(self, *fails: str) -> None:
        self.fails, self.made = fails, list[str]()

    def __call__(self, key: str) -> Callable[[], Awaitable[None]]:
        async def check() -> None:
            self.made.append(key)
            if key in self.fails:
                raise Refused(key, "")

        return check


@pytest.mark.parametrize("repair", AUTOMATIC_REPAIRS, ids=lambda one: one.command)
async def test_the_first_that_is_not_so_ends_it(repair: AutomaticRepair) -> None:
    keys = [known.key for known in repair.first]
    checks = Checks()
    await repair.require_known({key: checks(key) for key in reversed(keys)})
    assert checks.made == keys
    for number, key in enumerate(keys):
        checks = Checks(key)
        with pytest.raises(Refused, match=key):
            await repair.require_known({one: checks(one) for one in keys})
        assert checks.made == keys[: number + 1]


async def test_a_precondition_without_a_check_and_a_check_without_one_are_told() -> None:
    checks, keys = Checks(), [known.key for known in CLEAR_POOL.first]
    for given in (keys[1:], [*keys, "another"]):
        with pytest.raises(LookupError, match="zpool clear needs checks of"):
            await CLEAR_POOL.require_known({key: checks(key) for key in given})
    assert checks.made == []


def test_nothing_that_is_called_never_run_is_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "zvault").rglob("*.py"))
    for words in ('"export", "-f"', '"import", "-F"', '"trim", "-s"', '"trim"'):
        assert words not in code
