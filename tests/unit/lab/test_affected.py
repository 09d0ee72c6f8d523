"""What a change touches: functions by the lines of a diff, and the tests that run them."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "lab"))
import affected

SOURCE = """\
import os

LIMIT = 3


class Thing:
    word = "x"

    @property
    def name(self):
        def inner():
            return 1
        return inner()


async def go():
    return 2
"""


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ({3}, {""}),
        ({7}, {""}),
        ({9}, {"Thing.name"}),
        ({12}, {"Thing.name"}),
        ({16, 3}, {"go", ""}),
        ({10, 17}, {"Thing.name", "go"}),
    ],
)
def test_a_line_belongs_to_its_function(lines: set[int], names: set[str]) -> None:
    assert affected.functions_at(SOURCE, lines) == names


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project under git, whose lab tests were recorded."""
    for path, text in {
        "zvault/core/a.py": "def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "zvault/core/b.py": "B = 1\n",
        "tests/unit/core/test_a.py": "from zvault.core.a import f\n",
        "tests/unit/core/test_b.py": "from zvault.core import b\n",
        "tests/lab/test_x.py": "import helper\n",
        "tests/lab/helper.py": "",
        "tests/lab/ran.txt": "0 tests/lab/test_x.py::test_one 3\n1 tests/lab/test_y.py::test_two[a b] 4\n"
        "core/a.py:f 0 1\ncore/a.py:g 1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(affected, "PROJECT", tmp_path)
    monkeypatch.setattr(affected, "RAN", tmp_path / "tests/lab/ran.txt")
    return tmp_path


def test_a_changed_function_has_its_tests_run(checkout: Path) -> None:
    (checkout / "zvault/core/a.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 3\n")
    changed = affected.changed_lines("HEAD")
    assert changed == {"zvault/core/a.py": {6}}
    assert affected.lab_tests(changed) == {"tests/lab/test_y.py::test_two[a b]"}
    assert affected.unit_tests(changed) == {"tests/unit/core/test_a.py"}
    assert affected.untold(changed) == []


def test_of_lines_outside_of_functions_each_function_of_the_module_has_a_test(checkout: Path) -> None:
    (checkout / "zvault/core/a.py").write_text(
        "X = 1\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 2\n"
    )
    changed = affected.changed_lines("HEAD")
    assert affected.lab_tests(changed) == {
        "tests/lab/test_x.py::test_one",
        "tests/lab/test_y.py::test_two[a b]",
    }


def test_new_files_helpers_and_what_no_list_knows(checkout: Path) -> None:
    (checkout / "tests/unit/core/test_new.py").write_text("")
    (checkout / "tests/lab/helper.py").write_text("x = 1\n")
    (checkout / "Makefile").write_text("x:\n")
    (checkout / "zvault/core/b.py").unlink()
    changed = affected.changed_lines("HEAD")
    assert affected.unit_tests(changed) == {"tests/unit/core/test_new.py", "tests/unit/core/test_b.py"}
    assert affected.lab_tests(changed) == {"tests/lab/test_x.py"}
    assert affected.untold(changed) == ["Makefile"]
