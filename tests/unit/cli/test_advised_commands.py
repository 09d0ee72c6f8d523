"""Each command that a message of zvault's advises can be typed: its verb is there, and it lacks no argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

import zvault
from zvault.cli.app import assemble_app

ROOT = Path(zvault.__file__).parent
COMMAND = re.compile(r"'zvaultctl ([^']*)'")


def list_texts(tree: ast.Module) -> Iterator[str]:
    """Every text of a module but its docstrings, with X where a value goes."""
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


def explain_misuse(root: Any, words: Sequence[str]) -> str | None:
    """Say why a command line is refused; None where it is not. A command's name alone is no line to type."""
    command, context, rest = root, root.context_class(root, info_name="zvaultctl"), list(words)
    while True:
        try:
            given, left, _ = command.make_parser(context).parse_args(list(rest))
        except Exception as error:
            return str(error) or repr(error)
        if not hasattr(command, "commands"):
            break
        if not left:
            return None
        if (verb := command.get_command(context, left[0])) is None:
            return f"there is no command {left[0]}"
        command, rest = verb, left[1:]
        context = root.context_class(verb, parent=context, info_name=left[0])
    if left:
        return f"it takes no {left[0]}"
    lacks = [
        one.name
        for one in command.params
        if one.param_type_name == "argument" and one.required and not given.get(one.name)
    ]
    return f"it lacks {', '.join(lacks)}" if rest and lacks else None


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(assemble_app())


def test_what_a_message_advises_can_be_typed(root: Any) -> None:
    found = {
        f"{file.relative_to(ROOT)}: zvaultctl {line}: {why}"
        for file in sorted(ROOT.rglob("*.py"))
        for text in list_texts(ast.parse(file.read_text(encoding="utf-8")))
        for line in COMMAND.findall(text)
        if (why := explain_misuse(root, line.split())) is not None
    }
    assert found == set()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("blockstore check --accept-rollback --yes", "lacks place"),
        ("vault take -n", "lacks vault"),
        ("vault down cold warm", "takes no warm"),
        ("vault lower cold", "no command lower"),
        ("scrub --quickly cold", "quickly"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(root: Any, line: str, why: str) -> None:
    assert why in str(explain_misuse(root, line.split()))


@pytest.mark.parametrize(
    "line", ["", "vault down", "vault down X", "heal X", "blockstore check PLACE --repair"]
)
def test_a_name_and_a_whole_command_are_right(root: Any, line: str) -> None:
    assert explain_misuse(root, line.split()) is None
