"""Scripts that list and hash files on whichever host they are, and what those print.

They need a POSIX shell, GNU find and sed, coreutils and any awk, so that no byte of a file leaves its host, and nothing
of zvault's need be installed there. Names may hold any byte but zero: they travel in base64.
"""

from __future__ import annotations

import os
import shlex
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence

from zvault.core.integrity.verification import (
    HASHED_PIECE,
    KEY_SPACE,
    ContentRange,
    KeyRange,
    KeySpread,
    TreeEntry,
)

SCRIPT_NAME_BYTES = 48_000
"""Bytes of names in one script: in base64 and quoted it still is one argument (128 KiB, MAX_ARG_STRLEN)."""

HASH_BATCH = 256 << 20
"""Bytes hashed in one go."""

LIST_FILES_DEADLINE = 4 * 3600.0
"""Seconds a listing may take: a tree of millions of files on a slow vault is read at some hundred a second."""

SLOWEST_HASH_RATE = 1 << 20
"""Bytes a second at which a hash is waited for in any case."""

_FIELDS = r"%i %y %m %U:%G %s %T@ %P\0%l\0"

_LINES = r"LC_ALL=C sed -z 's/\\/\\\\/g; s/\n/\\n/g' | tr '\0' '\n'"
"""A name's newlines and backslashes are escaped, so that each entry is two lines."""

FOLDER_DEADLINE = 600.0
"""Seconds that listing one folder may take."""

LINK_ON_THE_WAY = 4
"""Exit status of the scripts of one path where a symbolic link leads to it: that could lead out of the snapshot."""


def estimate_hash_deadline(size: int) -> float:
    """Seconds that hashing so many bytes may take."""
    return 600.0 + size / SLOWEST_HASH_RATE


def count_argv(root: str) -> list[str]:
    """``stat -f``: of a file system, how many objects there may be and are free, blocks, free ones, and their size."""
    return ["stat", "-f", "-c", "%c %d %b %f %S", root]


def parse_count(text: str) -> tuple[int, int]:
    """Files, nearly, and bytes on disk, from what ``count_argv`` prints. Raises ValueError."""
    nodes, free_nodes, blocks, free, size = (int(word) for word in text.split())
    return max(0, nodes - free_nodes), max(0, blocks - free) * size


def list_argv(root: str, mix: KeySpread, keys: KeyRange, *, everything: bool, name: str = "") -> list[str]:
    """List the files in a range of keys, and all large ones; with ``everything`` folders and links too.

    ``name`` is a pattern whose last part is what names are like (core/integrity/file_versions.py): others are not
    listed.
    """
    kind = "" if everything else "-type f"
    last = name.strip("/").rpartition("/")[2]
    if last and "**" not in last:
        kind += f" -name {shlex.quote(_glob(last))}"
    chosen = (
        f"NR % 2 {{ key = (($1 % {KEY_SPACE}) * {mix.factor} + {mix.shift}) % {KEY_SPACE};"
        f" keep = (key - {keys.start} + {KEY_SPACE}) % {KEY_SPACE} < {keys.length}"
        f' || ($2 == "f" && $5 > {HASHED_PIECE}) }} keep'
    )
    return _script(
        f"cd {shlex.quote(root)} || exit 1",
        f"find . -mindepth 1 -xdev -path ./.zfs -prune -o {kind} -printf {shlex.quote(_FIELDS)} | {_LINES}"
        f" | LC_ALL=C awk {shlex.quote(chosen)} | base64",
    )


def path_argv(root: str, path: bytes, most: int | None) -> list[str]:
    """List what is at a path below ``root``: itself, with an empty path, and as many as ``most`` of the names in it.

    Nothing is printed where nothing is there. With None for ``most`` it is the path itself alone. Exits with
    LINK_ON_THE_WAY where a part of the way is a symbolic link: a snapshot does not change, so that holds.
    """
    what = "-maxdepth 0" if most is None else "-maxdepth 1" if path else "-maxdepth 1 -path ./.zfs -prune -o"
    # Two records an entry; the first entry is the path itself.
    limit = f"head -z -n {2 * ((most or 0) + 1)}"
    return _script(
        *_way_to(root, path),
        f'find "$path" {what} -printf {shlex.quote(_FIELDS)} | {limit} | {_LINES} | base64',
    )


def content_argv(root: str, path: bytes, most: int) -> list[str]:
    """Print the first ``most`` bytes of a file below ``root`` in base64; exits as ``path_argv`` does."""
    return _script(
        *_way_to(root, path),
        f'[ -L "$path" ] && exit {LINK_ON_THE_WAY}',
        f'head -c {most} "$path" | base64',
    )


def _way_to(root: str, path: bytes) -> list[str]:
    """Go to the folder that a path leads to, by no link; its last name is in ``$path`` after that."""
    *folders, last = [f"./{os.fsdecode(part)}" for part in path.split(b"/") if part] or ["."]
    return [
        f"cd {shlex.quote(root)} || exit 1",
        f"for folder in {shlex.join(folders)}; do",
        f'[ -L "$folder" ] && exit {LINK_ON_THE_WAY}; [ -d "$folder" ] || exit 0; cd "$folder" || exit 1',
        "done",
        f"path={shlex.quote(last)}",
        '[ -e "$path" ] || [ -L "$path" ] || exit 0',
    ]


