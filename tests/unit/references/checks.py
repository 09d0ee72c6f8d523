"""What docstrings, comments and pages refer to, and whether it is there.

The rules, which hold everywhere in place of exceptions:

- After *raises*, what stands first, or after a comma, a semicolon, *and*, *or*, *also* or *besides*, and is written
  LikeThis, or module.error, is an exception. It must be a builtin, or one of a library that the module imports, or one
  of zvault's that is defined in a file which the module imports, itself or through others.
- A word in double backticks is a name. In a docstring it is looked for in the code of the function or class and of
  those around it, in what the module defines, and in what zvault says to other programs (`Repository.spoken`); in a
  comment, or in a module's docstring, in the code of the whole module. A word of a message is no name.
- A name with dots: its first part is a class or a module, which must have the second, or both are in the module.
- Class.attribute without backticks is looked for in the same way, where there is a class of that name; and so is what
  follows *raises as*.
- A path with ``.py`` or ``.md`` is one of the repository, from its root or from any folder of it.
- A path below /etc, /run, /sys, /proc, /var or /dev must be in the code, up to its first part in capitals, or its first
  two folders.
- ``zvaultctl``, ``make``, ``python -m``, ``zvault_…``, ``/v1/…``: the reference pages, Makefile and modules have them.
- ``key=…``: the key is a name. A name in capitals (of the environment) may be anywhere in the code.
- Anything else with spaces or other characters is an example or a literal, and is not looked at.
"""

import builtins
import importlib
import re
from collections.abc import Iterator

from tests.unit.references.repository import Repository, is_exception
from tests.unit.references.source_file import Prose, SourceFile

ELSEWHERE = {
    "_error_translation.py",
    "authenticated",
    "coverage.py",
    "doc/proto.md",
    "dmu_replay_record",
    "dmu_tx_memory_reserve",
    "dump_object",
    "encrypted",
    "head_errlog",
    "metadata_KEY",
    "objsetid",
    "sa_find_idx_tab",
    "snprintf_blkptr",
    "zfs_errno_t",
    "zfs_obj_to_path",
    "zfs_type_t",
    "zio_checksum_handle_crypt",
}
"""Names and files of OpenZFS, pyzfs, coverage, Ceph and the NBD protocol, which comments cite and zvault does not
have.
"""

_RAISES = re.compile(r"\b[Rr]aises?\b:? ((?:[^.]|\.(?=\w))*)")
_EXCEPTION = re.compile(
    r"(?:^|[,;:] (?:and |or |also |besides )?|\b(?:and|or|also|besides) )((?:\w+\.)*(?:[A-Z][a-z]+\w*|error)(?:\.\w+)*)"
)
_MEMBER = re.compile(r"(?<![`\w.])([A-Z][a-z]\w*)\.([a-z_]\w*)\b")
_RAISES_AS = re.compile(r"\b[Rr]aises as (?:``)?([\w.]+\w)")
_NAME = re.compile(r"``([^`]+)``")
_PATH = re.compile(r"(?<![\w/.{*…-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b(?!\.\w)")
_DOTTED = re.compile(r"([^\W\d]\w*)((?:\.[^\W\d]\w*)+)(\(.*\))?")
_SYSTEM = re.compile(r"/(?:etc|run|sys|proc|var|dev)/[\w./-]*")
_KEY = re.compile(r"([a-z][\w-]*) ?= ?\S*")


def list_broken(repository: Repository, source: SourceFile) -> Iterator[tuple[int, str]]:
    """Give (line, what does not exist) for each reference of a Python file that leads nowhere."""
    for prose in source.prose:
        text = prose.text
        for start, found in _list_exceptions(text):
            if not _is_raised(repository, source, found):
                yield prose.line + text.count("\n", 0, start), f"no exception {found} can come here"
        for path in _PATH.finditer(text):
            if path.group(1) not in repository.path_ends and path.group(1) not in ELSEWHERE:
                yield prose.line + text.count("\n", 0, path.start()), f"no file {path.group(1)}"
        for member in _MEMBER.finditer(text):
            if member.group(1) in repository.classes and not _is_attribute(
                repository, source, *member.groups()
            ):
                yield prose.line + text.count("\n", 0, member.start()), f"nothing is called {member.group()}"
        for like in _RAISES_AS.finditer(text):
            if "." not in like.group(1) and like.group(1) not in source.functions | repository.classes:
                yield prose.line + text.count("\n", 0, like.start()), f"no function {like.group(1)}"
        for name in _NAME.finditer(text):
            shown = re.sub(r"\s*\n\s*#?\s*", " ", name.group(1))
            if not _PATH.fullmatch(shown) and not _is_known(repository, source, prose, shown):
                yield prose.line + text.count("\n", 0, name.start()), f"nothing is called {shown}"


