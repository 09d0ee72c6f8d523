"""The lines that differ between two versions of a file: diff(1), started without root's rights.

This file is the program that starts it, too: it puts both versions, which came in on its standard input, in memory that
has a path. It imports the standard library only. What they hold was written by whoever wrote the snapshots.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence

DIFF_DEADLINE = 60.0
"""Seconds: of a mebibyte that has nothing in common diff makes a few."""

SAME, DIFFERS = 0, 1
"""Exit status of diff(1)."""


def text_diff_argv() -> list[str]:
    """The program, which wants ``encode_diff_input`` on its standard input."""
    return [sys.executable, "-I", "-S", __file__]


def encode_diff_input(labels: Sequence[str], contents: Sequence[bytes]) -> bytes:
    """Return the input of diff: of the old and of the new version what it is called, and its content."""
    return json.dumps([labels, [b64encode(one).decode() for one in contents]]).encode()


def main() -> None:
    """Become diff, with the versions on standard input as its files."""
    labels, contents = json.load(sys.stdin)
    argv = ["diff", "--unified", "--text"]
    paths = []
    for label, content in zip(labels, contents, strict=True):
        fd = os.memfd_create("version", 0)
        with open(fd, "wb", closefd=False) as file:
            file.write(b64decode(content))
        argv += ["--label", label]
        paths.append(f"/proc/self/fd/{fd}")
    os.execvp(argv[0], [*argv, "--", *paths])  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
