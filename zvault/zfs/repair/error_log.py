"""The error log of an imported pool, as zdb(8) shows it: block by block, with when each was written. argv of ``zdb``.

``zpool status -v`` leaves out the oldest snapshot that has a damaged block (core/damage.py). With the pool feature
``head_errlog`` (OpenZFS 2.2) the log is a ZAP of ZAPs: for each dataset, by its object, one whose keys are
``object:level:block:birth`` (module/zfs/spa_errlog.c, all hexadecimal).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from zvault.core.errors import ZvaultError
from zvault.core.integrity.block_pointer import BlockPointer, parse_pointer
from zvault.core.integrity.damage import LoggedBlock, Object
from zvault.core.names import split_snapshot
from zvault.system.process.runner import ToolRunner

DEADLINE = 300.0
"""Seconds: it opens the pool by itself, and reads its metadata from the device."""

LISTING_DEADLINE = 3600.0
"""Seconds to list the blocks of one object: of a volume of a terabyte they are millions."""

TRIES = 3
"""The pool is read while it is written to: what was read may not fit together."""

OBJECTS = 500
"""Objects that are looked at in one snapshot; of the rest the numbers are known."""

BLOCKS = 100_000
"""Blocks that all of these may have together, the short ones first: zdb lists each."""

_VALUE = re.compile(r"^\s+(\S+) = (.*)$")
_ENTRY = re.compile(r"^\s+([0-9a-f]+):([0-9a-f]+):([0-9a-f]+):([0-9a-f]+) = ")
_BLOCK = re.compile(r"^\s+([0-9a-f]+)\s+L0 .* B=([0-9]{1,20})/[0-9]+ ")
_OFFSET = re.compile(r"^\s*([0-9a-f]+)\s+L0 ")
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

    async def objects(self, place: str, numbers: Collection[int]) -> dict[int, Object]:
        """Objects as a snapshot (or dataset) has them, by number; those that are too long, or cannot be read, are
        missing.
        """
        # A range does not mind what is not there; it is longer than one, or zdb takes it for an object.
        asked = [f"{number}:{number + 1}" for number in sorted({one for one in numbers if one})[:OBJECTS]]
        text = await self._dump(place, asked) if asked else None
        if text is None:
            return {}
        there = _by_object(text)
        short = _short({number: lines for number, lines in there.items() if number in numbers})
        # Only its fifth -d tells a path, and each block of the object as well.
        text = await self._dump(place, [str(number) for number in short], more="d") if short else ""
        known = _by_object(text or "")
        gone = {number: Object() for number in numbers if number and number not in there}
        return gone | {number: _seen(known[number]) for number in short if number in known}

    async def pointers(self, place: str, number: int, blocks: Collection[int]) -> dict[int, BlockPointer]:
        """The pointers of some blocks of an object (those of level 0) as a snapshot has it, by the blocks' numbers.

        What cannot be read is missing. Also of a pool that is exported.
        """
        head = await self._dump(place, [f"{number}:{number + 1}"])
        lines = _by_object(head or "").get(number)
        size = _bytes(lines[0].split()[3]) if lines is not None else 0
        if not size:
            return {}
        # zdb lists all blocks of the object.
        offsets = "|".join(f"{block * size:x}" for block in blocks)
        argv = [*self._zdb, "-ddddddbbbbbb", place, str(number)]
        command = f"{shlex.join(argv)} | grep -E {shlex.quote(f'^ *({offsets}) +L0 ')}"
        found: dict[int, BlockPointer] = {}
        for _ in range(TRIES):
            result = await self.runner.run(["sh", "-c", command], deadline=LISTING_DEADLINE, check=False)
            for line in result.stdout.splitlines():
                place_in = _OFFSET.match(line)
                if place_in is not None and (pointer := parse_pointer(line)) is not None:
                    found[int(place_in[1], 16) // size] = pointer
            if found:
                break
        return found

    async def _dump(self, place: str, objects: Sequence[str], *, more: str = "") -> str | None:
        """zdb's words on some objects; None where it had none."""
        for _ in range(TRIES):
            try:
                result = await self.runner.run(
                    [*self._zdb, f"-dddd{more}", place, *objects], deadline=DEADLINE, check=False
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
        sizes[number] = next((int(match[1]) + 1 for match in found if match is not None), BLOCKS + 1)
    chosen, left = [], BLOCKS
    for number in sorted(sizes, key=lambda one: sizes[one]):
        if (left := left - sizes[number]) >= 0:
            chosen.append(number)
    return sorted(chosen)


def _seen(lines: Sequence[str]) -> Object:
    """An object in zdb's words; the first line is its head's."""
    path = next((line.removeprefix("\tpath\t") for line in lines if line.startswith("\tpath\t/")), None)
    size = _bytes(lines[0].split()[3])
    blocks = (match for line in lines if size and (match := _BLOCK.match(line)) is not None)
    return Object(path, {int(match[1], 16) // size: int(match[2]) for match in blocks})


def _bytes(text: str) -> int:
    """A block size as zdb writes it, 0 where it is none. One that is no power of two is rounded, and of a file of one
    block.
    """
    match = _SIZE.fullmatch(text)
    return int(float(match[1]) * {"K": 1 << 10, "M": 1 << 20}.get(match[2], 1)) if match else 0
