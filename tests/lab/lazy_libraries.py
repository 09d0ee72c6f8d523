#!/usr/bin/python3
"""Has libraries of a guest's tree load what they seldom use only when they call it: lazy_libraries.py TREE.

A ``zfs`` loads libcrypto for the one function that derives a key from a passphrase, and Kerberos for twelve of XDR; a
modprobe loads libcrypto to show who signed a module. In a guest every page that a library touches while it is loaded is
a fault that two processes handle: half of the 15 ms of ``zfs list``, and such programs are half of what the lab
computes. So one small library takes the place of these. It has the functions that are needed, and calls the real one's;
what OpenZFS's own code does stays as Debian built it.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

NEED = (
    *("usr/lib/*/libzfs.so.*.*.*", "usr/lib/*/libnvpair.so.*.*.*", "usr/sbin/zfs", "usr/sbin/zpool"),
    *("usr/lib/*/libkmod.so.*.*.*", "usr/bin/kmod"),
)
SELDOM = ("libcrypto.so.*", "libtirpc.so.*", "libblkid.so.*", "libudev.so.*", "libuuid.so.*", "libz.so.*")
"""What they need and seldom use: functions that take and return whole numbers and pointers only, seven at most."""

LAZY = "lazy-libraries.so"
SOURCE = """\
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *function(const char *of, const char *name)
{
	void *library = dlopen(of, RTLD_LAZY | RTLD_LOCAL);
	void *found = library ? dlsym(library, name) : NULL;

	if (!found) {
		fprintf(stderr, "%s\\n", dlerror());
		abort();
	}
	return found;
}

#define LAZY(name, of) \\
	long name(long a, long b, long c, long d, long e, long f, long g) \\
	{ \\
		static long (*real)(long, long, long, long, long, long, long); \\
		if (!real) \\
			real = function(of, #name); \\
		return real(a, b, c, d, e, f, g); \\
	}
"""


def output(*command: str | Path) -> str:
    """What a program prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(library: Path, which: str) -> dict[str, str]:
    """A library's functions, ``undefined`` or ``defined`` ones, each with its version or nothing."""
    lines = output("nm", "-D", "--with-symbol-versions", f"--{which}-only", library).splitlines()
    words = [line.split()[-1] for line in lines if line.split()[-2] in "UTWi"]
    return {word.partition("@")[0]: word.rpartition("@")[2] if "@" in word else "" for word in words}


def lazy(name: str) -> str:
    """The name under which a library is needed from now on: as long, for it is written in the other's place."""
    return "laz" + name.removeprefix("lib")


def make(target: Path, functions: dict[tuple[str, str], str]) -> None:
    """The library ``target``, which has these functions, by the library they are of and name, with their versions."""
    with tempfile.TemporaryDirectory() as folder:
        source, versions = Path(folder, "lazy.c"), Path(folder, "versions")
        source.write_text(SOURCE + "".join(f'LAZY({name}, "{of}")\n' for of, name in functions))
        of_version: dict[str, list[str]] = {}
        for (_, name), version in functions.items():
            of_version.setdefault(version or "NONE", []).append(f"{name};")
        versions.write_text(
            "".join(f"{one} {{ global: {' '.join(names)} }};\n" for one, names in of_version.items())
        )
        command = [
            "gcc",
            "-O2",
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{LAZY}",
            f"-Wl,--version-script={versions}",
        ]
        subprocess.run([*command, "-o", target, source], check=True)


def main() -> None:
    """For the tree given."""
    tree = Path(sys.argv[1])
    functions: dict[tuple[str, str], str] = {}
    folder = next(tree.glob("usr/lib/*/libzfs.so.*")).parent
    for needs in (path for pattern in NEED for path in tree.glob(pattern)):
        missing, content = symbols(needs, "undefined"), needs.read_bytes()
        for name in re.findall(r"NEEDED +(\S+)", output("objdump", "-p", needs)):
            if any(Path(name).match(pattern) for pattern in SELDOM):
                there = symbols((folder / name).resolve(), "defined")
                functions |= {(name, one): version for one, version in missing.items() if one in there}
                content = content.replace(name.encode() + b"\0", lazy(name).encode() + b"\0")
                (folder / lazy(name)).unlink(missing_ok=True)
                (folder / lazy(name)).symlink_to(LAZY)
        needs.write_bytes(content)
    make(folder / LAZY, functions)


if __name__ == "__main__":
    main()
