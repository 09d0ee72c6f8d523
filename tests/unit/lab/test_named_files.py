"""Files that benchmarks and lab tests hand to other programs are there: no import would find that out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BENCH, LAB = (Path(__file__).parents[2] / folder for folder in ("bench", "lab"))


def find_named_files(module: Path) -> list[Path]:
    """Paths of programs that a module puts together from its own folder."""
    source, found = module.read_text(), list[Path]()
    if "__file__" not in source:
        return []  # parsing a module takes longer than all else here
    for at in ast.walk(ast.parse(source)):
        node, words = at, list[str]()
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            if not (isinstance(node.right, ast.Constant) and isinstance(node.right.value, str)):
                break
            words.insert(0, node.right.value)
            node = node.left
        start = ast.unparse(node)
        if words and words[-1].endswith(".py") and re.fullmatch(r"Path\(__file__\)(\.parent)+", start):
            found.append(module.parents[start.count(".parent") - 1].joinpath(*words))
    return found


@pytest.mark.parametrize(
    "module", sorted([*BENCH.glob("*.py"), *LAB.glob("*.py")]), ids=lambda path: path.stem
)
def test_every_file_that_is_named_is_there(module: Path) -> None:
    assert [path for path in find_named_files(module) if not path.exists()] == []


def test_such_names_are_found() -> None:
    for module in (BENCH / "storage.py", LAB / "test_auto.py"):
        assert BENCH / "devices" / "slots.py" in find_named_files(module)
