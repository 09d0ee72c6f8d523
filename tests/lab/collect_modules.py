"""On the host: the tests of a lab module, read from its source, because the host cannot import it."""

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).resolve().parent


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module's source."""
    return ast.parse(path.read_bytes(), str(path))


def settings(path: Path) -> dict[str, Any]:
    """A module's own LAB, if it has one."""
    for node in parsed(path).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and ast.unparse(targets[0]) == "LAB":
            return dict(ast.literal_eval(node.value))
    return {}


def names_of_tests(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    """The names of the test functions among statements, as they stand behind the file's name and ``::``."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield f"{within}{node.name}"
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from names_of_tests(node.body, f"{within}{node.name}::")


class LabItem(pytest.Item):
    """A test function in a guest: perhaps several tests, by parameters."""

    def __init__(self, *, line: int, **more: Any) -> None:
        super().__init__(**more)
        self.line = line

    def runtest(self) -> None:
        """Never called: the guest runs it."""
        raise NotImplementedError

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, self.line, self.name


def tests_in(parent: pytest.Collector, body: list[ast.stmt]) -> Iterator[pytest.Item | pytest.Collector]:
    """The tests and test classes among statements, as pytest names them by default."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield LabItem.from_parent(parent, name=node.name, line=node.lineno - 1)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield LabClass.from_parent(parent, name=node.name, body=node.body)


class LabClass(pytest.Collector):
    """A test class in a guest."""

    def __init__(self, *, body: list[ast.stmt], **more: Any) -> None:
        super().__init__(**more)
        self.body = body

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its methods."""
        return tests_in(self, self.body)


class LabModule(pytest.File):
    """A test module that runs in a guest."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its functions and classes."""
        return tests_in(self, parsed(self.path).body)
