"""The names of datasets as the kernel tells them, where 'zfs list' ends at one that cannot be opened.

It needs nothing but Python's own library: here it is part of lzc_child.py, on another host its text is run by the
Python there (remote.py): ``python3 -c TEXT ROOT`` prints a line for each dataset, its name and after a tab its errno,
0 where it can be opened.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST_NEXT = 0x5A14
"""ZFS_IOC_DATASET_LIST_NEXT (sys/fs/zfs.h): the same call by which 'zfs list' goes from one child to the next."""

COMMAND = 1 << 16
"""Bytes for the kernel's zfs_cmd_t (sys/zfs_ioctl.h), which has some 14,000. It begins with a name; where the kernel
keeps how far it has come, zc_cookie, need not be known here, as all of it is handed back as it came."""

LONGEST_CALL_NAME = 4096
"""Bytes of zc_name."""

NAME_OBJECT = 0x5A24
"""ZFS_IOC_DSOBJ_TO_DSNAME: the name of the dataset that is an object of its pool, by the object's number. It opens no
dataset, and looks at nothing that is in one: of whatever else is an object it says EINVAL, of none ENOENT."""

VALUE_AT, OBJECT_AT = 4144, 12656
"""Where zc_value and zc_obj lie in the zfs_cmd_t of OpenZFS 2.0 to 2.4. Elsewhere the root would not be found."""

MOST_FREE_OBJECTS = 1 << 16
"""Numbers in a row that no object has, after which there are taken to be no more. A pool gives numbers out one by one
in parts of 128 for each processor, and those of what was destroyed again: some thousand in a row are usual. A look at
each takes some microseconds; with four times as many a run of twelve datasets took minutes in a guest of the lab."""

DAMAGED = (errno.EIO, getattr(errno, "EBADE", errno.EIO))
"""Of a dataset that cannot be read; the latter is ZFS's ECKSUM."""


def list_names(root: str) -> dict[str, Any]:
    """The ``names`` of a dataset and of all below it; those that cannot be opened are ``unlisted``, with their errno.

    'zfs list' ends at the first of those. The kernel tells the name of each and goes on behind it, but only to who asks
    it directly. A channel program is no way: zfs.list.children of such a dataset is a panic (zcp_children_iter, 2.3.9).
    Of a root that cannot be opened it tells no children either; those are found among all datasets of the pool.
    """
    names, unlisted, waiting = [root], dict[str, int](), [root]
    with Path("/dev/zfs").open("r+b", buffering=0) as device:
        if trouble := _find_trouble(device.fileno(), root):
            return _list_below_damaged(device.fileno(), root, trouble)
        while waiting:
            parent = waiting.pop()
            try:
                children = list(_children(device.fileno(), parent))
            except OSError as error:
                if parent == root or error.errno == errno.EPROTO:
                    raise
                # It could be opened a moment ago; what lies below it is as unknown as of any other.
                names.remove(parent)
                unlisted[parent] = error.errno or errno.EIO
                continue
            unlisted |= {child: trouble for child, trouble in children if trouble}
            well = [child for child, trouble in children if not trouble]
            names += well
            waiting += well
    return {"names": names, "unlisted": unlisted}


def _find_trouble(device: int, name: str) -> int:
    """The errno by which a dataset cannot be opened, if it is damaged; else 0."""
    try:
        next(_children(device, name), None)
    except OSError as error:
        return error.errno if error.errno and error.errno in DAMAGED else 0
    return 0


def _list_below_damaged(device: int, root: str, trouble: int) -> dict[str, Any]:
    """As ``list_names``, of a root that cannot be opened: ``trouble`` is its errno."""
    found = {name: _find_trouble(device, name) for name in sorted(_list_by_objects(device, root) - {root})}
    unlisted = {name: code for name, code in found.items() if code}
    return {
        "names": [name for name in found if name not in unlisted],
        "unlisted": {root: trouble, **unlisted},
    }


def _list_by_objects(device: int, root: str) -> set[str]:
    """A dataset and all below it, by a look at each object of their pool. Raises OSError."""
    command, found = bytearray(COMMAND), set[str]()
    pool = root.partition("/")[0].encode()
    number = free = 0
    while free < MOST_FREE_OBJECTS:
        number += 1
        command[:LONGEST_CALL_NAME] = pool.ljust(LONGEST_CALL_NAME, b"\0")
        struct.pack_into("=Q", command, OBJECT_AT, number)
        try:
            fcntl.ioctl(device, NAME_OBJECT, command)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.EINVAL, *DAMAGED}:
                raise
            free = free + 1 if error.errno == errno.ENOENT else 0
            continue
        free = 0
        name = command[VALUE_AT : VALUE_AT + LONGEST_CALL_NAME].partition(b"\0")[0].decode(errors="replace")
        if not set(name) & set("@%$") and (name == root or name.startswith(f"{root}/")):
            found.add(name)
    if root not in found:
        # No zfs_cmd_t that is known here: nothing of it is believed.
        raise OSError(errno.EPROTO, "it does not tell of the dataset itself", root)
    return found


def _children(device: int, parent: str) -> Iterator[tuple[str, int]]:
    """The children of a dataset, each with the errno by which it cannot be opened, 0 where it can. Raises OSError."""
    command, seen = bytearray(COMMAND), set[str]()
    start = parent.encode()
    while True:
        command[:LONGEST_CALL_NAME] = start.ljust(LONGEST_CALL_NAME, b"\0")
        trouble = 0
        try:
            fcntl.ioctl(device, LIST_NEXT, command)
        except OSError as error:
            trouble = error.errno or errno.EIO
        name = bytes(command[:LONGEST_CALL_NAME]).partition(b"\0")[0].decode(errors="replace")
        if trouble == errno.ESRCH:
            return
        above, _, last = name.rpartition("/")
        if name == parent or not last:
            raise OSError(trouble, os.strerror(trouble), parent)
        if above != parent or name in seen:
            # No zfs_cmd_t that is known here: nothing of it is believed.
            raise OSError(errno.EPROTO, f"it tells of {name[:80]!r}", parent)
        seen.add(name)
        yield name, trouble


def main() -> int | str:
    """Print what the kernel tells of the root that is given."""
    try:
        found = list_names(sys.argv[1])
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    for name in found["names"]:
        sys.stdout.write(f"{name}\t0\n")
    for name, trouble in found["unlisted"].items():
        sys.stdout.write(f"{name}\t{trouble}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
