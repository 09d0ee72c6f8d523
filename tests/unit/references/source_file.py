"""Python files cut into code and prose by a regular expression: to parse 8 MB of them would take ten times as long."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_PIECE = re.compile(
    r"""(?P<long>[rRbBfFuU]{0,2}\"{3}(?:[^"\\]|\\.|"(?!""))*\"{3})"""
    r"""|(?P<short>[rRbBfFuU]{0,2}(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
    r"""|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORD = re.compile(r"\w+")
_BRACED = re.compile(r"\{[^{}]*\}")
_BLOCK = re.compile(r"^([ ]*)(?:async )?(?:def|class) (\w+)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^(?:(?:async )?def |class )?([^\W\d]\w*)(?=[ (:\[]|\s*=)", re.MULTILINE)
_IMPORTED = re.compile(r"^\s*(?:from ([\w.]+) )?import (\([^)]*\)|[^\n(]+)", re.MULTILINE)


@dataclass(frozen=True)
class Prose:
    """A docstring or a comment. ``line`` is that of its first character; ``offset`` counts characters of the file."""

    text: str
    offset: int
    line: int
    is_docstring: bool


class SourceFile:
    """A Python file. ``path`` is relative to the repository."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.prose: list[Prose] = []
        self.bare_strings: set[str] = set()
        """Words of string literals without spaces: what the code says to other programs, and keys, not messages."""
        code: list[str] = []
        last = 0
        for piece in _PIECE.finditer(text):
            start, end = piece.span()
            kind = piece.lastgroup
            shown = piece.group()
            if kind == "comment" or (
                kind == "long" and not text[text.rfind("\n", 0, start) + 1 : start].strip()
            ):
                self.prose.append(Prose(shown, start, text.count("\n", 0, start) + 1, kind == "long"))
                kept = ""
            elif " " not in shown.strip("\"' ") or kind == "long":
                self.bare_strings.update(_WORD.findall(shown))
                kept = shown
            else:
                kept = " ".join(_BRACED.findall(shown))
            # A piece keeps its length and its lines, so that an offset in the code is one in the file.
            code += (text[last:start], _fill(kept, shown))
            last = end
        self.code = "".join((*code, text[last:]))

    @cached_property
    def words(self) -> set[str]:
        """Every identifier, and every word of a bare string."""
        return set(_WORD.findall(self.code))

    @cached_property
    def definitions(self) -> set[str]:
        """What the module defines or imports at its top."""
        return set(_TOP_LEVEL.findall(self.code)) | {name for _, names in self.imports for name in names}

    @cached_property
    def functions(self) -> set[str]:
        """What can be called in it: functions and methods that it defines, and what it imports."""
        imported = {name for _, names in self.imports for name in names}
        return imported.union(re.findall(r"\bdef (\w+)", self.code))

    @cached_property
    def imports(self) -> list[tuple[str, list[str]]]:
        """As (module, names), wherever they stand. ``import a.b`` gives the module alone."""
        found: list[tuple[str, list[str]]] = []
        for whole in _IMPORTED.finditer(self.code):
            module, names = whole.groups()
            listed = [name.strip(" ()\n") for name in names.split(",")]
            if module:
                found.append((module, [words[-1] for name in listed if (words := _IDENTIFIER.findall(name))]))
            else:
                found += [
                    (name.split()[0], [name.split()[-1].split(".")[0]]) for name in listed if name.split()
                ]
        return found

    @cached_property
    def _blocks(self) -> list[tuple[int, int]]:
        """(offset, indent) of each function and class, in the order of the file."""
        return [(block.start(), len(block.group(1))) for block in _BLOCK.finditer(self.code)]

    def list_scopes(self, prose: Prose) -> Iterator[set[str]]:
        """Give the words of the function or class that it stands in, then of each around that, from the inside."""
        indent = prose.offset - self.text.rfind("\n", 0, prose.offset) - 1
        for start, its_indent in reversed(self._blocks[: bisect_right(self._blocks, (prose.offset, 0))]):
            if its_indent < indent:
                indent = its_indent
                yield set(_WORD.findall(self._cut_block(start, its_indent)))

    def find_block(self, name: str) -> set[str] | None:
        """Return the words of a class or function at the top of the file; None where there is none of that name."""
        found = re.search(rf"^(?:async )?(?:def|class) {re.escape(name)}\b", self.code, re.MULTILINE)
        return None if found is None else set(_WORD.findall(self._cut_block(found.start(), 0)))

    def _cut_block(self, start: int, indent: int) -> str:
        # A signature over several lines ends with a bracket at the block's own indent.
        end = re.compile(rf"\n {{0,{indent}}}(?=[^\s)\]}}])").search(self.code, start)
        return self.code[start : end.start() if end else len(self.code)]


def _fill(kept: str, shown: str) -> str:
    if kept == shown:
        return shown
    lines = shown.count("\n")
    return kept + " " * (len(shown) - len(kept) - lines) + "\n" * lines
