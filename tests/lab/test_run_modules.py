"""What is told of tests in guests: failures, and those that fail only once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAB = {"where": "host"}

HERE = Path(__file__).parent
RUN = """#!/bin/sh
# In the place of tests/lab/run: the command right here, with the folder that is shared.
for word; do
    case $word in
        --share=*) share=${word#--share=};;
        --env=ZVAULT_LAB_REPORTS=*) ZVAULT_LAB_REPORTS=$share/reports;;
        --env=*) export "${word#--env=}";;
    esac
done
while [ "$1" != -- ]; do shift; done
shift 2
export ZVAULT_LAB=1 ZVAULT_LAB_REPORTS
exec "$PYTHON" "$@"
"""
TESTS = """
from pathlib import Path

import pytest

SEEN = Path(__file__).parents[2] / "seen"


def times(name):
    with (SEEN / name).open("a") as file:
        file.write("x")
    return (SEEN / name).stat().st_size


def test_good():
    times("good")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_shaky(number):
    print("what it " + "printed")
    assert times(f"shaky{number}") > 1 or number > SHAKY, "the first time"


def test_bad():
    time = times("bad")
    assert not BAD, f"not good, {time}"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A project whose lab needs no guest."""
    lab = tmp_path / "tests" / "lab"
    lab.mkdir(parents=True)
    (tmp_path / "seen").mkdir()
    (tmp_path / "pytest.ini").touch()
    for name in (
        "cache",
        "conftest",
        "collect_modules",
        "run_modules",
        "report_to_host",
        "recording",
        "replay_reports",
    ):
        shutil.copy(HERE / f"{name}.py", lab)
    (lab / "run").write_text(RUN)
    (lab / "run").chmod(0o755)
    return tmp_path


def run(suite: Path, *options: str, shaky: int, bad: bool, more: str = "") -> tuple[int, str]:
    """How pytest ends and what it says, of one module of six tests, which has ``more`` at its end."""
    module = suite / "tests" / "lab" / "test_it.py"
    module.write_text(TESTS.replace("SHAKY", str(shaky)).replace("BAD", str(bad)) + more)
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "ZVAULT"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/lab", *options],
        cwd=suite,
        env=environment | {"PYTHON": sys.executable, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout


def seen(suite: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in (suite / "seen").iterdir()}


def test_one_that_fails_only_once_is_told_as_unsteady_with_its_failure(suite: Path) -> None:
    code, out = run(suite, "--unsteady=3", shaky=2, bad=False)
    assert code == 0
    assert "6 passed" in out
    assert "unsteady: 2 failed, and passed in a second guest" in out
    assert out.count("E       AssertionError: the first time") == 2
    assert out.count("what it printed") == 2
    last = "tests/lab/test_it.py::test_shaky[{}] the first time: AssertionError: the first time\n"
    assert out.index("what it printed") < out.index(last.format(1)) < out.index(last.format(2))
    assert seen(suite) == {"good": 1, "bad": 1, "shaky1": 2, "shaky2": 2, "shaky3": 1, "shaky4": 1}


def test_what_a_failed_one_goes_on_from_runs_before_it_again(suite: Path) -> None:
    code, out = run(suite, "--unsteady=3", shaky=2, bad=False, more='LAB = {"in_order": True}\n')
    assert code == 0
    assert "6 passed" in out
    assert "unsteady: 2 failed" in out
    assert seen(suite) == {"good": 2, "bad": 1, "shaky1": 2, "shaky2": 2, "shaky3": 1, "shaky4": 1}


def test_backwards_the_last_is_the_first(suite: Path) -> None:
    line = "\n\ndef test_last():\n    assert not (SEEN / 'good').exists()\n"
    assert run(suite, "--backwards", shaky=0, bad=False, more=line)[0] == 0
    code, out = run(suite, "--backwards", shaky=0, bad=False, more=line + 'LAB = {"in_order": True}\n')
    assert code == 1
    assert "1 failed, 6 passed" in out


def test_one_that_fails_twice_has_failed(suite: Path) -> None:
    code, out = run(suite, "--unsteady=3", shaky=1, bad=True)
    assert code == 1
    assert "1 failed, 5 passed" in out
    assert "FAILED tests/lab/test_it.py::test_bad" in out
    assert "unsteady: 1 failed" in out
    assert "the first time: 1 failed, and once more" in out
    assert out.index("AssertionError: not good, 2") < out.index("AssertionError: not good, 1")
    assert seen(suite)["bad"] == 2


def test_one_whose_second_run_never_came_has_failed(suite: Path) -> None:
    once = "if SEEN.joinpath('good').exists():\n    pytest.skip('not again', allow_module_level=True)\n"
    code, out = run(suite, "--unsteady=3", shaky=1, bad=False, more=once)
    assert code == 1
    assert "FAILED tests/lab/test_it.py::test_shaky[1]" in out
    assert seen(suite)["shaky1"] == 1


def test_where_many_fail_all_have_failed(suite: Path) -> None:
    code, out = run(suite, "--unsteady=3", shaky=4, bad=False)
    assert code == 1
    assert "4 failed, 2 passed" in out
    assert "unsteady" not in out
    assert set(seen(suite).values()) == {1}


def test_unless_it_is_asked_for_a_failure_is_one(suite: Path) -> None:
    code, out = run(suite, shaky=1, bad=False)
    assert code == 1
    assert "1 failed, 5 passed" in out
    assert seen(suite)["shaky1"] == 1
