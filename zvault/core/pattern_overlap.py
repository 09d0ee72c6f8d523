"""Whether patterns of datasets can match the same name, by a name that all of them match."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from zvault.core.names import DatasetName

FILL_TEXT = "zvault-probe"
"""Stands for any text where a pattern leaves it open; no other pattern spells it."""

_Rest = tuple[str, ...]  # what is left of a pattern, part by part

DEEPEST_NAME = 50
"""Parts of a name that is looked for: ZFS nests datasets no deeper (zfs_max_dataset_nesting in zfs_namecheck.c)."""


def find_common_names(patterns: Sequence[str]) -> Iterator[DatasetName]:
    """Names that match all of the patterns (name_rules.find_exclusion tells what each means), the shortest first.

    Not all there are, which may be endlessly many; but if there is any, at least one.
    """
    start = tuple(tuple(DatasetName(pattern).parts) for pattern in patterns)
    seen: set[tuple[_Rest, ...]] = set()
    waiting: deque[tuple[tuple[str, ...], tuple[_Rest, ...]]] = deque([((), start)])
    while waiting:
        name, rests = waiting.popleft()
        if name and all(not rest for rest in rests):
            yield DatasetName("/".join(name))
        if len(name) == DEEPEST_NAME:
            continue
        for texts, after in _steps(rests):
            part = _common_part(texts)
            if part is not None and (after not in seen or all(not rest for rest in after)):
                seen.add(after)
                waiting.append(((*name, part), after))


def _steps(rests: tuple[_Rest, ...]) -> Iterator[tuple[tuple[str, ...], tuple[_Rest, ...]]]:
    """The ways in which each pattern takes the next part: what each asks of it, and what is left of each."""
    found: list[tuple[tuple[str, ...], tuple[_Rest, ...]]] = [((), ())]
    for rest in rests:
        ways = list(_ways(rest))
        found = [((*texts, text), (*afters, after)) for texts, afters in found for text, after in ways]
    yield from dict.fromkeys(found)


def _ways(rest: _Rest) -> Iterator[tuple[str, _Rest]]:
    """``**`` takes a part and stays or is done. Before other parts it may take none."""
    if not rest:
        return
    if rest[0] != "**":
        yield rest[0], rest[1:]
        return
    yield "*", rest
    if len(rest) == 1:
        yield "*", ()
    else:
        yield from _ways(rest[1:])


def _common_part(patterns: Sequence[str]) -> str | None:
    """A text that all of these match, which have only ``*`` and ``?``; the shortest that is not empty, or None."""
    start = tuple(patterns)
    seen: set[tuple[str, ...]] = set()
    waiting: deque[tuple[str, tuple[str, ...]]] = deque([("", start)])
    while waiting:
        text, rests = waiting.popleft()
        if text and all(not rest.strip("*") for rest in rests):
            open_end = all(rest.endswith("*") for rest in rests)
            return text + FILL_TEXT if open_end and text == FILL_TEXT[0] else text
        for char in _next_chars(rests):
            for after in _after(rests, char):
                if after not in seen:
                    seen.add(after)
                    waiting.append((text + char, after))
    return None


def _next_chars(rests: tuple[str, ...]) -> list[str]:
    """Characters that any pattern asks for next, or else one that none does."""
    asked = {char for rest in rests for char in rest.lstrip("*")[:1]} - {"?"}
    return [*sorted(asked), FILL_TEXT[0]]


def _after(rests: tuple[str, ...], char: str) -> Iterator[tuple[str, ...]]:
    """What may be left of each once a character is taken."""
    found: list[tuple[str, ...]] = [()]
    for rest in rests:
        ways = [rest] if rest[:1] == "*" else []
        bare = rest.lstrip("*")
        if bare[:1] in {char, "?"} and bare:
            ways.append(bare[1:])
        found = [(*before, way) for before in found for way in dict.fromkeys(ways)]
    yield from found
