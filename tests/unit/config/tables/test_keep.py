"""Rules of what is kept, as they are written: by the calendar, and of any length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config
from zvault.core.policy.retention import KeepRules

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HEAD = '[daemon]\nhost = "h"\n[vault.cold]\npool = "cold"\n[backup.a]\nsource = "tank"\nvault = "cold"\n'


def keep(table: str) -> str:
    return f"{HEAD}keep = {{ vault = {{ {table} }} }}\n"


@pytest.mark.parametrize(
    ("table", "rules"),
    [
        ('"6h" = 8, daily = 30', KeepRules(daily=30, periods=((21600, 8),))),
        ('frequently = 4, "2w" = 3', KeepRules(periods=((900, 4), (1209600, 3)))),
        ('periods = { "1h30m" = 2 }, 5m = 12', KeepRules(periods=((300, 12), (5400, 2)))),
        ('"15m" = 0, last = 1', KeepRules(last=1, periods=((900, 0),))),
    ],
)
def test_a_period_of_any_length(good: Good, table: str, rules: KeepRules) -> None:
    found = good(keep(table)).backup["a"].keep.vault
    assert found == rules
    assert not found.empty


def test_periods_of_which_none_is_kept_are_no_rule(good: Good) -> None:
    assert good(keep('"6h" = 0')).backup["a"].keep.vault.empty


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('"6" = 8', "no unit"),
        ('"6x" = 8', "backup.a.keep.vault.periods: "),
        ('"30s" = 8', '"30s" is no period: it has whole minutes'),
        ('"6h" = "8"', "must be an integer, not the string"),
        ('"6h" = -1', "must be at least 0, not the integer -1"),
        ('"60m" = 1, "1h" = 2', '"60m" and "1h" are one period: leave one out'),
        ('"15m" = 1, frequently = 2', "frequently is the period of 15m"),
    ],
)
def test_refused(problems: Problems, table: str, said: str) -> None:
    (line,) = problems(keep(table))
    assert line.startswith("zvault.toml:8: backup.a.keep.vault")
    assert said in line
