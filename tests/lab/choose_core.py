#!/usr/bin/python3
"""Choose the lab tests of ``make test`` from a recorded run of the whole lab: those that cover most for their time.

    tests/lab/choose_core.py FOLDER          write core.txt (the tests) and ran.txt (which tests ran which function)
    tests/lab/choose_core.py FOLDER --check  say what core.txt covers of that run; fails where it is less than SHARE

FOLDER is what `make lab T="tests/lab --branches=FOLDER"` wrote; `make record` does both. The tests of main_tests.toml
are chosen in any case, so each thing that README promises and each invariant is tried.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from recording import RecordedTest, read_run, tests_of_functions

LAB = Path(__file__).resolve().parent
CORE, RAN, MAIN = LAB / "core.txt", LAB / "ran.txt", LAB / "main_tests.toml"
SHARE = 0.95
"""Of the branches that the whole lab takes, what the core has to take."""
BOOT = 8.0
"""Seconds from a guest's start to its first test, and from its last to its end."""
IN_ORDER = re.compile(r'^LAB = \{.*"in_order": True', re.MULTILINE)
"""What a module says whose tests go on from what those before them left."""
EACH = 6
"""Tests of each function that ran.txt names, the quickest: what `make affected` needs."""


@dataclass
class Cost:
    """What the tests of a module take: each its own time, and once the module's."""

    modules: dict[str, float]
    chosen: set[str]

    def of(self, test: RecordedTest, before: list[RecordedTest]) -> float:
        """Seconds more that a test takes beside what is chosen; ``before`` are those that have to come before it."""
        module = module_of(test.name)
        alone = sum(max(0.1, one.alone) for one in [*before, test])
        return alone + (0.0 if module in self.chosen else self.modules[module])


def find_earlier(tests: list[RecordedTest]) -> dict[str, list[RecordedTest]]:
    """By each test of a module whose tests go on from each other, those before it. ``tests`` are in their order."""
    found: dict[str, list[RecordedTest]] = {}
    by_module: dict[str, list[RecordedTest]] = {}
    for test in tests:
        by_module.setdefault(module_of(test.name), []).append(test)
    for module, of_it in by_module.items():
        if IN_ORDER.search((LAB / module).read_text()):
            found |= {test.name: of_it[:number] for number, test in enumerate(of_it)}
    return found


def module_of(name: str) -> str:
    """The file of a test's name."""
    return name.partition("::")[0].rpartition("/")[2]


def function_of(name: str) -> str:
    """A test's name without its parameters."""
    return name.partition("[")[0]


def main_tests() -> list[str]:
    """The names, without parameters, of what main_tests.toml asks for."""
    promises = tomllib.loads(MAIN.read_text())
    return sorted(
        {f"tests/lab/{name}" for part in promises.values() for names in part.values() for name in names}
    )


def choose(
    tests: list[RecordedTest], always: Iterable[str], share: float, earlier: dict[str, list[RecordedTest]]
) -> list[RecordedTest]:
    """Always these, then whatever adds most branches for its seconds, until the share of all branches is covered.

    With each come those that are ``earlier`` and have to be (find_earlier).
    """
    everything = set().union(*(test.branches for test in tests))
    cost = Cost({}, set())
    for test in tests:
        module = module_of(test.name)
        cost.modules[module] = max(cost.modules.get(module, BOOT), BOOT + test.shared)
    left, chosen, covered = list(tests), [], set[str]()

    def before(test: RecordedTest) -> list[RecordedTest]:
        return [one for one in earlier.get(test.name, ()) if one not in chosen]

    def worth(test: RecordedTest) -> float:
        new = set().union(test.branches, *(one.branches for one in before(test))) - covered
        return len(new) / cost.of(test, before(test))

    def take(test: RecordedTest) -> None:
        for one in [*before(test), test]:
            if one not in chosen:
                left.remove(one)
                chosen.append(one)
                covered.update(one.branches)
        cost.chosen.add(module_of(test.name))

    for name in always:
        # Of its cases with other parameters, the quickest stands for it.
        cases = [test for test in tests if function_of(test.name) == name]
        if not cases:
            raise SystemExit(f"main_tests.toml names {name}, which the recorded run does not have")
        if not any(test in chosen for test in cases):
            take(min(cases, key=lambda test: cost.of(test, before(test))))
    while len(covered) < share * len(everything):
        take(max(left, key=worth))
    return without_needless(chosen, set(always), share * len(everything), earlier)


def without_needless(
    chosen: list[RecordedTest], always: set[str], wanted: float, earlier: dict[str, list[RecordedTest]]
) -> list[RecordedTest]:
    """What was chosen early may be covered by what came later: leave out, the longest first, what is not needed."""
    times: dict[str, int] = {}
    for test in chosen:
        for branch in test.branches:
            times[branch] = times.get(branch, 0) + 1
    covered = len(times)
    kept = list(chosen)
    # What others go on from can go only when those are gone: so all are looked at again until none is.
    before = 0
    while len(kept) != before:
        before = len(kept)
        for test in sorted(kept, key=lambda test: -test.alone):
            alone = sum(1 for branch in test.branches if times[branch] == 1)
            goes_before = any(test in earlier.get(one.name, ()) for one in kept)
            if function_of(test.name) in always or covered - alone < wanted or goes_before:
                continue
            kept.remove(test)
            covered -= alone
            for branch in test.branches:
                times[branch] -= 1
    return kept


def share_of(names: set[str], tests: list[RecordedTest]) -> float:
    """The share of all recorded branches that these tests took."""
    everything = set().union(*(test.branches for test in tests))
    return len(set().union(*(test.branches for test in tests if test.name in names))) / max(
        1, len(everything)
    )


def ran_lines(run: dict[str, list[RecordedTest]]) -> Iterator[str]:
    """First a line for each test: its number, name and seconds. Then one for each function: path:name, and numbers."""
    tests = sorted((test for tests in run.values() for test in tests), key=lambda test: test.name)
    numbers = {test.name: number for number, test in enumerate(tests)}
    for test in tests:
        yield f"{numbers[test.name]} {test.name} {test.alone:.0f}"
    for function, by in sorted(tests_of_functions(run).items()):
        if function.endswith(":<module>"):
            continue  # whatever imports it runs it
        quickest = sorted(by, key=lambda test: (test.alone, test.name))[:EACH]
        yield f"{function} {' '.join(str(numbers[test.name]) for test in quickest)}"


def main() -> int:
    """0; 1 where core.txt covers too little."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    run = read_run(options.folder)
    tests = [test for of_module in run.values() for test in of_module]
    if not options.check:
        chosen = choose(tests, main_tests(), SHARE, find_earlier(tests))
        # Of a module in the order of its file.
        names = [test.name for test in tests if test in chosen]
        CORE.write_text("".join(f"{name}\n" for name in sorted(names, key=module_of)))
        RAN.write_text("".join(f"{line}\n" for line in ran_lines(run)))
    names = set(CORE.read_text().splitlines())
    share = share_of(names, tests)
    modules = {module_of(name): BOOT for name in names}
    for test in tests:
        if (module := module_of(test.name)) in modules:
            modules[module] = max(modules[module], BOOT + test.shared)
    seconds = sum(test.alone for test in tests if test.name in names) + sum(modules.values())
    print(
        f"core.txt: {len(names)} tests of {len(modules)} modules, {seconds:.0f} s of guests,"
        f" {100 * share:.1f} % of the branches that {len(tests)} tests take"
    )
    return 0 if share >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
