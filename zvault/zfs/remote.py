"""Changes to snapshots, holds and bookmarks on another host, by its zfs command.

zfs says in words what libzfs_core tells by errno. The words are those of OpenZFS 2.3 (libzfs_util.c, zfs_main.c), seen
in the lab; what is not recognised is told as it was said.
"""

from __future__ import annotations

import errno
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from zvault.core.errors import Refused, ToolFailed, ToolMissing, refuse_unparsable
from zvault.core.name_rules import check_dataset_name
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.units import is_number
from zvault.system.process.runner import ProcessResult
from zvault.system.side_threads import compute_aside, split_lines
from zvault.zfs import list_names_child, parse_listing
from zvault.zfs.changes import ChangeFailure, list_some_names, make_change_error
from zvault.zfs.host import SshHost

REMOTE_CALL_DEADLINE = 600.0
"""Seconds: a batch of destroys waits for several txg syncs, each slow on a slow vault."""

LONGEST_ARGV = 1_500_000
"""Bytes of names in one command, some way below Linux's limit of 2 MiB for all arguments and the environment."""

SHORTEST_NAME_LINE = 4
"""Characters of a dataset's line, at least."""

LONGEST_ERRNO = 4
"""Digits of an errno."""

_FLAGS = {"large_blocks": "-L", "compress": "-c", "embedded_data": "-e", "raw": "-w"}

_SIGNS: tuple[tuple[str, str, int], ...] = (
    ("dataset already exists", "SnapshotExists", errno.EEXIST),
    ("it's being held", "SnapshotIsHeld", errno.EBUSY),
    ("snapshot has dependent clones", "SnapshotIsCloned", errno.EEXIST),
    ("snapshot is cloned", "SnapshotIsCloned", errno.EEXIST),
    ("dataset is busy", "SnapshotIsHeld", errno.EBUSY),
    ("tag already exists", "HoldExists", errno.EEXIST),
    ("no such tag", "HoldNotFound", errno.ENOENT),
    ("bookmark exists", "BookmarkExists", errno.EEXIST),
    ("could not find any snapshots", "SnapshotNotFound", errno.ENOENT),
    ("dataset does not exist", "SnapshotNotFound", errno.ENOENT),
    ("does not exist", "SnapshotNotFound", errno.ENOENT),
    ("out of space", "NoSpace", errno.ENOSPC),
    ("quota exceeded", "QuotaExceeded", errno.EDQUOT),
    ("permission denied", "PermissionError", errno.EPERM),
    ("pool is read-only", "ReadOnlyPool", errno.EROFS),
    ("name is too long", "NameTooLong", errno.ENAMETOOLONG),
    ("pool I/O is currently suspended", "PoolSuspended", errno.EAGAIN),
    ("I/O error", "ZIOError", errno.EIO),
)
_NAME = re.compile(r"(?:cannot .*?|bookmark )'(.+)'|cannot destroy snapshot (.+)")


