#!/usr/bin/python3
"""Run the tests that run what a change touches: `make affected`, or `make affected SINCE=COMMIT`.

For each changed function of zvault it runs the lab tests that take it and end soonest (ran.txt, which `make record`
writes), and for each changed module the unit tests that import it. A changed test runs itself. It names what has
changed and is no Python of zvault (a unit, a profile, the Makefile): `make test` tries that.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from choose_core import RAN, module_of

PROJECT = Path(__file__).resolve().parents[2]
EACH = 3
"""Lab tests for each changed function: the quickest that run it."""
MODULES = 4
"""Lab modules that a changed helper of theirs has run; for one that more of them import there is `make test`."""
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")

Lines = dict[str, set[int]]
"""By path, the numbers of the lines that are new or stand where some were taken out."""


def changed_lines(since: str) -> Lines:
    """What differs from a commit in the checkout, new files too."""
    lines: Lines = {}
    path = ""
    for line in git("diff", "-U0", "--no-color", "--no-ext-diff", since, "--").splitlines():
        if line.startswith(("--- a/", "+++ b/")):  # of a file that went there is only the first
            path = line[6:]
        elif path and (hunk := HUNK.match(line)):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + max(1, count)))
    for path in git("ls-files", "--others", "--exclude-standard").splitlines():
        lines[path] = set(range(1, len((PROJECT / path).read_text(errors="replace").splitlines()) + 1))
    return lines


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True).stdout


def functions_at(source: str, lines: set[int]) -> set[str]:
    """The names, as ran.txt has them, of the functions in which these lines stand; "" for what is outside of all."""
    found: set[str] = set()
    inside: set[int] = set()
    for name, node in functions_of(ast.parse(source), ""):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        if touched := lines & set(range(first, (node.end_lineno or first) + 1)):
            found.add(name)
            inside |= touched
    return found | ({""} if lines - inside else set())


def functions_of(tree: ast.AST, within: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and of its classes, not those within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{within}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{node.name}", node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from functions_of(node, within)


def read_ran() -> tuple[dict[str, str], dict[str, list[str]]]:
    """ran.txt: the tests by number, and by path:function the tests that ran it, the quickest first."""
    tests: dict[str, str] = {}
    by: dict[str, list[str]] = {}
    for line in RAN.read_text().splitlines():
        if line[0].isdigit():
            number, rest = line.split(" ", 1)
            tests[number] = rest.rpartition(" ")[0]
        else:
            function, *numbers = line.split(" ")
            by[function] = [tests[number] for number in numbers]
    return tests, by


def lab_tests(changed: Lines) -> set[str]:
    """The lab tests to run: of changed functions, and changed test modules whole."""
    _, by = read_ran()
    wanted: set[str] = set()
    for path, lines in changed.items():
        if not (PROJECT / path).exists() or not path.endswith(".py"):
            continue
        if path.startswith("tests/lab/"):
            wanted.update(modules_with(path))
        elif path.startswith("zvault/"):
            module = path.removeprefix("zvault/")
            for name in functions_at((PROJECT / path).read_text(), lines):
                wanted.update(_tests_of(by, module, name))
    return {name for name in wanted if not ("::" in name and f"tests/lab/{module_of(name)}" in wanted)}


def modules_with(path: str) -> list[str]:
    """A changed lab module itself; of a changed helper the modules that import it, unless they are many."""
    if path.startswith("tests/lab/test_"):
        return [path]
    helper = Path(path).stem
    users = [test for test in RAN.parent.glob("test_*.py") if helper in imports(test.read_text())]
    return [test.relative_to(PROJECT).as_posix() for test in users] if len(users) <= MODULES else []


def _tests_of(by: dict[str, list[str]], module: str, name: str) -> list[str]:
    """Of one function; of a line outside of all functions, a test for each function of the module."""
    if name:
        return by.get(f"{module}:{name}", [])[:EACH]
    return [tests[0] for function, tests in by.items() if function.startswith(f"{module}:")]


def unit_tests(changed: Lines) -> set[str]:
    """The unit tests that import a changed module, or changed themselves."""
    modules = {
        path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        for path in changed
        if path.endswith(".py") and path.startswith(("zvault/", "tests/unit/"))
    }
    found = {
        path
        for path in changed
        if re.fullmatch(r"tests/unit/.*test_\w+\.py", path) and (PROJECT / path).exists()
    }
    for test in (PROJECT / "tests/unit").rglob("test_*.py"):
        if imports(test.read_text()) & modules:
            found.add(test.relative_to(PROJECT).as_posix())
    return found


def imports(source: str) -> set[str]:
    """The names of modules that a source imports, and of what it may import from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module, *(f"{node.module}.{alias.name}" for alias in node.names)])
    return names


def untold(changed: Lines) -> list[str]:
    """What has no test of its own here."""
    return sorted(
        path
        for path in changed
        if not (path.endswith(".py") and (path.startswith(("zvault/", "tests/unit/")) or modules_with(path)))
        and not path.startswith("docs/")
        and not path.endswith(".md")
    )


def main() -> int:
    """pytest's exit status; the unit tests come first, and the lab only if they pass."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", default="HEAD", metavar="COMMIT", help="default: %(default)s")
    parser.add_argument("-n", "--show", action="store_true", help="only list the tests")
    options = parser.parse_args()
    changed = changed_lines(options.since)
    unit, lab = sorted(unit_tests(changed)), sorted(lab_tests(changed))
    for path in untold(changed):
        print(f"{path}: no list says what runs it; `make test` tries it")
    print(f"{len(unit)} files of unit tests, {len(lab)} lab tests run what changed since {options.since}")
    if options.show:
        print(*unit, *lab, sep="\n")
        return 0
    for tests in (unit, lab):
        if tests and (
            status := subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=PROJECT).returncode
        ):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
