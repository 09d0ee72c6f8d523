"""A document is the same JSON, whether it is encoded row by row or in one go."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zvault.daemon.api.handler import _count_rows, _encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_row_by_row_it_is_the_same(document: Any) -> None:
    assert _encode(document) == json.dumps(document).encode()


def test_a_document_is_long_by_its_lists() -> None:
    assert _count_rows({"datasets": [1, 2], "snapshots": [3], "vault": "cold"}) == 3
    assert _count_rows([1, 2]) == 0
