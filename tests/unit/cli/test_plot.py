"""Bars and lines: as wide as asked for, more is never drawn as less, and what is unknown is not drawn as nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.cli.plot import ASCII_INK, BLOCK_INK, break_text, choose_ink, draw_bar, draw_line

VALUES = st.floats(0, 1e12)


@given(st.none() | VALUES, VALUES, st.integers(1, 200), st.sampled_from([ASCII_INK, BLOCK_INK]))
def test_a_bar_is_as_wide_as_asked_for(value, limit, columns, drawn):
    shown = draw_bar(value, limit, columns, drawn)
    assert len(shown) == columns
    assert set(shown) <= {drawn.full, drawn.rest, drawn.over, drawn.unknown}
    assert (drawn.unknown in shown) == (value is None or limit == 0)
    if value is not None and limit > 0:
        assert (drawn.over in shown) == (value > limit)
        assert value == 0 or drawn.rest * columns != shown


@given(st.tuples(VALUES, VALUES).map(sorted), st.floats(1, 1e12), st.integers(1, 200))
def test_more_is_a_longer_bar_and_a_higher_line(values, limit, columns):
    less, more = values
    if more <= limit:
        counts = [draw_bar(value, limit, columns, ASCII_INK).count(ASCII_INK.full) for value in values]
        assert counts == sorted(counts)
    low, high = draw_line([less, more], limit, ASCII_INK)
    assert ASCII_INK.steps.index(low) <= ASCII_INK.steps.index(high)


def test_a_line():
    assert draw_line([None, 0, 5, 10, 99], 10, BLOCK_INK) == "·▁▅██"
    assert draw_line([0, 1], 0, ASCII_INK) == "__"


@pytest.mark.parametrize(
    ("encoding", "drawn"),
    [("utf-8", BLOCK_INK), ("ascii", ASCII_INK), (None, ASCII_INK), ("latin-1", ASCII_INK), ("x", ASCII_INK)],
)
def test_what_the_output_can_show(encoding, drawn):
    assert choose_ink(encoding) is drawn


@given(st.text(st.sampled_from("ab c"), max_size=80), st.integers(1, 40))
def test_pieces_fit_and_lose_nothing(text, columns):
    found = break_text(text, columns)
    assert all(len(piece) <= columns for piece in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
