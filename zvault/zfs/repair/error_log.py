"""The error log of an imported pool, as zdb(8) shows it: block by block, with when each was written. argv of ``zdb``.

``zpool status -v`` leaves out the oldest snapshot that has a damaged block (core/integrity/damage.py). With the pool
feature ``head_errlog`` (OpenZFS 2.2) the log is a ZAP of ZAPs: for each dataset, by its object, one whose keys are
``object:level:block:birth`` (module/zfs/spa_errlog.c, all hexadecimal).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from zvault.core.errors import ZvaultError
from zvault.core.integrity.block_pointer import BlockPointer, parse_pointer
from zvault.core.integrity.damage import LoggedBlock, SnapshotObject
from zvault.core.names import split_snapshot
from zvault.system.process.runner import ToolRunner
from zvault.zfs.repair.zdb_objects import KEPT_LINE_PATTERN, ListedObjectLines, parse_zdb_objects

ZDB_DEADLINE = 300.0
"""Seconds: it opens the pool by itself, and reads its metadata from the device."""

LISTING_DEADLINE = 3600.0
"""Seconds to list the blocks of one object: of a volume of a terabyte they are millions."""

ZDB_TRIES = 3
"""The pool is read while it is written to: what was read may not fit together."""

MOST_OBJECTS = 500
"""Objects that are looked at in one snapshot; of the rest the numbers are known."""

MOST_BLOCKS = 100_000
"""Blocks that all of these may have together, the short ones first: zdb lists each."""

ASKED = 1_000
"""Blocks that are looked for in one listing: a word of a command has 128 KiB at most."""

Block = tuple[int, int]
"""An object's number, and that of one of its blocks."""

_VALUE = re.compile(r"^\s+(\S+) = (.*)$")
_ENTRY = re.compile(r"^\s+([0-9a-f]+):([0-9a-f]+):([0-9a-f]+):([0-9a-f]+) = ")
_BLOCK = re.compile(r"^\s+([0-9a-f]+)\s+L0 .* B=([0-9]{1,20})/[0-9]+ ")
_OFFSET = re.compile(r"^\s*([0-9a-f]{1,16})\s+L0 ")
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([KM]?)")
_OBJECT = re.compile(r"^\s+([0-9]{1,20})\s+\d+\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+(.+)$")


class ErrorLog:
    """Reads the error log of one pool, which lies on ``devices``."""

    def __init__(self, runner: ToolRunner, pool: str, devices: Sequence[str]) -> None:
        self.runner = runner
        self.pool = pool
        # -e: the pool is in no cache file; and it is looked for nowhere but where it lies.
        self._zdb = ["zdb", "-e", *(word for device in devices for word in ("-p", device))]

    async def entries(self, names: Mapping[int, str]) -> list[LoggedBlock] | None:
        """Every block in the log, None where it cannot be read.

        ``names`` are those of datasets and snapshots by ``objsetid``: a block is logged for a dataset, but for the
        snapshot it was met in where the dataset is encrypted and its key is not loaded.
        """
        roots = _values(await self._dump(self.pool, ["1"]) or "")
        logs = [roots[key] for key in ("errlog_last", "errlog_scrub") if roots.get(key, "0") != "0"]
        if "errlog_last" not in roots:
            return None
        outer = await self._dump(self.pool, logs) if logs else ""
        if outer is None:
            return None
        heads = dict(_heads(outer))
        text = await self._dump(self.pool, list(heads)) if heads else ""
        if text is None:
            return None
        parts = _by_object(text).items()
        known = ((body, names.get(heads.get(str(number), -1))) for number, body in parts)
        return list(dict.fromkeys(one for body, name in known if name for one in _entries(body, name)))

    async def objects(self, place: str, numbers: Collection[int]) -> dict[int, SnapshotObject]:
        """Objects as a snapshot (or dataset) has them, by number; those that are too long, or cannot be read, are
        missing.
        """
        # A range does not mind what is not there; it is longer than one, or zdb takes it for an object.
        asked = [
            f"{number}:{number + 1}" for number in sorted({one for one in numbers if one})[:MOST_OBJECTS]
        ]
        text = await self._dump(place, asked) if asked else None
        if text is None:
            return {}
        there = _by_object(text)
        short = _short({number: lines for number, lines in there.items() if number in numbers})
        # Only its fifth -d tells a path, and each block of the object as well.
        known = await self._listed(place, short) if short else {}
        gone = {number: SnapshotObject() for number in numbers if number and number not in there}
        return gone | {number: _seen(one) for number, one in known.items()}

    async def _listed(self, place: str, numbers: Sequence[int]) -> dict[int, ListedObjectLines]:
        """Objects with their blocks, those that can be read."""
        text = await self._dump(place, [str(number) for number in numbers], more="d")
        if text is not None and (found := parse_zdb_objects(text, numbers)) is not None:
            return found
        if len(numbers) == 1:
            return {}
        known: dict[int, ListedObjectLines] = {}
        for number in numbers:
            known |= await self._listed(place, [number])
        return known

    async def pointers(self, place: str, wanted: Mapping[int, Collection[int]]) -> dict[Block, BlockPointer]:
        """The pointers of blocks of level 0 as a snapshot has them: of some objects, by number, the blocks' numbers.

        What cannot be read is missing. Also of a pool that is exported.
        """
        found: dict[Block, BlockPointer] = {}
        for part in _parts(wanted):
            asked = list(part)
            for tried in range(ZDB_TRIES):
                # First all at once, then each alone: one that is not there has zdb fail, a name may make it unclear.
                for some in [[number] for number in asked] if tried else [asked]:
                    found |= await self._pointers(place, {number: part[number] for number in some})
                asked = [one for one in asked if not any((one, block) in found for block in part[one])]
                if not asked:
                    break
        return found

    async def _pointers(self, place: str, wanted: Mapping[int, Collection[int]]) -> dict[Block, BlockPointer]:
        """What one zdb says of them; nothing where it failed, or where that is unclear."""
        # zdb lists all blocks of an object.
        zdb = shlex.join([*self._zdb, "-ddddddbbbbbb", place, *map(str, wanted)])
        lines = rf"^({KEPT_LINE_PATTERN}| *({_offsets(wanted)}) +L0 |ended [0-9]+$)"
        command = f'{{ {zdb}; echo "ended $?"; }} | LC_ALL=C grep -aE {shlex.quote(lines)}'
        result = await self.runner.run(["sh", "-c", command], deadline=LISTING_DEADLINE, check=False)
        text, _, status = result.stdout.rstrip("\n").rpartition("\nended ")
        objects = parse_zdb_objects(text + "\n", list(wanted)) if status == "0" else None
        found: dict[Block, BlockPointer] = {}
        for number, one in (objects or {}).items():
            for line in one.blocks:
                at, pointer = _OFFSET.match(line), parse_pointer(line)
                if at is None or pointer is None or not pointer.logical:
                    continue
                block, rest = divmod(int(at[1], 16), pointer.logical)
                if block in wanted[number] and not rest:
                    found[number, block] = pointer
        return found

    async def _dump(self, place: str, objects: Sequence[str], *, more: str = "") -> str | None:
        """zdb's words on some objects; None where it had none."""
        for _ in range(ZDB_TRIES):
            try:
                result = await self.runner.run(
                    [*self._zdb, f"-dddd{more}", place, *objects], deadline=ZDB_DEADLINE, check=False
                )
            except ZvaultError:
                return None
            if result.returncode == 0:
                return result.stdout
        return None