class RemoteChanges:
    """Changes on another host. What changes several datasets is one call, and one round trip."""

    def __init__(self, host: SshHost) -> None:
        self.host = host

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        if sum(len(name.encode()) + 9 for name in names) > LONGEST_ARGV:
            raise Refused(
                f"cannot snapshot {list_some_names(names)} at one moment",
                "so many names do not fit one command over ssh",
                "split the backup into several",
            )
        options = [word for key, value in properties.items() for word in ("-o", f"{key}={value}")]
        await self._do(f"snapshot {list_some_names(names)}", [["zfs", "snapshot", *options, *names]])

    async def destroy(self, names: Sequence[str]) -> None:
        snapnames: dict[str, list[str]] = defaultdict(list)
        for name in names:
            snapshot = SnapshotName(name)
            snapnames[snapshot.dataset].append(snapshot.snapname)
        commands = [
            ["zfs", "destroy", f"{dataset}@{','.join(of_it)}"] for dataset, of_it in snapnames.items()
        ]
        await self._do(f"destroy {list_some_names(names)}", commands, harmless={"SnapshotNotFound"})

    async def hold(self, names: Sequence[str], tag: str) -> None:
        await self._do(
            f"hold {list_some_names(names)}", [["zfs", "hold", tag, *names]], harmless={"HoldExists"}
        )

    async def release(self, names: Sequence[str], tag: str) -> None:
        await self._do(
            f"release {list_some_names(names)}",
            [["zfs", "release", tag, *names]],
            harmless={"HoldNotFound", "SnapshotNotFound"},
        )

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        commands = [["zfs", "bookmark", snapshot, mark] for mark, snapshot in marks.items()]
        await self._do(f"bookmark {list_some_names(list(marks))}", commands, harmless={"BookmarkExists"})

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        commands = [["zfs", "destroy", name] for name in names]
        await self._do(f"destroy {list_some_names(names)}", commands, harmless={"SnapshotNotFound"})

    async def send_space(self, snapshot: str, base: str | None, flags: Sequence[str]) -> int:
        argv = [
            "zfs",
            "send",
            "-nP",
            *(_FLAGS[flag] for flag in flags),
            *(["-i", base] if base else []),
            snapshot,
        ]
        result = await self._do(f"estimate {snapshot}", [argv])
        size = parse_listing.parse_stream_size(result.stdout + result.stderr)
        if size is None:
            raise ToolFailed(f"cannot estimate {snapshot}", "zfs told no size")
        return size

    async def range_space(self, ranges: Sequence[tuple[str, str]]) -> list[int]:
        if not ranges:
            return []
        spans = [f"{first}%{SnapshotName(last).snapname}" for first, last in ranges]
        commands = [["zfs", "destroy", "-nvp", span] for span in spans]
        result = await self._do(f"size {ranges[0][0]}", commands)
        told = re.findall(r"^reclaim\t([0-9]+)$", result.stdout, re.MULTILINE)
        sizes = [int(size) for size in told if is_number(size)]
        if len(sizes) != len(ranges):
            raise ToolFailed(f"cannot size {ranges[0][0]}", "zfs told no size")
        return sizes

    async def inherit_key(self, dataset: str) -> None:
        """See Changes.inherit_key: no command does it."""
        raise ToolFailed(f"{dataset} cannot inherit its key on {self.host.address}", "its key is not loaded")

    async def list_names(self, root: str) -> tuple[list[str], dict[str, str]]:
        """As Lzc.list_names: no command of zfs tells these names, so the Python there asks its kernel for them.

        Raises ToolFailed with what to do, where there is none or it tells nothing.
        """
        argv = ["python3", "-I", "-c", _read_names_program(), root]
        try:
            result = await self.host.run(argv, deadline=REMOTE_CALL_DEADLINE, check=False)
        except ToolMissing:
            raise self._no_names(root, "it has no python3") from None
        if result.returncode != 0:
            raise self._no_names(root, result.complaint())
        with refuse_unparsable(f"what the kernel of {self.host.address} tells of {root}"):
            size = len(result.stdout) // SHORTEST_NAME_LINE
            return await compute_aside(size, None, parse_told_names, result.stdout, root)

    def _no_names(self, root: str, why: str) -> ToolFailed:
        address = self.host.address
        return ToolFailed(
            f"'{root}' on {address} has a dataset that cannot be opened, and what comes behind it is not known",
            f"'zfs list' there ends at that dataset, and its kernel could not be asked past it: {why}",
            f"on {address}, install python3 and let its user run it and open /dev/zfs, and zvault backs up all others;"
            " or find the damaged dataset ('zfs list -d1' of each dataset above says 'cannot iterate filesystems'), and"
            " leave it out by making the datasets beside it the 'source'",
        )

    async def close(self) -> None:
        """See Changes.close. The connection is the host's, and others use it too."""

    async def _do(
        self, what: str, commands: Sequence[Sequence[str]], harmless: Iterable[str] = ()
    ) -> ProcessResult:
        """Run commands; what they complain of counts unless all of it is harmless."""
        result = await self.host.run_all(commands, deadline=REMOTE_CALL_DEADLINE)
        if result.returncode == 0:
            return result
        found = parse_complaints(result.stderr)
        left = [one for one in found if one.kind not in set(harmless)]
        if left or not found:
            where = f"{what} on {self.host.address}"
            raise make_change_error(where, left or [ChangeFailure("", "", 0, result.complaint())])
        return result


def parse_told_names(text: str, root: str) -> tuple[list[str], dict[str, str]]:
    """Parse what list_names_child printed: names, and those that cannot be opened with why. Raises ValueError for what
    it does not print: whoever sent it may have made it up.
    """
    names, unlisted = list[str](), dict[str, str]()
    for line in split_lines(text):
        name, _, code = line.partition("\t")
        check_dataset_name(name)
        if not DatasetName(name).is_within(root):
            raise ValueError(f"it tells of {name!r}, which is not below {root}")
        if not is_number(code) or len(code) > LONGEST_ERRNO:
            raise ValueError(f"it tells {code[:LONGEST_ERRNO]!r} of {name!r}")
        if int(code):
            unlisted[name] = os.strerror(int(code))
        else:
            names.append(name)
    if root not in names and root not in unlisted:
        raise ValueError(f"it tells nothing of {root} itself")
    return names, unlisted


@cache
def _read_names_program() -> str:
    return Path(list_names_child.__file__).read_text(encoding="utf-8")


def parse_complaints(said: str) -> list[ChangeFailure]:
    """Parse what zfs complained of, name by name. Lines that only accompany a complaint are left out."""
    found = []
    for line in said.splitlines():
        sign = next((sign for sign in _SIGNS if sign[0] in line), None)
        if sign is None and not line.startswith("cannot "):
            continue
        phrase, kind, code = sign or ("", "", 0)
        # The name may hold colons and spaces itself: it is what stands before the phrase.
        name = _NAME.fullmatch(line.partition(phrase)[0].rstrip(": ")) if phrase else None
        found.append(ChangeFailure((name[1] or name[2]) if name else "", kind, code, phrase or line))
    return found
