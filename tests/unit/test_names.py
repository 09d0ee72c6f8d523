"""A public name means one thing in its layer, so that grep finds it, and a function's name is a verb and its object.

``SHARED`` has the names that a layer may define more than once, ``ONE_WORD`` the functions that have one word for a
name. Each entry gives its reason.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "zvault"

SHARED = {
    "main": "the entry of a program; each child process is one",
    "Say": "tells how something goes: the same type wherever it stands",
    "log": "a module's logger",
    "app": "a group of verbs, which typer is given",
}

ONE_WORD = {
    "main": "the entry of a program",
    "zvaultctl": "typer's callback: the name of the program",
}

BY_OTHERS = {
    "blockstore/nbdkit_plugin.py": "nbdkit calls them by these names",
    "zfs/lzc_child.py": "the parent asks for them by name, as libzfs_core calls them",
    "cli/verbs": "typer makes a command of each: its name is the user's",
}


class PublicName(NamedTuple):
    """A name that a module defines for others; ``kind`` is function, class or value."""

    file: str
    name: str
    kind: str

    @property
    def layer(self) -> str:
        return self.file.split("/")[0]


def list_public_names(package: Path) -> Iterator[PublicName]:
    """List what the modules of a package define at their top level and do not hide, but for type variables."""
    for path in sorted(package.rglob("*.py")):
        file = str(path.relative_to(package))
        for node in ast.parse(path.read_text()).body:
            for name, kind in list_defined(node):
                if not name.startswith("_"):
                    yield PublicName(file, name, kind)


def list_defined(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if not any(ast.unparse(one).endswith("overload") for one in node.decorator_list):
            yield node.name, "function"
    elif isinstance(node, ast.ClassDef):
        yield node.name, "class"
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        made = node.value.func if isinstance(node.value, ast.Call) else None
        if made is None or ast.unparse(made) not in ("TypeVar", "ParamSpec"):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for one in (
                name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
            ):
                yield one.id, "value"


def is_named_by_others(one: PublicName) -> bool:
    """Tell whether another program chose the name of a function."""
    return one.kind == "function" and one.file.startswith(tuple(BY_OTHERS))


def find_problems(names: list[PublicName]) -> list[str]:
    """List the names that break the rules, each with its files."""
    judged = [one for one in names if not is_named_by_others(one)]
    by_layer: dict[tuple[str, str], list[PublicName]] = defaultdict(list)
    classes: dict[str, list[PublicName]] = defaultdict(list)
    for one in judged:
        by_layer[one.layer, one.name].append(one)
        if one.kind == "class":
            classes[one.name].append(one)
    found = [
        f"{layer} has {name} {len(several)} times: {', '.join(one.file for one in several)}"
        for (layer, name), several in by_layer.items()
        if len(several) > 1 and name not in SHARED
    ]
    found += [
        f"{name} is {len(several)} classes: {', '.join(one.file for one in several)}"
        for name, several in classes.items()
        if len(several) > 1
    ]
    found += [
        f"{one.file}: {one.name} does not say what it does to what"
        for one in judged
        if one.kind == "function" and "_" not in one.name and one.name not in ONE_WORD
    ]
    return sorted(found)


def write_module(package: Path, file: str, text: str) -> None:
    path = package / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@cache
def zvaults_names() -> tuple[PublicName, ...]:
    """The names of zvault, read once: parsing all of it takes a second."""
    return tuple(list_public_names(PACKAGE))


def test_every_public_name_says_one_thing_in_its_layer() -> None:
    assert find_problems(list(zvaults_names())) == []


def test_each_exception_is_still_needed() -> None:
    names = zvaults_names()
    assert set(SHARED) <= {one.name for one in names}
    assert set(ONE_WORD) <= {one.name for one in names if one.kind == "function"}
    assert all(any(one.file.startswith(where) for one in names) for where in BY_OTHERS)


def test_what_is_against_the_rules_is_found(tmp_path: Path) -> None:
    write_module(tmp_path, "core/a.py", "def told(): ...\nLIMIT = 1\nclass Seen: ...\n")
    write_module(tmp_path, "core/b.py", "LIMIT: int = 2\nA, B = 1, 2\ndef list_all(): ...\n")
    write_module(tmp_path, "ops/b.py", "B = 2\nclass Seen: ...\nasync def list_all(): ...\ndef main(): ...\n")
    assert find_problems(list(list_public_names(tmp_path))) == [
        "Seen is 2 classes: core/a.py, ops/b.py",
        "core has LIMIT 2 times: core/a.py, core/b.py",
        "core/a.py: told does not say what it does to what",
    ]


def test_what_others_name_or_nobody_sees_is_left_alone(tmp_path: Path) -> None:
    write_module(tmp_path, "cli/verbs/run.py", "def run(): ...\n")
    write_module(tmp_path, "cli/verbs/prune.py", "def run(): ...\n_LIMIT = 1\nT = TypeVar('T')\n")
    write_module(tmp_path, "cli/tables.py", "_LIMIT = 1\nT = TypeVar('T')\ndef _told(): ...\n")
    assert find_problems(list(list_public_names(tmp_path))) == []
