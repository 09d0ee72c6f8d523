"""Verdicts: the worst finding decides, and one more never makes it better."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import LEVELS, Verdict, finding, worst

KINDS = st.sampled_from(sorted(CONDITIONS))


@given(st.data())
def test_one_more_finding_never_makes_it_better(data: st.DataObject):
    table = CONDITIONS[data.draw(KINDS)]
    some = data.draw(st.lists(st.sampled_from(table)))
    more = data.draw(st.sampled_from(table))
    found = [finding(one, "it", "why") for one in some]
    before, after = Verdict.of(found, table), Verdict.of([*found, finding(more, "it", "why")], table)
    assert LEVELS.index(after.level) >= LEVELS.index(before.level)
    assert after.level == max((one.level for one in [*some, more]), key=LEVELS.index)
    assert before.word == "ok" or after.word != "ok"


@given(st.lists(st.sampled_from(LEVELS)))
def test_the_worst_of_levels(levels: list[str]):
    assert worst(levels) == max(levels, key=LEVELS.index, default="ok")  # type: ignore[arg-type]


def test_nothing_found_is_ok():
    assert (Verdict().level, Verdict().word, Verdict().keys) == ("ok", "ok", ())