def _glob(name: str) -> str:
    """A name for find's own patterns, in which brackets and backslashes have a meaning."""
    return "".join(f"\\{char}" if char in "[]\\" else char for char in name)


def parse_list(text: str) -> list[TreeEntry]:
    """The entries that ``list_argv`` printed."""
    lines = b64decode(text).split(b"\n")[:-1]
    return [_entry(line, link) for line, link in zip(lines[::2], lines[1::2], strict=True)]


def _entry(line: bytes, link: bytes) -> TreeEntry:
    number, kind, mode, owner, size, mtime, path = line.split(b" ", 6)
    return TreeEntry(
        int(number),
        kind.decode(),
        mode.decode(),
        owner.decode(),
        int(size),
        mtime.decode(),
        _plain(path),
        _plain(link),
    )


def _plain(name: bytes) -> bytes:
    """A name without the escapes of newlines and backslashes."""
    return b"\\".join(part.replace(b"\\n", b"\n") for part in name.split(b"\\\\"))


def split_in_hash_batches(
    wanted: Iterable[ContentRange], most: int = HASH_BATCH
) -> Iterator[list[ContentRange]]:
    """Pieces as they are hashed together: whole files, or pieces of large ones, within the limits of one script.

    ``most``: bytes in one batch. No more of ``wanted`` is asked for than the next batch needs.
    """
    batch: list[ContentRange] = []
    names = size = 0
    for one in wanted:
        full = names + len(one.path) > SCRIPT_NAME_BYTES or size + one.size > most
        if batch and (full or (one.length is None) != (batch[0].length is None)):
            yield batch
            batch, names, size = [], 0, 0
        batch.append(one)
        # A piece needs a call of a function, and a name in base64 of its own.
        names += len(one.path) + (80 if one.length is not None else 3)
        size += one.size
    if batch:
        yield batch


def hash_argv(root: str, batch: Sequence[ContentRange]) -> list[str]:
    """Hash one of ``split_in_hash_batches``. What cannot be read is complained of, and left out or hashed short.

    Of a volume ``root`` is the device.
    """
    volume = not batch[0].path
    start = f"cd {shlex.quote('/' if volume else root)} || exit 1"
    if batch[0].length is None:
        names = b64encode(b"".join(b"./" + one.path + b"\0" for one in batch)).decode()
        return _script(
            start,
            "base64 -d <<'END' | xargs -0 -r sha256sum -b --zero -- | base64",
            "\n".join(names[at : at + 1000] for at in range(0, len(names), 1000)),
            "END",
        )
    paths = [root.encode() if volume else one.path for one in batch]
    calls = [
        f"piece {one.offset} {one.length} {b64encode(name).decode()}"
        for one, name in zip(batch, paths, strict=True)
    ]
    # The x keeps the newlines that end a name, which $() would cut off.
    return _script(
        start,
        'piece() { name=$(printf %s "$3" | base64 -d; printf x);'
        ' dd if="${name%x}" bs=1M iflag=skip_bytes,count_bytes,fullblock skip="$1" count="$2" status=none'
        " | sha256sum; }",
        *calls,
    )


def parse_hashes(batch: Sequence[ContentRange], text: str) -> dict[ContentRange, str]:
    """The hashes that ``hash_argv`` printed, of those that could be read."""
    if batch[0].length is not None:
        found = [line.split()[0] for line in text.splitlines() if line.strip()]
        return dict(zip(batch, found, strict=len(found) == len(batch)))
    by_name = {}
    for record in b64decode(text).split(b"\0"):
        digest, star, name = record.partition(b" *./")
        if star:
            by_name[name] = digest.decode()
    return {one: by_name[one.path] for one in batch if one.path in by_name}


def list_read_complaints(stderr: str) -> list[str]:
    """Return what the tools could not read, without what ssh may have to say besides."""
    tools = ("find:", "head:", "sha256sum:", "dd:", "sh:")
    return [line for line in stderr.splitlines() if line.startswith(tools)]


def device_argv(link: str) -> list[str]:
    """Wait some seconds for udev to name a volume's device, and print its size in bytes and its own name, ``/dev/zd0``.

    Each change of the volume has udev look again, and the link is gone for a moment: only the device itself stays.
    """
    return _script(
        f"link={shlex.quote(link)}",
        'for try in $(seq 100); do device=$(readlink -f -- "$link");'
        ' if [ "$device" != "$link" ] && size=$(blockdev --getsize64 "$device" 2>/dev/null); then'
        ' echo "$size $device"; exit 0; fi; sleep 0.1; done',
        'echo "sh: $link did not appear" >&2; exit 1',
    )


def parse_device(text: str) -> tuple[str, int]:
    """The device and its size in bytes, from what ``device_argv`` printed."""
    size, device = text.split()
    return device, int(size)


def _script(*lines: str) -> list[str]:
    return ["sh", "-c", "\n".join(lines)]