def _values(text: str) -> dict[str, str]:
    """What a ZAP holds."""
    found = (_VALUE.match(line) for line in text.splitlines())
    return {match[1]: match[2].strip() for match in found if match is not None}


def _heads(text: str) -> list[tuple[str, int]]:
    """The inner ZAP of each dataset, and the dataset's object."""
    values = _values(text).items()
    return [(value, int(key, 16)) for key, value in values if re.fullmatch(r"[0-9a-f]+", key)]


def _entries(lines: Iterable[str], name: str) -> Iterator[LoggedBlock]:
    dataset, snapname = split_snapshot(name)
    for line in lines:
        if (match := _ENTRY.match(line)) is not None:
            number, level, block, birth = (int(word, 16) for word in match.groups())
            yield LoggedBlock(
                dataset, number, level - (1 << 64) if level >> 63 else level, block, birth, snapname
            )


def _by_object(text: str) -> dict[int, list[str]]:
    """The lines of each object, from its head line on."""
    found: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if (match := _OBJECT.match(line)) is not None:
            lines = found.setdefault(int(match[1]), [])
        lines.append(line)
    return found


def _short(objects: Mapping[int, Iterable[str]]) -> list[int]:
    """The objects whose blocks may be listed."""
    sizes = {}
    for number, lines in objects.items():
        found = (re.match(r"\tdnode maxblkid: ([0-9]{1,19})$", line) for line in lines)
        # The longest, where a name in zdb's output looks like a length.
        sizes[number] = max(
            (int(match[1]) + 1 for match in found if match is not None), default=MOST_BLOCKS + 1
        )
    chosen, left = [], MOST_BLOCKS
    for number in sorted(sizes, key=lambda one: sizes[one]):
        if (left := left - sizes[number]) >= 0:
            chosen.append(number)
    return sorted(chosen)


def _seen(one: ListedObjectLines) -> SnapshotObject:
    """An object in zdb's words."""
    size = _bytes(one.head[3])
    blocks = (match for line in one.blocks if size and (match := _BLOCK.match(line)) is not None)
    return SnapshotObject(one.path, {int(match[1], 16) // size: int(match[2]) for match in blocks})


def _parts(wanted: Mapping[int, Collection[int]]) -> Iterator[dict[int, list[int]]]:
    """Blocks of objects, in parts of which each can be asked for at once."""
    blocks = [(number, block) for number in sorted(wanted) for block in sorted(wanted[number])]
    for begin in range(0, len(blocks), ASKED):
        part: dict[int, list[int]] = {}
        for number, block in blocks[begin : begin + ASKED]:
            part.setdefault(number, []).append(block)
        yield part


def _offsets(wanted: Mapping[int, Collection[int]]) -> str:
    """A regular expression for the offsets, as zdb writes them, that blocks may have, and for some more.

    A block's size, by which its number is multiplied, is a power of two from 512 on, but in objects of one block.
    """
    numbers = {block for blocks in wanted.values() for block in blocks}
    found = ["0"] if 0 in numbers else []
    ends = sorted({block << shift for block in numbers if block for shift in range(4)})
    if ends:
        found.append(f"({'|'.join(f'{end:x}' for end in ends)})00+")
    return "|".join(found)


def _bytes(text: str) -> int:
    """A block size as zdb writes it, 0 where it is none. One that is no power of two is rounded, and of a file of one
    block.
    """
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * {"K": 1 << 10, "M": 1 << 20}.get(match[2], 1)) if match else 0
