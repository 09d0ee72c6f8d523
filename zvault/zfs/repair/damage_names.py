"""Damage in a pool, named; and the streams that have damaged blocks again."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.integrity.damage import DamagedFile, parse_damage
from zvault.core.integrity.healing import HealingStream
from zvault.core.names import parse_name
from zvault.zfs.host import ZfsHost
from zvault.zfs.list_command import ZFS_LIST_DEADLINE, make_list_error, split_in_batches
from zvault.zfs.parse_listing import is_only_missing
from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.whole_listing import list_whole


async def list_named_damage(host: ZfsHost, pool: str, names: Sequence[str]) -> list[DamagedFile]:
    """Parse what ``zpool status -v`` lists into damage, without what is named twice.

    Where the pool cannot be listed whole, what a name with several colons names is not known: it is no dataset's.
    """
    if not names:
        return []
    columns = ["-H", "-r", "-t", "all", "-o", "name"]
    listed = await list_whole(host, ["zfs", "list", *columns, pool], ZFS_LIST_DEADLINE)
    whole, known = listed.returncode == 0, set(listed.stdout.splitlines())
    mounts = (
        await host.run(["cat", "/proc/mounts"], deadline=ZFS_LIST_DEADLINE, check=False)
    ).stdout.splitlines()
    points = {
        _unescaped(words[1]): _unescaped(words[0]) for words in map(str.split, mounts) if _of(pool, words)
    }
    return sorted(
        {parse_damage(name, known, points, whole=whole) for name in names},
        key=lambda damage: (damage.dataset or "", damage.path, damage.snapname or ""),
    )


async def read_object_ids(host: ZfsHost, pool: str) -> dict[int, str]:
    """The pool's datasets and snapshots by ``objsetid`` (zfsprops(7)): their numbers in the pool's own metadata.

    Raises NotFound, ToolFailed, and PartialListing where one of them cannot be opened: ``read_object_ids_in`` reads
    those of the others. What is missing here counts as destroyed (ErrorLog.entries), so it has to be all.
    """
    return await _object_ids(host, "-r", [pool], gone=False)


async def read_object_ids_in(host: ZfsHost, datasets: Sequence[str]) -> dict[int, str]:
    """The same of these datasets and their snapshots alone; those that are gone are left out. Raises ToolFailed."""
    found: dict[int, str] = {}
    for some in split_in_batches(datasets):
        found |= await _object_ids(host, "-d1", some, gone=True)
    return found


async def _object_ids(host: ZfsHost, depth: str, names: Sequence[str], *, gone: bool) -> dict[int, str]:
    # With -d1 'all' would list the children of each dataset as well, and open them.
    types = "all" if depth == "-r" else "snapshot"
    found = dict[int, str]()
    commands = [(depth, types)] if depth == "-r" else [("-d0", "filesystem,volume"), (depth, types)]
    for how, kinds in commands:
        argv = ["zfs", "list", "-Hp", how, "-t", kinds, "-o", "objsetid,name", *names]
        result = await list_whole(host, argv, ZFS_LIST_DEADLINE)
        if result.returncode != 0 and not (gone and is_only_missing(result.stderr)):
            raise make_list_error(names[0], result)
        rows = (line.split("\t", 1) for line in result.stdout.splitlines())
        found |= {int(number): name for number, name in rows if number.isdecimal()}
    return found


def _of(pool: str, words: Sequence[str]) -> bool:
    """True if a line of proc_pid_mounts(5) is of the pool."""
    return words[2:3] == ["zfs"] and parse_name(_unescaped(words[0])).pool == pool


def _unescaped(text: str) -> str:
    """proc_pid_mounts(5) writes blanks in octal."""
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")


def heal_send_argv(cure: HealingStream, flags: SendFlags) -> list[str]:
    """``zfs send`` of what repairs: without properties, for the vault's stay as they are."""
    base = ["-i", cure.base] if cure.base is not None else []
    return ["zfs", "send", "-vP", *(word for word in flags.argv() if word != "-p"), *base, cure.snapshot]
