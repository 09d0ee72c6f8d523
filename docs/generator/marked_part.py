"""The part of a page that is made from the code, between two marks; the rest of the page stays."""

from __future__ import annotations

from pathlib import Path


def with_part(page: Path, begin: str, part: str, end: str) -> str:
    """The page, with what stands between its two marks made anew. Raises ValueError where it has lost them."""
    before, began, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise ValueError(f"{page} has lost the marks between which its part from the code stands")
    return before + begin + part + end + after
