"""The lab tests of `make test`: they exist, cover what was promised, and were chosen well."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

LAB = Path(__file__).parents[2] / "lab"
PROJECT = LAB.parents[1]
sys.path.append(str(LAB))
import choose_core  # noqa: E402
from collect_modules import names_of_tests, parsed  # noqa: E402
from recording import RecordedModule, RecordedTest, read_run  # noqa: E402


def listed() -> list[str]:
    return choose_core.CORE.read_text().splitlines()


def functions_of(module: str) -> dict[str, None]:
    """In the order of the file."""
    return dict.fromkeys(f"tests/lab/{module}::{name}" for name in names_of_tests(parsed(LAB / module).body))


def test_each_test_of_the_list_is_there() -> None:
    names = listed()
    assert len(names) == len(set(names))
    modules = list(dict.fromkeys(map(choose_core.module_of, names)))
    assert modules == sorted(modules)
    for module in modules:
        there = list(functions_of(module))
        functions = [choose_core.function_of(name) for name in names if choose_core.module_of(name) == module]
        assert [name for name in functions if name not in there] == []
        assert functions == sorted(functions, key=there.index), "in the order of the file"


def test_each_promise_is_tried_by_a_test_of_the_list() -> None:
    promises = tomllib.loads(choose_core.MAIN.read_text())
    functions = {choose_core.function_of(name) for name in listed()}
    for part in promises.values():
        for promise, tests in part.items():
            assert tests, promise
            assert {f"tests/lab/{name}" for name in tests} <= functions, promise


def test_each_promise_of_readme_and_each_invariant_has_a_row() -> None:
    promises = tomllib.loads(choose_core.MAIN.read_text())
    works = (PROJECT / "README.md").read_text().partition("\n## What works")[2].partition("\n## ")[0]
    bold = re.findall(r"^- (?:.*?)\*\*\[?(.+?)\]?(?:\(.*?\))?\*\*", works, re.MULTILINE)
    assert list(promises["works"]) == bold
    numbers = re.findall(
        r"^(\d+)\. \*\*", (PROJECT / "docs/explanation/invariants.md").read_text(), re.MULTILINE
    )
    assert list(promises["invariants"]) == numbers


branches = st.frozensets(st.sampled_from("abcdefghijkl"), max_size=6)
some_tests = st.lists(st.tuples(st.sampled_from("xyz"), branches, st.floats(0, 50)), min_size=1, max_size=12)


@given(some_tests, st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_what_is_chosen_covers_the_share_and_no_test_is_needless(
    drawn: list[tuple[str, frozenset[str], float]], share: float
) -> None:
    tests = [
        RecordedTest(f"tests/lab/{module}.py::test_{number}", number, seconds, 1.0, set(took))
        for number, (module, took, seconds) in enumerate(drawn)
    ]
    everything = set().union(*(test.branches for test in tests))
    story = [test for test in tests if choose_core.module_of(test.name) == "z.py"]
    earlier = {test.name: story[:number] for number, test in enumerate(story)}
    chosen = choose_core.choose(tests, [tests[0].name], share, earlier)

    def covered(some: list[RecordedTest]) -> int:
        return len(set().union(*(test.branches for test in some)))

    assert tests[0] in chosen
    assert covered(chosen) >= share * len(everything)
    before = [other for one in chosen for other in earlier.get(one.name, ())]
    assert all(test in chosen for test in before)
    for one in chosen:
        if one is not tests[0] and one not in before:
            assert covered([test for test in chosen if test is not one]) < share * len(everything)


def test_a_promise_whose_test_was_not_recorded_is_refused() -> None:
    with pytest.raises(SystemExit, match="test_gone"):
        choose_core.choose([], ["tests/lab/test_x.py::test_gone"], 0.5, {})


def test_what_ran_counts_for_the_test_that_was_running(tmp_path: Path) -> None:
    module = RecordedModule(tmp_path, "test_x.py")
    for name, when, start, stop in (
        ("a", "setup", 10.0, 14.0),
        ("a", "call", 14.0, 15.0),
        ("b", "setup", 15.5, 16.0),
        ("b", "call", 16.0, 19.0),
    ):
        module.add(
            {"nodeid": f"tests/lab/test_x.py::test_{name}", "when": when, "start": start, "stop": stop}
        )
    lines = [
        "9.00 core/x.py:f:",
        "14.50 core/x.py:f:3>4",
        "15.20 core/x.py:g.<locals>.h:7>9",
        "17.00 core/x.py:g:",
        "17",
    ]
    (module.folder / "run-1.branches").write_text("\n".join(lines))
    [first, second] = read_run(tmp_path)["test_x.py"]
    assert (first.shared, first.alone, second.alone) == (4.0, 1.0, 3.5)
    assert first.branches == {"core/x.py:f:3>4", "core/x.py:g.<locals>.h:7>9"}
    assert second.functions == {"core/x.py:g"}
    assert not second.branches
    assert list(choose_core.ran_lines({"test_x.py": [first, second]}))[2:] == [
        "core/x.py:f 0",
        "core/x.py:g 0 1",
    ]
