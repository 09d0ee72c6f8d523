"""Names of datasets, snapshots and bookmarks are taken apart in core/names.py, and nowhere else in zvault."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import zvault

ROOT = Path(zvault.__file__).parent

SPLITS = {"partition", "rpartition", "split", "rsplit"}
ENDS = {"startswith", "endswith", "removeprefix", "removesuffix"}

CALLS = re.compile(rf"\.\s*({'|'.join(sorted(SPLITS | ENDS))})\b", re.ASCII)
"""What a source has that calls one of these. Parsing it takes longer than all else here."""

HERE = {"core/names.py", "core/name_rules.py"}

PATHS = ("blockstore/", "object_store/", "devices/", "system/", "config/device_specs/")
"""Where ``/`` stands in paths, keys of objects, URLs and names of RBD images, and datasets have no place."""

OTHERS = {
    ("core/address.py", 'rest.partition("/")'): "a URL: ssh://host/pool/data",
    ("core/notify/formats.py", 'parts.path.rstrip("/").rpartition("/")'): "the path of a URL",
    ("core/notify/secrets.py", 'url.path.split("/")'): "the path of a URL",
    ("ops/hooks.py", 'name.split("/")'): "the name of a lease",
    ("cli/browser/frame.py", 'past["backup"].rpartition("@")'): "NAME@VAULT, of a backup with several vaults",
    ("cli/browser/state.py", 'here["path"].rpartition("/")'): "a path below a dataset's root",
    ("cli/browser/state.py", 'path.rpartition("/")'): "a path below a dataset's root",
    ("ops/restore/source_path.py", 'path.split("/")'): "a path of a file on the source",
    ("cli/verbs/blockstore_place.py", 'text.partition("/")'): "a vault and the number of its device",
    (
        "zfs/list_names_child.py",
        'name.rpartition("/")',
    ): "a name from the kernel, before it is known to be one",
    ("zfs/list_command.py", 'line.partition("#")'): "a line of many that begins with a bookmark's name",
    ("zfs/list_names_child.py", 'root.partition("/")'): "as above",
    ("zfs/list_names_child.py", 'name.startswith(f"{root}/")'): "as above",
    ("cli/choose_vault.py", 'backup.partition("@")'): "a backup of several vaults: NAME@VAULT",
    ("cli/choose_vault.py", 'one.startswith(f"{name}@")'): "a backup of several vaults: NAME@VAULT",
    ("config/load_config.py", 'one.partition("@")'): "a backup of several vaults: NAME@VAULT",
    ("config/tables/backup.py", 'self.name.partition("@")'): "a backup of several vaults: NAME@VAULT",
    ("zfs/pool/module_parameters.py", 'line.removeprefix(f"{folder}/")'): "a path below /sys",
}


def _signs(node: ast.expr) -> str:
    """The last (or only) fixed piece of text in an expression, or nothing."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]) if len(node.values) > 1:
            return text
        case ast.BinOp(op=ast.Add(), right=right):
            return _signs(right)
    return ""


def _takes_apart(call: ast.Call) -> str:
    """The sign at which a call takes text apart, if that is one of a name."""
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return ""
    method, first = call.func.attr, call.args[0]
    if method in SPLITS:
        text = _signs(first)
        return text if text in {"/", "@", "#"} else ""
    if method in ENDS:
        ends = first.elts if isinstance(first, ast.Tuple) else [first]
        return next((sign for end in ends if (sign := _end_of_a_name(end, method))), "")
    return ""


def _end_of_a_name(end: ast.expr, method: str) -> str:
    text = _signs(end)
    if not isinstance(end, ast.Constant):
        return text[-1] if text[-1:] in {"/", "@", "#"} else ""
    # "/%recv" is the end of a name, "/dev/" the beginning of a path, and "/" alone the end of a folder's path.
    of_a_name = method in {"endswith", "removesuffix"} and text[:1] in {"/", "@", "#"} and len(text) > 1
    return text[0] if of_a_name else ""


def hand_written(source: str, file: str) -> Iterator[str]:
    """The calls in a module that take a name apart, as ``file:line: call``."""
    if file in HERE or not CALLS.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not (sign := _takes_apart(node)):
            continue
        text = ast.get_source_segment(source, node) or ""
        if sign == "/" and file.startswith(PATHS):
            continue
        if (file, text.replace("'", '"')) not in OTHERS:
            yield f"{file}:{node.lineno}: {text}"


def test_no_module_takes_names_apart_by_hand() -> None:
    found = [
        one
        for path in sorted(ROOT.rglob("*.py"))
        for one in hand_written(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
    ]
    assert found == [], "use the types of core/names.py, or say in OTHERS what else it is"


def test_every_exception_is_still_there() -> None:
    for (file, text), what in OTHERS.items():
        assert text in (ROOT / file).read_text(encoding="utf-8").replace("'", '"'), f"{file}: {what}"


@pytest.mark.parametrize(
    "line",
    [
        'name.partition("@")[0]',
        "name.rpartition('/')",
        'mark.split("#")[1]',
        'name.split("/", maxsplit=1)',
        'name.startswith(f"{root}/")',
        'name.startswith(root + "/")',
        'f"{name}/".startswith(f"{root}/")',
        'name.removeprefix(f"{root}/")',
        'clone.endswith("/%recv")',
        'name.startswith((root + "@", other))',
    ],
)
def test_a_split_by_hand_is_found(line: str) -> None:
    assert list(hand_written(line, "ops/run.py"))


@pytest.mark.parametrize(
    "line",
    [
        'path.startswith("/dev/")',
        'text.split(",")',
        'line.partition(" = ")',
        'name.endswith("_min_active")',
        'url.rstrip("/")',
        'text.endswith("/")',
        'b"a/b".split(b"/")',
        'line.startswith(f"{name}:")',
    ],
)
def test_what_is_no_name_is_left_alone(line: str) -> None:
    assert not list(hand_written(line, "ops/run.py"))


def test_signs_of_names_are_not_allowed_among_paths_either() -> None:
    assert list(hand_written('key.split("@")', "devices/stack.py"))
    assert not list(hand_written('key.split("/")', "devices/stack.py"))
