"""What a page of the documentation has its reader type and write, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def list_steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each step of a page: a path and the text to write there, or "" and a command to run as root."""
    for language, path, body in BLOCK.findall(page.read_text()):
        if path:
            yield path, body
        elif language == "console":
            yield from (("", line.removeprefix("# ")) for line in body.splitlines() if line.startswith("# "))
