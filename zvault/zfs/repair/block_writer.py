"""Damaged blocks put right below their pool: their bytes are picked out of a stream, and written where they lie.

What is written has the very checksum that the pool's block pointer has, and is written only over bytes that have not;
so nothing that is sound is touched. Nobody may have the pool imported meanwhile: a device that is in use cannot be
opened here (O_EXCL, open(2)).

It runs as a program of its own: ``python -m zvault.zfs.repair.block_writer look FOLDER`` prints which blocks are
sound where they lie; ``pick FOLDER [HOST]`` reads a stream, from another HOST, from its input and leaves in FOLDER what
is wanted of it; ``put FOLDER`` writes that to the devices, and prints what became of each block.

Fletcher's four sums are no proof against a hostile host: whoever knows a block makes another with the same sums. Bytes
with such a checksum that come from another host are kept apart until a second host sends the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import TypeAdapter

from zvault.core.integrity.block_pointer import BlockPointer
from zvault.core.policy.automatic_repairs import HEAL_BLOCKS, SAME_SUM, TWO_HOSTS
from zvault.zfs.repair.streamed_blocks import BadStream, pick_streamed_blocks

FRONT_LABELS_SIZE = 4 << 20
"""Bytes in front of a vdev's first block: two labels and the boot block (VDEV_LABEL_START_SIZE, vdev_impl.h)."""

PieceResult = Literal["written", "sound", "lost"]
"""``written``: one copy at least is right now; ``sound``: all of them were; ``lost``: no device took and kept it."""

_NAME = "task.json"


@dataclass(frozen=True, slots=True)
class PoolBlock:
    """One block of an object (``offset`` in bytes), and where the pool has it."""

    number: int
    offset: int
    pointer: BlockPointer


@dataclass(frozen=True, slots=True)
class RepairTask:
    """The pieces that are wanted, and the block devices of each top-level vdev: every one of them has all its bytes."""

    pieces: list[PoolBlock]
    vdevs: dict[int, list[str]]


_TASKS = TypeAdapter(RepairTask)


class RepairFolder:
    """The folder in which pieces are gathered, for root alone, and for one healing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, task: RepairTask) -> None:
        """Say what is to be done."""
        (self.path / _NAME).write_bytes(_TASKS.dump_json(task))

    def task(self) -> RepairTask:
        """Read it back. Raises OSError, ValueError."""
        return _TASKS.validate_json((self.path / _NAME).read_bytes())

    def keep(self, piece: PoolBlock, data: bytes) -> None:
        """Keep a piece's bytes: all of them or none, whenever this is put down."""
        file = self._file(piece)
        fresh = file.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.replace(file)

    def confirm_piece(self, piece: PoolBlock, data: bytes, host: str) -> bool:
        """Note bytes that one host sent, and could have made up, apart; True if another host sent the same."""
        own = self._claim(piece, host)
        own.write_bytes(data)
        return any(other != own and other.read_bytes() == data for other in self._claims(piece))

    def lacks_confirmation(self, piece: PoolBlock) -> bool:
        """True if bytes were sent for it that no second host confirmed."""
        return not self.has(piece) and bool(self._claims(piece))

    def has(self, piece: PoolBlock) -> bool:
        """True if it was found."""
        return self._file(piece).exists()

    def bytes_of(self, piece: PoolBlock) -> bytes:
        """A piece that was found."""
        return self._file(piece).read_bytes()

    def _claim(self, piece: PoolBlock, host: str) -> Path:
        file = self._file(piece)
        return file.with_name(f"{file.name}.{hashlib.sha256(host.encode()).hexdigest()}")

    def _claims(self, piece: PoolBlock) -> list[Path]:
        return [*self.path.glob(f"{self._file(piece).name}.{'?' * hashlib.sha256().digest_size * 2}")]

    def _file(self, piece: PoolBlock) -> Path:
        # No two blocks of a pool have the same place.
        first = piece.pointer.dvas[0]
        return self.path / f"{first.vdev}-{first.offset:x}"


def look_argv(folder: Path) -> list[str]:
    """The program that only looks; it prints a list with true for each piece that is sound."""
    return [sys.executable, "-P", "-m", "zvault.zfs.repair.block_writer", "look", str(folder)]


def pick_argv(folder: Path, host: str | None) -> list[str]:
    """The program, as the last stage of a stream; ``host`` is another host that sends it and might make blocks up."""
    argv = [sys.executable, "-P", "-m", "zvault.zfs.repair.block_writer", "pick", str(folder)]
    return argv if host is None else [*argv, host]


