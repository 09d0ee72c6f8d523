"""Values that are borrowed: whatever happens in between, what was there before is there again afterwards."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.examples import cases
from zvault.core.tuning.leased_values import LeasedValue, list_leases_after, plan_value_moves

NAMES = ["zfs_txg_timeout", "zfs_vdev_async_write_max_active", "zfs_vdev_async_write_min_active"]
REFUSED = "666"


def test_what_was_there_first_goes_back_also_after_a_second_value():
    now = {"a": "1"}
    first = plan_value_moves({"a": "2"}, {}, now)
    assert (first.write, first.during) == ({"a": "2"}, {"a": LeasedValue("1", ("1", "2"))})
    held = list_leases_after(first, {"a": "2"}, {"a": "2"})
    assert held == {"a": LeasedValue("1", ("2",))}
    second = plan_value_moves({"a": "3"}, held, {"a": "2"})
    assert second.during == {"a": LeasedValue("1", ("2", "3"))}
    held = list_leases_after(second, {"a": "3"}, {"a": "3"})
    back = plan_value_moves({}, held, {"a": "3"})
    assert back.write == {"a": "1"}
    assert list_leases_after(back, {}, {"a": "1"}) == {}


def test_a_value_that_is_as_wanted_is_held_and_not_written():
    done = plan_value_moves({"a": "1"}, {}, {"a": "1"})
    assert done.write == {}
    assert list_leases_after(done, {"a": "1"}, {"a": "1"}) == {"a": LeasedValue("1", ("1",))}


def test_what_somebody_else_set_is_theirs_while_it_is_wanted_and_afterwards():
    held = {"a": LeasedValue("1", ("2",))}
    up = plan_value_moves({"a": "2"}, held, {"a": "7"})
    assert (up.write, up.others, up.during) == ({}, {"a": "7"}, held)
    assert list_leases_after(up, {"a": "2"}, {"a": "7"}) == held
    down = plan_value_moves({}, held, {"a": "7"})
    assert (down.write, down.others) == ({}, {"a": "7"})
    assert list_leases_after(down, {}, {"a": "7"}) == {}


def test_what_could_not_be_put_back_is_kept_for_another_try():
    back = plan_value_moves({}, {"a": LeasedValue("1", ("2",))}, {"a": "2"})
    assert list_leases_after(back, {}, {"a": "2"}) == {"a": LeasedValue("1", ("2", "1"))}


def test_a_parameter_that_went_away_is_forgotten():
    assert plan_value_moves({}, {"gone": LeasedValue("1", ("2",))}, {}).during == {}
    assert plan_value_moves({"gone": "1"}, {}, {}).write == {}


def test_a_minimum_is_never_above_its_maximum_on_the_way():
    low, high = "x_min_active", "x_max_active"
    assert list(plan_value_moves({low: "16", high: "32"}, {}, {low: "2", high: "10"}).write) == [high, low]
    assert list(plan_value_moves({low: "2", high: "4"}, {}, {low: "8", high: "10"}).write) == [low, high]


values = st.sampled_from(["1", "2", "3", "4", REFUSED])


class Kernel(RuleBasedStateMachine):
    """Vaults come and go, zvault dies at any point, the kernel refuses a value, somebody else sets another."""

    def __init__(self) -> None:
        super().__init__()
        self.now = dict.fromkeys(NAMES, "0")
        self.count = 0
        self.note: dict[str, LeasedValue] = {}
        self.theirs: dict[str, str] = {}
        """What somebody else set while zvault held it: nobody may change it until it is released."""
        self.before = dict(self.now)
        """What must be there when nothing is wanted."""

    @rule(
        wanted=st.dictionaries(st.sampled_from(NAMES), values),
        dies_after=st.integers(min_value=0, max_value=5),
    )
    def settle(self, wanted: dict[str, str], dies_after: int) -> None:
        """Carry it out; ``dies_after`` counts notes and writes, 5 is to the end."""
        target = wanted
        todo = plan_value_moves(target, self.note, self.now)
        steps = iter(range(dies_after))
        if next(steps, None) is None:
            return
        self.write_down(dict(todo.during))
        for name, value in todo.write.items():
            if next(steps, None) is None:
                return
            if value != REFUSED:
                self.now[name] = value
        if next(steps, None) is not None:
            self.write_down(list_leases_after(todo, target, self.now))

    def write_down(self, note: dict[str, LeasedValue]) -> None:
        """What is released is its owner's from then on."""
        self.note = note
        for name in [name for name in self.theirs if name not in note]:
            self.before[name] = self.theirs.pop(name)

    @rule(name=st.sampled_from(NAMES))
    def somebody_else(self, name: str) -> None:
        """Set what nobody has set before."""
        self.count += 1
        self.now[name] = str(1000 + self.count)
        if name in self.note:
            self.theirs[name] = self.now[name]
        else:
            self.before[name] = self.now[name]

    @rule()
    def all_go_down(self) -> None:
        """Whatever happened before: what is not somebody else's is as it was."""
        self.settle({}, 99)
        assert self.note == {}
        assert self.now == self.before

    @invariant()
    def what_somebody_set_stays(self) -> None:
        for name, value in self.theirs.items():
            assert self.now[name] == value


TestKernel = Kernel.TestCase
TestKernel.settings = settings(max_examples=cases(150), stateful_step_count=15, deadline=None)
