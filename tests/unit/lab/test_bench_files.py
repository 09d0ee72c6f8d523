"""Files that benchmarks hand to other programs are there: nothing that imports them would find that out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def find_named_files(module: Path) -> list[Path]:
    """Paths of programs that a module puts together from its own folder."""
    found = []
    for at in ast.walk(ast.parse(module.read_text())):
        node, words = at, list[str]()
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if not (isinstance(node.right, ast.Constant) and isinstance(node.right.value, str)):
                break
            words.insert(0, node.right.value)
            node = node.left
        if words and words[-1].endswith(".py") and ast.unparse(node) == "Path(__file__).parent":
            found.append(module.parent.joinpath(*words))
    return found


@pytest.mark.parametrize("module", sorted(BENCH.glob("*.py")), ids=lambda path: path.stem)
def test_every_file_that_a_benchmark_names_is_there(module: Path) -> None:
    assert [path for path in find_named_files(module) if not path.exists()] == []


def test_such_names_are_found() -> None:
    assert BENCH / "devices" / "slots.py" in find_named_files(BENCH / "storage.py")
