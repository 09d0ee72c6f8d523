"""The order of datasets: what needs what, what goes first, and what is given up with what failed."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.run_order import RunOrder


def drained(
    order: RunOrder, bad: frozenset[str] = frozenset(), places: int = 1
) -> tuple[list[str], dict[str, str]]:
    """Carry an order out with so many places; the oldest ends first. What was begun, and what given up for which."""
    begun: list[str] = []
    lost: dict[str, str] = {}
    under_way: list[str] = []
    while order.ready() or under_way:
        while len(under_way) < places and (name := order.take()) is not None:
            begun.append(name)
            under_way.append(name)
        name = under_way.pop(0)
        if name in bad:
            lost.update(order.fail(name))
        else:
            order.done(name)
    return begun, lost


def test_big_ones_go_first_and_equal_ones_in_their_order() -> None:
    order = RunOrder({"a": (), "b": (), "c": (), "d": ()}, {"a": 1, "b": 5, "c": 1, "d": 9})
    assert drained(order)[0] == ["d", "b", "a", "c"]


def test_what_has_nothing_to_send_goes_before_all() -> None:
    order = RunOrder({"a": (), "still": (), "renamed": ("a",)}, {"a": 1})
    assert drained(order)[0] == ["still", "a", "renamed"]


def test_a_small_parent_of_a_big_child_is_as_urgent_as_both() -> None:
    order = RunOrder({"p": (), "p/c": ("p",), "x": ()}, {"p": 1, "p/c": 10, "x": 5})
    assert drained(order)[0] == ["p", "p/c", "x"]


def test_needs_that_are_not_part_of_it_are_met() -> None:
    assert drained(RunOrder({"a": ("elsewhere",)}, {"a": 1}))[0] == ["a"]


def test_what_fails_takes_with_it_what_is_below_and_nothing_else() -> None:
    needs = {"p": (), "p/c": ("p",), "p/c/d": ("p/c",), "x": ()}
    begun, lost = drained(RunOrder(needs, dict.fromkeys(needs, 1)), frozenset({"p"}))
    assert begun == ["p", "x"]
    assert lost == {"p/c": "p", "p/c/d": "p/c"}


def test_a_ring_is_found_and_the_rest_goes_on() -> None:
    order = RunOrder({"a": ("b",), "b": ("a",), "c": ("b",), "x": ()}, {"a": 1, "b": 1, "c": 1, "x": 1})
    assert drained(order)[0] == ["x"]
    assert sorted(order.stuck()) == ["a", "b", "c"]
    assert order.stuck() == []


@st.composite
def forests(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Datasets of which each may need some of those before it, told in any order."""
    names = [f"d{number}" for number in range(draw(st.integers(0, 12)))]
    needs = {
        name: tuple(draw(st.sets(st.sampled_from(names[:place])))) if place else ()
        for place, name in enumerate(names)
    }
    return {name: needs[name] for name in draw(st.permutations(names))}


def behind(needs: Mapping[str, tuple[str, ...]], name: str) -> set[str]:
    found = {one for one, wanted in needs.items() if name in wanted}
    return found.union(*(behind(needs, one) for one in found)) if found else found


@given(forests(), st.data(), st.integers(1, 4))
def test_each_comes_once_after_what_it_needs_unless_that_failed(
    needs: dict[str, tuple[str, ...]], data: st.DataObject, places: int
) -> None:
    sizes = {name: data.draw(st.integers(0, 9)) for name in needs}
    bad = frozenset(data.draw(st.sets(st.sampled_from(sorted(needs)))) if needs else ())
    order = RunOrder(needs, sizes)
    begun, lost = drained(order, bad, places)
    assert len(begun) == len(set(begun))
    blocked = set().union(*(behind(needs, name) for name in bad)) if bad else set()
    assert set(lost) == blocked
    assert set(begun) == set(needs) - blocked
    for name in begun:
        assert all(begun.index(one) < begun.index(name) for one in needs[name])
    assert order.stuck() == []


@given(forests(), st.data())
def test_lanes_hold_up_nobody_and_what_one_does_the_other_may_need(
    needs: dict[str, tuple[str, ...]], data: st.DataObject
) -> None:
    """Each lane gives its own alone, in the same order as ever; with all lanes taken from, everything comes."""
    lanes = {name: data.draw(st.sampled_from(["", "small"])) for name in needs}
    order, begun = RunOrder(needs, {}, lanes), list[str]()
    while order.ready():
        lane = data.draw(st.sampled_from(order.lanes))
        if (name := order.take(lane)) is not None:
            assert lanes[name] == lane
            begun.append(name)
            order.done(name)
    assert sorted(begun) == sorted(needs)
    assert all(begun.index(one) < begun.index(name) for name in begun for one in needs[name])
