#!/usr/bin/python3
"""Puts into a guest's tree what has its programs cost less: quick_programs.py TREE.

quick_memory.c for its Python, in the place of libexpat, which it needs and brings with it; quick_modprobe.c for its
kernel. What Python, modprobe and the kernel do stays what it is.
"""

import subprocess
import sys
from pathlib import Path

LAB = Path(__file__).resolve().parent
EXPAT = "libexpat.so.1"
MEMORY = "quiexpat.so.1"
"""The name under which Python needs it: as long, for it is written in the other's place."""


def main() -> None:
    """For the tree given."""
    tree = Path(sys.argv[1])
    python = (tree / "usr/bin/python3").resolve()
    python = tree / "usr/bin" / python.name
    expat = next(tree.glob(f"usr/lib/*/{EXPAT}"))
    compiler = ("gcc", "-Wall", "-Wextra", "-Werror", "-O2")
    shared = ("-shared", "-fPIC", f"-Wl,-soname,{MEMORY}", "-Wl,--no-as-needed")
    memory = expat.with_name(MEMORY)
    subprocess.run([*compiler, *shared, "-o", memory, LAB / "quick_memory.c", expat], check=True)
    content = python.read_bytes()
    needed = EXPAT.encode() + b"\0"
    if content.count(needed) != 1:
        sys.exit(f"{python} names {EXPAT} {content.count(needed)} times, not once")
    python.write_bytes(content.replace(needed, MEMORY.encode() + b"\0"))
    modprobe = tree / "usr/sbin/quick-modprobe"
    subprocess.run([*compiler, "-static", "-s", "-o", modprobe, LAB / "quick_modprobe.c"], check=True)


if __name__ == "__main__":
    main()
