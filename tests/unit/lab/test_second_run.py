"""A lab test that failed is run once more, after those that it goes on from; only its own second answer counts."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

LAB = Path(__file__).parents[2] / "lab"
sys.path.append(str(LAB))
import run_modules  # noqa: E402
from replay_reports import Doubts  # noqa: E402

A, B, C = (f"tests/lab/test_x.py::test_{letter}" for letter in "abc")


def report(name: str, outcome: str, text: str = "") -> pytest.TestReport:
    return pytest.TestReport(name, (name, 0, name), {}, outcome, text or None, "call")  # type: ignore[arg-type]


class Terminal:
    """Takes down what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str, sep: str = "") -> None:
        self.lines.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def guest_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Any]:
    """The first guest of a module whose three tests were collected."""

    def make(in_order: bool) -> Any:
        monkeypatch.setattr(run_modules, "settings", lambda path: {"in_order": in_order})
        module = SimpleNamespace(path=Path("test_x.py"), nodeid="tests/lab/test_x.py")
        config = SimpleNamespace(getoption=lambda *_: None)
        guest = run_modules.Guest(module, [A, B, C], {}, config)  # type: ignore[arg-type]
        guest.collected = [A, B, C]
        return guest

    return make


def doubtful(name: str) -> Doubts:
    doubts = Doubts(most=1)
    assert doubts.takes(name, [report(name, "failed", "E   once")])
    assert doubts.worth_a_second_run
    return doubts


@pytest.mark.parametrize(("in_order", "names"), [(False, [B]), (True, [A, B])])
def test_second_guest_gets_the_tests_that_the_failed_one_goes_on_from(
    guest_of: Callable[[bool], Any], in_order: bool, names: list[str]
) -> None:
    guest = guest_of(in_order)
    (second,) = run_modules.second_guests([guest], doubtful(B), guest.config)
    assert second.names == names
    assert list(second.expected) == [B]


def test_of_the_second_run_only_the_doubtful_test_is_told() -> None:
    doubts = doubtful(B).second_run()
    assert doubts.takes(A, [report(A, "passed")]), "it has been told already"
    assert not doubts.takes(B, [report(B, "passed")])
    assert doubts.unsteady == [B]


def test_what_failed_only_on_the_second_way_is_told_as_unsteady() -> None:
    doubts = doubtful(B).second_run()
    assert doubts.takes(A, [report(A, "failed", "E   now")])
    assert not doubts.takes(B, [report(B, "failed", "E   again")])
    assert doubts.unsteady == [A]
    terminal = Terminal()
    doubts.summary(terminal)  # type: ignore[arg-type]
    assert terminal.lines[-2:] == [f"{A} the first time: E   now", f"{B} the first time: E   once"]
