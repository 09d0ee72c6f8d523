"""What fits into the seconds before a sleep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.policy.sleep import SHORTEST_EXPORT, has_time_to_export


@pytest.mark.parametrize(
    ("left", "synced_in", "export"),
    [(4.5, 0.1, True), (4.5, 1.2, False), (1.9, 0.0, False), (30.0, 7.0, True)],
)
def test_an_export_begins_only_where_it_is_sure_to_end(left: float, synced_in: float, export: bool):
    assert has_time_to_export(left, synced_in) is export


@given(st.floats(-10, 60), st.floats(0, 60), st.floats(0, 60))
def test_less_time_or_a_slower_device_never_make_it_likelier(left: float, synced_in: float, less: float):
    if not has_time_to_export(left, synced_in):
        assert not has_time_to_export(left - less, synced_in)
        assert not has_time_to_export(left, synced_in + less)
    else:
        assert left >= SHORTEST_EXPORT
