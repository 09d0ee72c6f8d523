"""The daemon's verdict, and the table of all conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.daemon import LEAST_SPACE, DaemonFacts, judge_daemon
from zvault.core.health.verdict import VERDICT_LEVELS

GOOD = DaemonFacts(config_differs="", unwritable="", space=LEAST_SPACE)

CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ()),
    ({"warnings": {"config": "x"}, "config_differs": "x"}, ("config-refused",)),
    ({"config_differs": "x"}, ("config-changed",)),
    ({"config_differs": None}, ("unchecked",)),
    ({"unwritable": "x", "space": 0}, ("state-unwritable",)),
    ({"unwritable": None}, ("unchecked",)),
    ({"space": LEAST_SPACE - 1}, ("state-space",)),
    ({"space": None}, ()),
    ({"clock_behind": 0.5}, ("clock-back",)),
    ({"warnings": {"metrics": "x"}}, ("metrics-unserved",)),
    ({"warnings": {"page": "x"}}, ("page-unserved",)),
    ({"warnings": {"hooks run": "x"}}, ("hook-failed",)),
    ({"warnings": {"observe lags": "x"}}, ("not-observed",)),
    ({"warnings": {"inhibitor cold": "x"}}, ("inhibitor-stuck",)),
    ({"stalls": ("x",)}, ("stalled-elsewhere",)),
    ({"tuning": ("x",)}, ("not-tuned",)),
    ({"crashes": ("x",)}, ("kernel-crashed",)),
    ({"warnings": {"notify phone": "x"}}, ("undelivered",)),
    ({"warnings": {"what nobody foresaw": "x"}}, ("other",)),
]


@pytest.mark.parametrize(("change", "keys"), CASES)
def test_each_condition_by_its_facts(change: dict[str, Any], keys: tuple[str, ...]):
    assert judge_daemon(replace(GOOD, **change)).keys == keys


def test_the_cases_show_every_condition():
    assert {key for _, keys in CASES for key in keys} == {one.key for one in CONDITIONS["daemon"]}


def test_a_daemon_that_has_not_looked_is_not_known_to_be_well():
    assert judge_daemon(DaemonFacts()).level == "unknown"


def test_the_table_has_each_condition_once_worst_first():
    table = [one for conditions in CONDITIONS.values() for one in conditions]
    assert len({one.key for one in table}) == len(table)
    for kind, conditions in CONDITIONS.items():
        assert {one.kind for one in conditions} == {kind}
        levels = [VERDICT_LEVELS.index(one.level) for one in conditions]
        assert levels == sorted(levels, reverse=True)


def test_the_table_says_when_why_and_what_next():
    for conditions in CONDITIONS.values():
        for one in conditions:
            assert one.when.endswith(".")
            assert one.means.endswith(".")
            assert one.next
            assert one.says
            assert "\n" not in one.when + one.means + one.next
