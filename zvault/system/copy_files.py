"""argv that copies files as they are: owners, modes, times, links, ACLs, extended attributes, holes (cp(1)).

Names are given on standard input, each ended by a zero, so that they may hold any other byte and be of any number.
"""

from __future__ import annotations

import shlex
from base64 import b64decode
from collections.abc import Sequence

DEADLINE = 7 * 86400.0
"""Seconds: a copy of a large tree from a slow vault takes days; it can be stopped."""

LIST_DEADLINE = 4 * 3600.0

CALL_BYTES = 1_500_000
"""Bytes of names in one call of cp, of the 2 MiB that the kernel takes (execve(2)): only files of one call that are
linked with each other stay so."""


def ended(names: Sequence[bytes]) -> bytes:
    """Names as these commands read them."""
    return b"".join(name + b"\0" for name in names)


def tops_argv(root: str) -> list[str]:
    """Print what stands right below a snapshot's root, in base64; without the folder in which ZFS shows snapshots."""
    return _script(
        f"cd {shlex.quote(root)} || exit 1", "find . -mindepth 1 -maxdepth 1 ! -name .zfs -print0 | base64"
    )


def list_argv(root: str) -> list[str]:
    """Print, in base64, the size and path of all that is not a folder in the trees named on standard input.

    Paths begin with the tree's own last name: so they are below the folder that it is copied into.
    """
    each = (
        "for top; do case $top in */*) folder=${top%/*};; *) folder=.;; esac;"
        ' (cd -- "$folder" && find "./${top##*/}" -xdev ! -type d -printf "%s\\0%p\\0") || exit 255; done'
    )
    return _script(f"cd {shlex.quote(root)} || exit 1", f"xargs -0 -r sh -c {shlex.quote(each)} sh | base64")


def parse_list(text: str) -> list[tuple[bytes, int]]:
    """Path and size in bytes of each, from what ``list_argv`` printed."""
    fields = b64decode(text).split(b"\0")[:-1]
    return [(path, int(size)) for size, path in zip(fields[::2], fields[1::2], strict=True)]


def there_argv(folder: str) -> list[str]:
    """Print, in base64, which of the paths named on standard input are below a folder already."""
    look = 'for name; do if [ -e "$name" ] || [ -L "$name" ]; then printf "%s\\0" "$name"; fi; done'
    return _script(
        f"cd {shlex.quote(folder)} || exit 1", f"xargs -0 -r sh -c {shlex.quote(look)} sh | base64"
    )


def parse_names(text: str) -> list[bytes]:
    """The names that ``tops_argv`` and ``there_argv`` printed."""
    return b64decode(text).split(b"\0")[:-1]


def copy_argv(root: str, folder: str, *, overwrite: bool) -> list[str]:
    """Copy the trees named on standard input into a folder. Without ``overwrite`` what is there stays as it is."""
    how = "--remove-destination" if overwrite else "--no-clobber"
    copy = f"xargs -0 -r -s {CALL_BYTES} cp -a --sparse=auto {how} -t {shlex.quote(folder)} --"
    return _script(f"cd {shlex.quote(root)} || exit 1", copy)


def complaints(stderr: str) -> list[str]:
    """What cp could not copy as it was, a line each."""
    return [line.removeprefix("cp: ") for line in stderr.splitlines() if line.startswith(("cp:", "xargs:"))]


def folder_argv(folder: str) -> list[str]:
    """Fail unless a folder is there that can be written to."""
    return _script(
        f"cd {shlex.quote(folder)} || exit 1",
        '[ -w . ] || { echo "it cannot be written to" >&2; exit 1; }',
    )


def _script(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(lines)]
