"""Patterns that share a name are found out, against all short names; and what is named does match."""

from __future__ import annotations

from itertools import islice, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.name_rules import choose_by_pattern, find_exclusion
from zvault.core.pattern_overlap import find_common_names

PART = st.one_of(st.just("**"), st.text("ab*?", min_size=1, max_size=3).filter(lambda part: "**" not in part))
PATTERN = st.lists(PART, min_size=1, max_size=3).map("/".join)
PARTS = ["".join(chars) for size in (1, 2, 3) for chars in product("ab", repeat=size)]
NAMES = ["/".join(parts) for size in (1, 2, 3) for parts in product(PARTS, repeat=size)]


@given(st.lists(PATTERN, min_size=1, max_size=3))
def test_a_name_is_found_where_there_is_one_and_it_matches_all(patterns: list[str]) -> None:
    found = list(islice(find_common_names(patterns), 20))
    for name in found:
        assert all(find_exclusion(name, [pattern]) for pattern in patterns), name
    if any(all(find_exclusion(name, [pattern]) for pattern in patterns) for name in NAMES):
        assert found


@pytest.mark.parametrize(
    ("patterns", "first"),
    [
        (["tank/a", "tank/b"], None),
        (["tank/a", "tank/*"], "tank/a"),
        (["tank/*a", "tank/b*"], "tank/ba"),
        (["tank/a/**", "**/b"], "tank/a/b"),
        (["tank/a", "tank/a/**"], None),
        (["tank/??", "tank/a"], None),
        (["tank/**", "pool/**"], None),
    ],
)
def test_one_by_one(patterns: list[str], first: str | None) -> None:
    assert next(find_common_names(patterns), None) == first


def test_deep_patterns_are_quick() -> None:
    deep = "/".join(["**", "a*b*c"] * 10)
    assert list(islice(find_common_names([deep, f"{deep}/**", "**"]), 5)) != []


@given(st.lists(PATTERN, max_size=2), st.lists(PATTERN, max_size=2), st.sampled_from(NAMES))
def test_what_is_selected(include: list[str], exclude: list[str], name: str) -> None:
    found = choose_by_pattern(name, include, exclude)
    taken = found.taken
    assert taken == (
        (include == [] or find_exclusion(name, include) is not None) and find_exclusion(name, exclude) is None
    )
    if exclude:
        assert choose_by_pattern(name, include, []).taken or not taken, "exclude only ever leaves out"
    assert not taken or not include or find_exclusion(name, include) is not None
    decisive = find_exclusion(name, exclude) or find_exclusion(name, include)
    assert decisive is None or f"'{decisive}' in " in found.reason
