#!/usr/bin/env python3
"""Run the commands on pages of this documentation, in the lab, and put in what they print.

    tests/lab/run --share . -- python3 docs/rerun.py docs/tutorial.md

In a ``console`` block each line that begins with "# " is a command; what follows it, its output, is replaced. A
block whose language is followed by a path is written to that file first. A comment ``<!-- rerun … -->`` holds
shell commands that prepare what the page takes for granted; a reader does not see them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

SHARE = Path("/share")
PART = re.compile(r"(?ms)^<!-- rerun\n(?P<script>.*?)^-->$|^```(?P<info>[^\n]+)\n(?P<body>.*?)^```$")


def told(text: str) -> None:
    """Progress, for whoever waits."""
    sys.stderr.write(f"{text}\n")


def shell(command: str) -> str:
    """What a command prints, on both of its outputs."""
    argv = ["sh", "-c", command]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    told(f"{done.returncode:3} {command.strip().splitlines()[0]}")
    return done.stdout


def session(commands: list[str]) -> str:
    """The commands with their output, and a blank line after each output but the last."""
    parts = [(f"# {command}", shell(command).rstrip("\n")) for command in commands]
    lines = [line + (f"\n{output}\n" if output else "") for line, output in parts]
    return "\n".join(lines).rstrip("\n") + "\n"


def rerun(found: re.Match[str]) -> str:
    """One part of a page, made anew."""
    script, info, body = found["script"], found["info"], found["body"]
    if script:
        told(shell(script))
    elif info == "console":
        commands = [line[2:] for line in body.splitlines() if line.startswith("# ")]
        return f"```console\n{session(commands)}```"
    elif " /" in info:
        path = Path(info.split(maxsplit=1)[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, encoding="utf-8")
    return found[0]


def main() -> int:
    """Every page named on the command line, relative to what the lab shares."""
    if not os.environ.get("ZVAULT_LAB"):
        told("the commands make and destroy pools: run this in the lab (see above)")
        return 2
    for name in sys.argv[1:]:
        told(f"-- {name}")
        page = SHARE / name
        page.write_text(PART.sub(rerun, page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