def _list_exceptions(text: str) -> Iterator[tuple[int, str]]:
    flat = re.sub(r"\n *#?", lambda gap: "\n".ljust(len(gap.group())), text)
    for sentence in _RAISES.finditer(flat.replace("\n", " ")):
        for name in _EXCEPTION.finditer(re.sub(r" +", " ", sentence.group(1))):
            yield sentence.start(), name.group(1)


def _is_raised(repository: Repository, source: SourceFile, name: str) -> bool:
    if is_exception(getattr(builtins, name, None)):
        return True
    places = repository.exceptions.get(name.rpartition(".")[2], set())
    if places & repository.list_reached(source.path):
        return True
    for module, names in source.imports:
        if module.startswith(("zvault", "tests")):
            continue
        if name in names or name.partition(".")[0] in names:
            try:
                library = importlib.import_module(module)
            except ModuleNotFoundError:
                # Some come with the guest's system only (rados, libzfs_core): what they raise cannot be looked up here.
                return True
            it: object = library if name.partition(".")[0] == module else vars(library).get(name)
            for part in name.split(".")[1:]:
                it = getattr(it, part, None)
            if is_exception(it):
                return True
    return False


def _is_known(repository: Repository, source: SourceFile, prose: Prose, name: str) -> bool:
    if name.isidentifier() and not name.startswith("zvault_"):
        return _is_word(repository, source, prose, name)
    if dotted := _DOTTED.fullmatch(name):
        return _is_attribute(repository, source, dotted.group(1), *dotted.group(2).split(".")[1:])
    if (told := find_outside(repository, name)) is not None:
        return told
    if system := _SYSTEM.match(name):
        return is_in_code(repository, system.group())
    if (key := _KEY.fullmatch(name)) and key.group(1).replace("-", "_").isidentifier():
        return all(part in repository.spoken or part in source.words for part in key.group(1).split("-"))
    return True


def _is_word(repository: Repository, source: SourceFile, prose: Prose, name: str) -> bool:
    if name in ELSEWHERE or name in repository.spoken or name in source.definitions:
        return True
    if name in (
        repository.identifiers
        if name.isupper()
        else ()
        if source.path.startswith("zvault/")
        else source.words
    ):
        return True
    scopes = list(source.list_scopes(prose)) if prose.is_docstring else []
    return any(name in scope for scope in scopes or [source.words])


def _is_attribute(repository: Repository, source: SourceFile, first: str, *rest: str) -> bool:
    if all(part in source.words for part in (first, *rest)):
        return True
    for path, other in repository.sources.items():
        words = other.find_block(first) if first[0].isupper() and first in other.definitions else None
        if path.endswith((f"/{first}.py", f"/{first}/__init__.py")):
            words = other.words
        if words is not None and rest[0] in words:
            return True
    return False


def find_outside(repository: Repository, shown: str) -> bool | None:
    """True if a command, module, metric or route exists, False if not; None for what is none of these."""
    words = shown.split()
    if words[0] == "zvaultctl":
        return _is_command(repository, words[1:])
    if words[0] == "make" and len(words) > 1 and words[1].islower():
        return any(words[1] in targets.split() for targets in repository.targets)
    if words[:2] == ["python", "-m"] and words[2:] and words[2].startswith("zvault"):
        return f"{words[2].replace('.', '/')}.py" in repository.paths
    if metric := re.fullmatch(r"(zvault_[a-z_]+[a-z])(\{.*\})?", shown):
        return metric.group(1) in repository.metrics or metric.group(1) in repository.identifiers
    if route := re.search(r"(?:^|[A-Z] )(/v1/[a-z/-]+)", shown):
        return route.group(1).rstrip("/") in repository.routes
    return None


def _is_command(repository: Repository, words: list[str]) -> bool:
    verbs = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
    if not verbs or not words[0].replace("-", "").isalpha():
        return True
    known = repository.commands
    name = " ".join(verbs[:2])
    if name not in known:
        # "status cold" is a command and a vault, "vault down cold" a group and a command of it.
        name = verbs[0]
        if name not in known or (len(verbs) > 1 and any(other.startswith(f"{name} ") for other in known)):
            return False
    options = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word)}
    return options <= known[name]


def is_in_code(repository: Repository, path: str) -> bool:
    """True if the fixed part of a path of the system, up to two folders, is in the code."""
    fixed = re.split(r"/(?=[A-Z])|[A-Z]+$", path)[0].rstrip("/.")
    return fixed in repository.code or "/".join(fixed.split("/")[:3]) in repository.code
