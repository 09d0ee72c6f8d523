"""What a hostile host tries on the vault it sends to, with all that its user there may do: to take something away.

Runs on the vault's host, as root: ``take_away.py UID DATASET STREAM…`` becomes that user first. It asks the kernel
directly (libzfs_core), without the checks that ``zfs`` makes before. Prints, as JSON, what succeeded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import libzfs_core


def attempts(dataset: str, streams: list[str]) -> dict[str, Callable[[], object]]:
    """All that could cost the vault what it has, by name."""
    name = dataset.encode()
    listed = subprocess.run(
        ["zfs", "list", "-Ho", "name", "-t", "snapshot", "-s", "createtxg", "-d", "1", dataset],
        capture_output=True,
        text=True,
        check=True,
    )
    snaps = [one.encode() for one in listed.stdout.split()]
    found: dict[str, Callable[[], object]] = {
        "destroy a snapshot": lambda: libzfs_core.lzc_destroy_snaps([snaps[1]], False),
        "destroy all snapshots later": lambda: libzfs_core.lzc_destroy_snaps(snaps, True),
        "release the hold": lambda: libzfs_core.lzc_release({one: [b"zvault:keep"] for one in snaps}),
        "roll back": lambda: libzfs_core.lzc_rollback(name),
        "rename": lambda: libzfs_core.lzc_rename(name, name + b"-gone"),
        "promote": lambda: libzfs_core.lzc_promote(name),
        "destroy the dataset": lambda: libzfs_core.lzc_destroy(name),
    }
    for argv in (
        ["zfs", "destroy", "-r", dataset],
        ["zfs", "rollback", "-r", snaps[0].decode()],
        ["zfs", "set", "quota=1M", dataset],
        ["zfs", "set", "mountpoint=/etc", dataset],
        ["zfs", "unallow", "-e", dataset],
        ["zfs", "allow", "-e", "destroy", dataset],
        ["zfs", "change-key", "-o", "keyformat=passphrase", dataset],
        ["zpool", "export", "-f", dataset.split("/", 1)[0]],
        ["zpool", "destroy", "-f", dataset.split("/", 1)[0]],
    ):
        found[" ".join(argv[:3])] = lambda argv=argv: subprocess.run(
            argv, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
        )
    for stream in streams:
        for force in (False, True):
            found[f"receive {Path(stream).name}{' -F' if force else ''}"] = (
                lambda stream=stream, force=force: _receive(name + b"@hostile", stream, force)
            )
    return found


def _receive(snapshot: bytes, stream: str, force: bool) -> None:
    with Path(stream).open("rb") as source:
        libzfs_core.lzc_receive(snapshot, source.fileno(), force=force)


def main() -> None:
    uid, dataset, *streams = sys.argv[1:]
    tried = attempts(dataset, streams)
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    done = []
    for what, attempt in tried.items():
        try:
            attempt()
        except (libzfs_core.exceptions.ZFSError, subprocess.CalledProcessError):
            continue
        done.append(what)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
