"""Each precondition of an automatic repair has a test in which it does not hold, and the table decides."""

from __future__ import annotations

import ast
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from zvault.core.errors import Refused
from zvault.core.policy import automatic_repairs
from zvault.core.policy.automatic_repairs import (
    AUTOMATIC_REPAIRS,
    CLEAR_POOL,
    CLOSE_DEVICE,
    IN_PAUSES,
    AutomaticRepair,
    Precondition,
    RepairPace,
)
from zvault.daemon.monitors import vault_monitor
from zvault.daemon.monitors.scrub_heal_scheduler import VaultScrub
from zvault.ops.vaults import clear_suspended_pool

ROOT = Path(__file__).resolve().parents[4]

ROWS = {name: one for name, one in vars(automatic_repairs).items() if isinstance(one, AutomaticRepair)}
"""The rows by the names that code has for them."""


@pytest.mark.parametrize(
    "test",
    sorted(
        {known.test for repair in AUTOMATIC_REPAIRS for known in repair.first}
        | {repair.pace.test for repair in AUTOMATIC_REPAIRS}
    ),
)
def test_its_test_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.M), test


def test_the_page_has_every_row() -> None:
    assert sorted(map(id, ROWS.values())) == sorted(map(id, AUTOMATIC_REPAIRS))


@cache
def list_asked_rows() -> list[tuple[str, frozenset[str]]]:
    """Each place in zvault's code that asks a row: the row's name, and the keys of what it says to be known."""
    return [
        asked
        for path in (ROOT / "zvault").rglob("*.py")
        if any(name in (text := path.read_text()) for name in ROWS)
        for asked in find_asked_rows(ast.parse(text))
    ]


def find_asked_rows(tree: ast.AST) -> Iterator[tuple[str, frozenset[str]]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=row), attr="require_known" | "find_unmet"),
                args=[ast.Dict(keys=keys)],
            ) if row in ROWS:
                yield row, frozenset(getattr(automatic_repairs, ast.unparse(key)) for key in keys if key)


@pytest.mark.parametrize("row", ROWS)
def test_the_code_asks_each_row_with_all_that_it_lists(row: str) -> None:
    asked = [keys for name, keys in list_asked_rows() if name == row]
    assert asked, f"nothing in zvault asks {row}: what it says is not what the code does"
    assert set(asked) == {frozenset(known.key for known in ROWS[row].first)}


def test_a_row_that_only_stands_there_is_not_asked() -> None:
    for code in ("CLEAR_POOL.pace", "CLEAR_POOL.first[0].says", "print(CLEAR_POOL)"):
        assert not list(find_asked_rows(ast.parse(code)))
    assert list(find_asked_rows(ast.parse("CLEAR_POOL.require_known({OWN: check})"))) == [
        ("CLEAR_POOL", frozenset({"own"}))
    ]


def test_the_waits_of_the_code_are_those_of_the_table() -> None:
    paced = {name for name, one in ROWS.items() if one.pace.first is not None}
    assert {name for name in paced if ROWS[name].pace is not IN_PAUSES} == {"CLOSE_DEVICE", "RECHECK_ERRORS"}
    assert list(islice(vault_monitor.RepairSchedule().pauses, 6)) == [5.0, 10.0, 20.0, 40.0, 80.0, 120.0]
    assert list(islice(VaultScrub().recheck_pauses, 3)) == [300.0] * 3
    pace = CLOSE_DEVICE.pace
    assert (pace.first, pace.within) == (
        clear_suspended_pool.LET_GO_PAUSE,
        clear_suspended_pool.LET_GO_DEADLINE,
    )


@pytest.mark.parametrize(
    ("pace", "words"),
    [
        (IN_PAUSES, "after 5s, 10s, 20s, up to every 2m, and with each run"),
        (RepairPace("in each try", "", 3.0, within=30.0), "every 3s for 30s, in each try"),
        (RepairPace("once for each token", ""), "once for each token"),
    ],
)
def test_how_often_in_words_is_made_of_the_waits(pace: RepairPace, words: str) -> None:
    assert pace.describe() == words


def test_what_is_tried_once_has_no_waits() -> None:
    with pytest.raises(ValueError, match="once for each token"):
        RepairPace("once for each token", "").iterate_waits()


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


@pytest.mark.parametrize("repair", AUTOMATIC_REPAIRS, ids=lambda one: one.command)
def test_the_first_that_is_known_not_to_be_so_is_found(repair: AutomaticRepair) -> None:
    keys = [known.key for known in repair.first]
    assert repair.find_unmet(dict.fromkeys(keys, True)) is None
    for number, key in enumerate(keys):
        unmet = repair.find_unmet({one: one in keys[:number] for one in keys})
        assert isinstance(unmet, Precondition)
        assert unmet.key == key
    with pytest.raises(LookupError, match="needs checks of"):
        repair.find_unmet({**dict.fromkeys(keys, True), "another": True})


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
