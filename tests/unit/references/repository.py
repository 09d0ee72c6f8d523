"""The repository's files, read once, and what they name: paths, commands, metrics, routes, exceptions."""

import builtins
import os
import re
from functools import cached_property
from pathlib import Path

from tests.unit.references.source_file import SourceFile

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("zvault", "tests", "docs", "config", "debian", "systemd")
SPOKEN = (".toml", ".json", ".yml", ".service", ".socket", ".slice", ".5", ".html", ".config", ".txt")
"""Files, besides programs, whose words are names: settings, units, fields of the page, packages."""

_CLASS = re.compile(r"^ *class (\w+)(?:\[[^\]]*\])?(?:\(([^)]*)\))?:", re.MULTILINE)
_COMMAND = re.compile(r"^## `zvaultctl ([a-z][^`]*)`", re.MULTILINE)
_LITERAL = re.compile(r"\w+")


class Repository:
    """Paths are relative to ``root``."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self.paths = {path.name for path in root.iterdir() if path.is_file()}
        for top in FOLDERS:
            for folder, folders, names in os.walk(root / top):
                folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
                below = os.path.relpath(folder, root)
                self.paths.add(below)
                self.paths.update(f"{below}/{name}" for name in names if not name.endswith(".pyc"))
        self.sources = {
            path: SourceFile(path, self.read(path)) for path in sorted(self.paths) if path.endswith(".py")
        }
        self.pages = {path: self.read(path) for path in sorted(self.paths) if path.endswith(".md")}

    def read(self, path: str) -> str:
        """Return a file's text."""
        return (self._root / path).read_text(encoding="utf-8")

    @cached_property
    def path_ends(self) -> set[str]:
        """Each path, and what is left of it without its first folders: ``zfs/host.py`` and ``host.py``."""
        ends: set[str] = set()
        for path in self.paths:
            parts = path.split("/")
            ends.update("/".join(parts[first:]) for first in range(len(parts)))
        return ends

    @cached_property
    def spoken(self) -> set[str]:
        """What zvault says to other programs and in its settings: their verbs, properties, fields and keys."""
        words: set[str] = set()
        for path, source in self.sources.items():
            if path.startswith("zvault/"):
                words |= source.bare_strings
        for path in self.paths:
            if path.startswith(("config/", "systemd/")) and path.endswith(SPOKEN):
                words.update(_LITERAL.findall(self.read(path)))
        return words

    @cached_property
    def identifiers(self) -> set[str]:
        """Every word of the code of zvault, its tests and its tools."""
        return set[str]().union(*(source.words for source in self.sources.values()))

    @cached_property
    def words(self) -> set[str]:
        """All names that a page may have: of the code, and of what it says to other programs."""
        return self.identifiers | self.spoken

    @cached_property
    def code(self) -> str:
        """All code, to look for parts of paths in."""
        return "\n".join(
            source.code for path, source in self.sources.items() if path.startswith(("zvault/", "tests/"))
        )

    @cached_property
    def commands(self) -> dict[str, set[str]]:
        """zvaultctl's commands, each with its options: the page is made of the program, and checked."""
        text = self.read("docs/reference/cli.md")
        parts = _COMMAND.split(text)
        general = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", parts[0]))
        found: dict[str, set[str]] = {}
        for usage, body in zip(parts[1::2], parts[2::2], strict=True):
            verbs = [word for word in usage.split() if re.fullmatch(r"[a-z][a-z-]*", word)]
            options = general | set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", body))
            found[" ".join(verbs)] = options
            if len(verbs) > 1:
                found.setdefault(verbs[0], set()).update(options)
        return found

    @cached_property
    def metrics(self) -> set[str]:
        """The names of zvaultd's metrics."""
        return set(re.findall(r"^\| `(zvault_\w+)`", self.read("docs/reference/metrics.md"), re.MULTILINE))

    @cached_property
    def routes(self) -> str:
        """The API's page, made of its routes."""
        return self.read("docs/reference/api.md")

    @cached_property
    def targets(self) -> set[str]:
        """What ``make`` makes."""
        return set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):(?!=)", self.read("Makefile"), re.MULTILINE))

    @cached_property
    def classes(self) -> set[str]:
        """The names of all classes."""
        return {found.group(1) for source in self.sources.values() for found in _CLASS.finditer(source.code)}

    @cached_property
    def exceptions(self) -> dict[str, set[str]]:
        """Exceptions of the repository → the files that define them."""
        defined: dict[str, list[tuple[str, set[str]]]] = {}
        for path, source in self.sources.items():
            for found in _CLASS.finditer(source.code):
                bases = set(re.findall(r"\w+(?=\s*(?:,|\[|$))", found.group(2) or ""))
                defined.setdefault(found.group(1), []).append((path, bases))
        known = {name for name in dir(builtins) if is_exception(getattr(builtins, name))} | {
            "BotoCoreError",
            "ClientError",
        }
        exceptions: set[str] = set()
        while new := {
            name
            for name, places in defined.items()
            if name not in exceptions and any(bases & known for _, bases in places)
        }:
            exceptions |= new
            known |= new
        return {name: {path for path, bases in defined[name] if bases & known} for name in exceptions}

    def list_reached(self, path: str) -> set[str]:
        """Return the files that one imports, also through others: what its functions call lies in these."""
        seen, left = {path}, [path]
        while left:
            for near in self._list_imported(left.pop()) - seen:
                seen.add(near)
                left.append(near)
        return seen

    def _list_imported(self, path: str) -> set[str]:
        if path not in self._imported:
            names = {
                name
                for module, imported in self.sources[path].imports
                for name in (module, *(f"{module}.{one}" for one in imported))
            }
            files = {f"{name.replace('.', '/')}{end}" for name in names for end in (".py", "/__init__.py")}
            # The lab's modules and the pages' generators import their neighbours by name alone.
            beside = path.rpartition("/")[0]
            files |= {f"{beside}/{name}" for name in files}
            self._imported[path] = files & self.sources.keys()
        return self._imported[path]

    @cached_property
    def _imported(self) -> dict[str, set[str]]:
        return {}


def is_exception(it: object) -> bool:
    """True for a class that can be raised."""
    return isinstance(it, type) and issubclass(it, BaseException)
