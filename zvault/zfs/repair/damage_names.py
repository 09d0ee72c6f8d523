"""Damage in a pool, named; and the streams that have damaged blocks again."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.integrity.damage import DamagedFile, parse_damage
from zvault.core.integrity.healing import HealingStream
from zvault.core.names import parse_name
from zvault.zfs.host import ZfsHost
from zvault.zfs.list_command import ZFS_LIST_DEADLINE
from zvault.zfs.stream_argv import SendFlags


async def list_named_damage(host: ZfsHost, pool: str, names: Sequence[str]) -> list[DamagedFile]:
    """Parse what ``zpool status -v`` lists into damage, without what is named twice."""
    if not names:
        return []
    known = await _lines(host, "zfs", "list", "-H", "-r", "-t", "all", "-o", "name", pool)
    mounts = await _lines(host, "cat", "/proc/mounts")
    points = {
        _unescaped(words[1]): _unescaped(words[0]) for words in map(str.split, mounts) if _of(pool, words)
    }
    return sorted(
        {parse_damage(name, set(known), points) for name in names},
        key=lambda damage: (damage.dataset or "", damage.path, damage.snapname or ""),
    )


async def read_object_ids(host: ZfsHost, pool: str) -> dict[int, str]:
    """The pool's datasets and snapshots by ``objsetid`` (zfsprops(7)): their numbers in the pool's own metadata."""
    lines = await _lines(host, "zfs", "list", "-Hp", "-r", "-t", "all", "-o", "objsetid,name", pool)
    rows = (line.split("\t", 1) for line in lines)
    return {int(number): name for number, name in rows if number.isdecimal()}


async def _lines(host: ZfsHost, *argv: str) -> list[str]:
    result = await host.run(list(argv), deadline=ZFS_LIST_DEADLINE, check=False)
    return result.stdout.splitlines()


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