def put_argv(folder: Path) -> list[str]:
    """The program that writes; it prints a list with the result of each piece."""
    return [sys.executable, "-P", "-m", "zvault.zfs.repair.block_writer", "put", str(folder)]


def check_pieces(folder: RepairFolder) -> list[bool]:
    """Which pieces have their bytes everywhere, on the devices themselves; a pool may be on them. Raises OSError."""
    task = folder.task()
    with _opened(task.vdevs, os.O_RDONLY) as files:
        return [not _wrong(piece, _places(piece.pointer, task.vdevs, files)) for piece in task.pieces]


def collect_pieces(stream: BinaryIO, folder: RepairFolder, host: str | None = None) -> None:
    """Keep what a stream has of the wanted pieces; ends when all are found. Raises BadStream.

    What another ``host`` sends has to have a checksum that nobody can forge, or the word of a second host.
    """
    wanted: dict[tuple[int, int], list[PoolBlock]] = defaultdict(list)
    for piece in folder.task().pieces:
        if not folder.has(piece):
            wanted[piece.number, piece.offset].append(piece)
    for one in pick_streamed_blocks(stream, set(wanted)):
        place = wanted[one.number, one.offset]
        for piece in list(place):
            data = piece.pointer.pad(one.data)
            fits = one.logical == piece.pointer.logical and piece.pointer.fits(data)
            alike = fits and (
                host is None or piece.pointer.is_cryptographic or folder.confirm_piece(piece, data, host)
            )
            if HEAL_BLOCKS.find_unmet({SAME_SUM: fits, TWO_HOSTS: alike}) is None:
                folder.keep(piece, data)
            if fits:
                place.remove(piece)
        if not any(wanted.values()):
            return


def write_pieces(folder: RepairFolder) -> list[PieceResult]:
    """Write every piece of the task, wherever its bytes are not right. Raises OSError."""
    task = folder.task()
    with _opened(task.vdevs, os.O_RDWR | os.O_EXCL) as files:
        return [
            _put(piece, folder.bytes_of(piece), _places(piece.pointer, task.vdevs, files))
            for piece in task.pieces
        ]


@contextmanager
def _opened(vdevs: Mapping[int, Sequence[str]], flags: int) -> Iterator[dict[str, int]]:
    files: dict[str, int] = {}
    try:
        for path in {path for paths in vdevs.values() for path in paths}:
            files[path] = os.open(path, flags | os.O_CLOEXEC)
        yield files
    finally:
        for fd in files.values():
            os.close(fd)


def _places(
    pointer: BlockPointer, vdevs: Mapping[int, Sequence[str]], files: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Where all copies of a block are: open files, and offsets in them. Raises ValueError."""
    for dva in pointer.dvas:
        if dva.vdev not in vdevs:
            raise ValueError(f"a block is on vdev {dva.vdev}, which none of the devices is of")
    return [(files[path], FRONT_LABELS_SIZE + dva.offset) for dva in pointer.dvas for path in vdevs[dva.vdev]]


def _put(piece: PoolBlock, data: bytes, places: Sequence[tuple[int, int]]) -> PieceResult:
    if not piece.pointer.fits(data):
        raise ValueError("the bytes to write do not have the block's checksum")
    wrong = _wrong(piece, places)
    if not wrong:
        return "sound"
    taken = set(places)
    for fd, at in wrong:
        try:
            os.pwrite(fd, data, at)
            os.fsync(fd)
        except OSError:
            taken.discard((fd, at))  # the device of another copy may do
    # From one copy that is right OpenZFS repairs the others by itself.
    return "written" if len(_wrong(piece, taken)) < len(taken) else "lost"


def _wrong(piece: PoolBlock, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where its bytes are not."""
    pointer = piece.pointer
    return [place for place in places if not pointer.fits(_read(*place, pointer.physical))]


def _read(fd: int, at: int, size: int) -> bytes:
    """What the device has, not the page cache."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        return os.pread(fd, size, at)
    except OSError:
        return b""  # as good as wrong: to write a sector may make it readable again


def main(argv: Sequence[str]) -> int:
    verb, folder = argv[0], RepairFolder(Path(argv[1]))
    try:
        if verb == "pick":
            collect_pieces(sys.stdin.buffer, folder, argv[2] if len(argv) > 2 else None)
        else:
            print(json.dumps(check_pieces(folder) if verb == "look" else write_pieces(folder)))  # noqa: T201 - this program's answer
    except (BadStream, OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - whoever runs it tells
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
