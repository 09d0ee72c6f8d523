"""Verdicts: the worst finding decides, and one more never makes it better."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import VERDICT_LEVELS, HealthVerdict, make_finding, select_worst_level

KINDS = st.sampled_from(sorted(CONDITIONS))


@given(st.data())
def test_one_more_finding_never_makes_it_better(data: st.DataObject):
    table = CONDITIONS[data.draw(KINDS)]
    some = data.draw(st.lists(st.sampled_from(table)))
    more = data.draw(st.sampled_from(table))
    found = [make_finding(one, "it", "why") for one in some]
    before, after = (
        HealthVerdict.of(found, table),
        HealthVerdict.of([*found, make_finding(more, "it", "why")], table),
    )
    assert VERDICT_LEVELS.index(after.level) >= VERDICT_LEVELS.index(before.level)
    assert after.level == max((one.level for one in [*some, more]), key=VERDICT_LEVELS.index)
    assert before.word == "ok" or after.word != "ok"


@given(st.lists(st.sampled_from(VERDICT_LEVELS)))
def test_the_worst_of_levels(levels: list[str]):
    assert select_worst_level(levels) == max(levels, key=VERDICT_LEVELS.index, default="ok")  # type: ignore[arg-type]


def test_nothing_found_is_ok():
    assert (HealthVerdict().level, HealthVerdict().word, HealthVerdict().keys) == ("ok", "ok", ())
