"""On the host: what a recorded run of the lab wrote, and what of zvault each test ran.

A folder for each module: ``tests.jsonl``, a line for each phase of each test (nodeid, when, start, stop: seconds since
1970), and ``*.branches``, a file for each of its guests (branch_recorder.py has the form of a line).
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD_TO = "ZVAULT_LAB_RECORD_TO"
"""As tests/lab/run has it."""
KEPT = ("nodeid", "when", "outcome", "start", "stop")


class RecordedModule:
    """The folder of one module in the folder of a recorded run."""

    def __init__(self, run: Path, name: str) -> None:
        self.folder = (run / name).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, report: dict[str, Any]) -> None:
        """Note a phase of a test."""
        with (self.folder / "tests.jsonl").open("a") as file:
            file.write(json.dumps({name: report[name] for name in KEPT if name in report}) + "\n")


@dataclass
class RecordedTest:
    """What one test ran and took. ``alone`` are the seconds of its own phases; a module's fixtures are in ``shared``,
    the seconds that its first test waited for them, and are paid once for all that is chosen of a module.
    """

    name: str
    began: float = 0.0
    alone: float = 0.0
    shared: float = 0.0
    branches: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def read_run(folder: Path) -> dict[str, list[RecordedTest]]:
    """What a run recorded: the tests of each module, in the order in which they ran."""
    return {module.name: read_module(module) for module in sorted(folder.iterdir()) if module.is_dir()}


def read_module(folder: Path) -> list[RecordedTest]:
    """The tests of one module. What ran before the first, or between two, counts for the one before it."""
    tests: dict[str, RecordedTest] = {}
    for line in (folder / "tests.jsonl").read_text().splitlines():
        report = json.loads(line)
        test = tests.setdefault(report["nodeid"], RecordedTest(report["nodeid"], report["start"]))
        took = report["stop"] - report["start"]
        if report["when"] == "setup" and len(tests) == 1:
            test.shared += took
        else:
            test.alone += took
    found = sorted(tests.values(), key=lambda test: test.began)
    starts = [test.began for test in found]
    for at, function, branch in _lines(folder):
        test = found[max(0, bisect.bisect_right(starts, at) - 1)]
        test.functions.add(function)
        if branch:
            test.branches.add(f"{function}:{branch}")
    return found


def _lines(folder: Path) -> Iterator[tuple[float, str, str]]:
    """When, path:function and branch of each line; the last line of a guest that was killed may be cut off."""
    for file in folder.glob("*.branches"):
        for line in file.read_text(errors="replace").splitlines():
            at, _, what = line.partition(" ")
            function, found, branch = what.rpartition(":")
            if found:
                yield float(at), function, branch


def tests_of_functions(run: dict[str, list[RecordedTest]]) -> dict[str, list[RecordedTest]]:
    """By path:function, the tests that ran it, or what is defined in it."""
    by: dict[str, dict[str, RecordedTest]] = defaultdict(dict)
    for tests in run.values():
        for test in tests:
            for function in test.functions:
                by[function.partition(".<locals>")[0]][test.name] = test
    return {function: list(tests.values()) for function, tests in by.items()}
