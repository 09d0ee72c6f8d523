"""The check of documents itself: what it lets pass, and what not."""

from typing import Any, Literal, NotRequired, TypedDict

import pytest

from tests.unit.api.conforms import wrong


class Inner(TypedDict):
    name: str
    kind: Literal["a", "b"]


class Outer(TypedDict):
    count: int
    rate: float
    marks: tuple[int, int] | None
    rows: list[Inner]
    more: dict[str, float | None]
    on: bool
    late: NotRequired[str]


GOOD: dict[str, Any] = {
    "count": 1,
    "rate": 2,
    "marks": [1, 2],
    "rows": [{"name": "x", "kind": "a"}],
    "more": {"x": None, "y": 1.5},
    "on": True,
}


@pytest.mark.parametrize("change", [{}, {"marks": None}, {"late": "x"}, {"rows": []}])
def test_what_is_right(change):
    assert list(wrong(GOOD | change, Outer)) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": 1.5}, "document['count'] is 1.5, not int"),
        ({"count": True}, "document['count'] is True, not int"),
        ({"on": 1}, "document['on'] is 1, not bool"),
        ({"marks": [1]}, "document['marks'] is [1], not 2 values"),
        (
            {"rows": [{"name": "x", "kind": "c"}]},
            "document['rows'][0]['kind'] is 'c', not one of ('a', 'b')",
        ),
        ({"rows": [{"kind": "a"}]}, "document['rows'][0] lacks 'name' of Inner"),
        ({"more": {"x": "1"}}, "document['more']['x'] is '1', not float"),
        ({"extra": 1}, "document has 'extra', which Outer has not"),
    ],
)
def test_what_is_wrong(change, told):
    assert list(wrong(GOOD | change, Outer)) == [told]


def test_what_is_missing():
    short = {key: value for key, value in GOOD.items() if key != "rows"}
    assert list(wrong(short, Outer)) == ["document lacks 'rows' of Outer"]
