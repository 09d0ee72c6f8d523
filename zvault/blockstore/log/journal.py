"""The journal: what has been written but is not in the object store yet, on this host's disk or in its memory.

It is a folder of files (see journal_format.py), of one writer at a time. After a power cut what was not flushed
may be there in any parts. So where a frame is missing, what comes after it is not used; and if the mark of a later
frame says that the missing one had been flushed, it is not a crash's doing but damage.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from zvault.blockstore.folder_lock import lock_folder
from zvault.blockstore.format import BLOCK_SIZE, ObjectDamaged
from zvault.blockstore.log.journal_file import (
    SPARE_FILE_ENDING,
    JournalDiskFull,
    JournalFailed,
    JournalFile,
    JournalFull,
    SpareFiles,
    duplicate_descriptors,
    make_journal_error,
    translate_os_errors,
    write_pieces,
)
from zvault.blockstore.log.journal_format import (
    FILE_HEADER_SIZE,
    FRAME_HEAD_SIZE,
    JournalFrame,
    make_file_header,
    make_frame_seed,
    name_journal_file,
    pack_frame,
    read_file_header,
    read_whole_frames,
)
from zvault.core.errors import Refused
from zvault.object_store.interface import Buffer, StoreError

__all__ = ["Journal", "JournalDiskFull", "JournalFailed", "JournalFrame", "JournalFull"]

FILES, FILE_BYTES = 16, 64 << 20
"""A file is this part of the journal's capacity, but at most so many bytes: space comes back file by file."""
IDLE_PART = 4
"""Of the size of a file: from there on a file without any needed frame is replaced by an empty one."""
SPARE_JOURNAL_FILES = 2
"""Files that a journal in memory keeps to write over them."""
_NAME = re.compile(r"\d{12,}\.journal")
_BEGUN = "begin.new"


class Journal:
    """The frames of one writer. Appends come one at a time; flush and release may run beside them."""

    def __init__(self, folder: Path, identity: bytes, *, capacity: int, durable: bool) -> None:
        """Take the folder, for the store whose uuid is ``identity`` (16 bytes); ``capacity`` in bytes.

        A ``durable`` journal is on a disk and flushed to it; another one only outlives its process. Raises Busy when
        another process has the folder, Refused when it has another store's frames, ObjectDamaged, JournalFailed.
        """
        self.folder, self.identity = folder, identity
        self.capacity, self.durable = capacity, durable
        self.epoch = 0
        self._file_bytes = min(max(capacity // FILES, BLOCK_SIZE), FILE_BYTES)
        self._lock, self._flushing, self._tidying = threading.Lock(), threading.Lock(), threading.Lock()
        self._files: list[JournalFile] = []
        self._current: JournalFile | None = None
        self._seed = self._total = self._last = self._released = self._flushed = 0
        self._folder_dirty = False
        self._failed: JournalFailed | None = None
        opening = translate_os_errors(f"the journal in {folder} cannot be opened")
        with opening, lock_folder(folder, "the journal", "stop the other server") as self._folder:
            # A journal on a disk keeps none: after a power cut a file might have its new name and its old header.
            self._spares = SpareFiles(folder, 0 if durable else SPARE_JOURNAL_FILES)
            self._load()

    def _load(self) -> None:
        """Find the files of the last epoch; remove what a begin() left behind."""
        (self.folder / _BEGUN).unlink(missing_ok=True)
        found = []
        for path in self.folder.iterdir():
            if _NAME.fullmatch(path.name):
                file = JournalFile(path, int(path.stem), path.stat().st_size, secure=True)
                found.append((file, self._epoch_of(file)))
        self.epoch = max((epoch or 0 for _, epoch in found), default=0)
        if self.durable and not self.epoch and any(epoch is None and file.size for file, epoch in found):
            raise self._damage("none of its files has a whole header")
        for file, epoch in found:
            # Without a whole header there may still be frames of this epoch: they tell by their digests.
            if self.epoch and epoch in (None, self.epoch):
                self._files.append(file)
            else:
                file.path.unlink()
        self._files.sort(key=lambda file: file.first)
        self._total = sum(file.size for file in self._files)
        self._seed = make_frame_seed(self.identity, self.epoch)

    def _epoch_of(self, file: JournalFile) -> int | None:
        """The epoch in a file's header; None without a whole one, 0 if it is another store's but has no frames."""
        header = read_file_header(file.path)
        if header is None:
            return None
        if not header.known:
            why = f"{file.path.name} is of version {header.version}, which this zvault does not know"
            raise Refused(f"the journal in {self.folder} is left alone", why, "use a newer zvault")
        if header.identity == self.identity:
            return header.epoch
        if file.size == FILE_HEADER_SIZE:
            return 0
        raise Refused(
            f"the journal in {self.folder} is left alone",
            f"it holds what was written to another store ({header.identity.hex()}), and may not be there yet",
            "give each store a folder of its own; attach the other store once more with this one",
        )

    def _damage(self, why: str) -> ObjectDamaged:
        return ObjectDamaged(
            f"the journal in {self.folder} is damaged",
            why,
            "repair its disk, or bring a copy of the folder back; if that cannot be, move the folder away:"
            " what was flushed but not uploaded is then lost",
        )

    @property
    def first(self) -> int | None:
        """All frames of its epoch before this one were no longer needed; None where it has no file."""
        return self._files[0].first if self._files else None

    @property
    def flushed(self) -> int:
        """The last frame that is on its disk for sure, or was no longer needed."""
        return self._flushed

    def find_last(self) -> int:
        """The last frame that was appended as far as its files tell: whole, or before the first of a later file.

        Reads the last file only, before ``begin``. Raises JournalFailed.
        """
        if not self._files:
            return 0
        file = self._files[-1]
        with translate_os_errors(f"{file.path} cannot be read"):
            numbers = (frame.number for frame, _ in read_whole_frames(file.path, file.first, self._seed))
            return max(numbers, default=file.first - 1)

    @property
    def used(self) -> int:
        """Bytes of the files that have a frame that is still needed."""
        return 0 if self._idle() else self._total

    @property
    def fill(self) -> float:
        """The share of the journal that is full, from 0 to 1."""
        return min(1.0, self.used / self.capacity)

    def _idle(self) -> bool:
        return self._current is not None and self._released >= self._last

    def frames(self, after: int) -> Iterator[JournalFrame]:
        """Frames from number ``after`` + 1 on, up to the first one that is not there whole.

        Reads them one by one. Raises JournalFailed; and ObjectDamaged where the missing one had been flushed.
        """
        wanted = after + 1
        start = max((file.first for file in self._files if file.first <= wanted), default=0)
        for file in [file for file in self._files if file.first >= start]:
            with translate_os_errors(f"{file.path} cannot be read"):
                for frame, mark in read_whole_frames(file.path, file.first, self._seed):
                    if frame.number == wanted:
                        yield frame
                        wanted += 1
                    elif frame.number > wanted and mark >= wanted:
                        why = f"frame {wanted} is missing, though it had been flushed before frame {frame.number}"
                        raise self._damage(f"{why} ({file.path.name})")

    def begin(self, epoch: int, first: int) -> None:
        """Drop everything, and start anew with frame ``first`` of a later ``epoch``. Raises JournalDiskFull,
        JournalFailed.

        A crash leaves the old frames or none.
        """
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not come after {self.epoch}")
        with self._lock, translate_os_errors(f"the journal in {self.folder} cannot be begun"):
            new = JournalFile(self.folder / name_journal_file(first), first, 0)
            self._make(new, self.folder / _BEGUN, epoch)
            try:
                if self.durable:
                    os.fsync(new.fd)
                (self.folder / _BEGUN).rename(new.path)
                if self.durable:
                    os.fsync(self._folder)
            except OSError:
                new.close()
                raise
            new.secure = True
            old, self._files, self._current = self._files, [new], new
            self.epoch, self._seed, self._total = epoch, make_frame_seed(self.identity, epoch), new.size
            self._last = self._released = self._flushed = first - 1
            for file in old:
                file.close()
                if file.path != new.path:
                    file.path.unlink(missing_ok=True)

    def drop(self) -> None:
        """Drop everything, and begin nothing: the folder is no journal any more. Before ``begin``.

        Raises JournalFailed. A crash leaves some of its files.
        """
        with self._lock, translate_os_errors(f"the journal in {self.folder} cannot be dropped"):
            for file in self._files:
                file.close()
                file.path.unlink(missing_ok=True)
            if self.durable:
                os.fsync(self._folder)
            self._files, self.epoch, self._total = [], 0, 0

    def _make(self, file: JournalFile, path: Path, epoch: int) -> None:
        """Make a file of a header alone, or one that begins with it of a spare; leaves none where that fails."""
        whole = 0 if path.suffix == SPARE_FILE_ENDING else os.O_TRUNC
        fd = os.open(path, os.O_RDWR | os.O_CREAT | whole, 0o600)
        try:
            write_pieces(fd, [make_file_header(self.identity, epoch, file.first, durable=self.durable)], 0)
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        file.fd, file.size = fd, FILE_HEADER_SIZE

    def append(self, number: int, block: int, count: int, data: Buffer | None) -> None:
        """Append the next frame: ``count`` blocks and their bytes, or None where they become zeroes.

        From then on it outlives the process. Raises JournalFull, JournalDiskFull, JournalFailed, and then it is not
        appended. After a JournalFailed that is neither of the others nothing is appended to a durable journal any more.
        """
        size = FRAME_HEAD_SIZE if data is None else FRAME_HEAD_SIZE + len(data)
        if data is not None and len(data) != count * BLOCK_SIZE:
            raise ValueError(f"{len(data)} bytes are not {count} blocks")
        with self._lock:
            if self._failed is not None:
                raise self._failed
            file = self._current
            if file is None or number != self._last + 1:
                raise ValueError(f"frame {number} is not the next of this journal")
            if self._total + size > self.capacity or file.size + size > self._file_bytes:
                file = self._room(file, size)
            mark = self._flushed if self._flushed > self._released else self._released
            pieces = pack_frame((number, block, count), mark, data, self._seed)
            try:
                if os.pwritev(file.fd, pieces, file.size) != size:
                    write_pieces(file.fd, pieces, file.size)
            except OSError as error:
                # The next frame is written to the same place: this only gives the space back.
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fd, file.size)
                    self._spares.drop()
                failed = make_journal_error(f"frame {number} cannot be appended to {file.path}", error)
                if self.durable and not isinstance(failed, JournalDiskFull):
                    self._failed = failed
                raise failed from error
            file.size += size
            file.dirty = True
            self._total += size
            self._last = number

    def _room(self, file: JournalFile, size: int) -> JournalFile:
        """The file for a frame of this size: a new one where this one has enough. Raises JournalFull,
        JournalDiskFull.
        """
        if self._total + size > self.capacity and not self._idle():
            why = f"{self._total} of {self.capacity} bytes wait for the object store"
            raise JournalFull(f"the journal in {self.folder} is full", why, "wait until they are uploaded")
        if file.size == FILE_HEADER_SIZE:
            return file
        with translate_os_errors(f"the journal in {self.folder} cannot grow"):
            return self._roll()

    def _roll(self) -> JournalFile:
        """Go on in a new file."""
        new = JournalFile(self.folder / name_journal_file(self._last + 1), self._last + 1, 0)
        if (spare := self._spares.take()) is None:
            self._make(new, new.path, self.epoch)
        else:
            self._make(new, spare, self.epoch)
            spare.rename(new.path)
        if not self.durable and self._current is not None:
            self._current.close()  # else by the flush that is yet to come
        self._files.append(new)
        self._current = new
        self._total += new.size
        self._folder_dirty = True
        return new

    def _roll_if_there_is_room(self) -> None:
        """Go on in a new file, to give back the space of this one; on a full disk that waits for the next release."""
        try:
            self._roll()
        except OSError as error:
            if not isinstance(make_journal_error("", error), JournalDiskFull):
                raise

    def flush(self) -> None:
        """Return when all that was appended before the call would outlive a power cut; at once if not durable.

        Raises JournalFailed, and from then on always: the kernel drops what it could not write, and forgets it.
        """
        if not self.durable:
            return
        wanted = self._last
        with self._flushing:
            if self._failed is not None:
                raise self._failed
            if self._flushed >= wanted:
                return  # thanks to the flush that this one waited for
            with self._lock, translate_os_errors(f"the journal in {self.folder} cannot be flushed"):
                last, files = self._last, [file for file in self._files if file.dirty]
                fds = duplicate_descriptors(files)
                folder, self._folder_dirty = self._folder_dirty, False
                for file in files:
                    file.dirty = False
            self._sync(fds, folder)
            with self._lock:
                self._flushed = max(self._flushed, last)
                for file in files:
                    file.secure = True
                    if file is not self._current and not file.dirty:
                        file.close()

    def _sync(self, fds: Sequence[int], folder: bool) -> None:
        """Put these files, and the folder, on the disk; closes the descriptors."""
        try:
            for fd in fds:
                os.fdatasync(fd)
            if folder:
                os.fsync(self._folder)
        except OSError as error:
            what = f"the journal in {self.folder} cannot be flushed, and is not trusted any more"
            then = "see the kernel's log and that its disk is well; then start the server anew"
            self._failed = JournalFailed(what, str(error), then)
            raise self._failed from error
        finally:
            for fd in fds:
                os.close(fd)

    def release(self, upto: int) -> None:
        """Frames up to this number are no longer needed. Removes whole files. Raises JournalFailed."""
        with self._lock:
            self._released = max(self._released, upto if self._current is None else min(upto, self._last))
        self._tidy(FILE_HEADER_SIZE + self._file_bytes // IDLE_PART)

    def _tidy(self, bound: int) -> None:
        """Remove the files that are no longer needed; the last one too if it has more than ``bound`` bytes."""
        with self._tidying, translate_os_errors(f"the journal in {self.folder} cannot be released"):
            if self._folder < 0:
                return  # the folder is another's by now
            with self._lock:
                if self._current is not None and self._idle() and self._current.size > bound:
                    self._roll_if_there_is_room()
                gone = []
                while len(self._files) > 1 and self._files[1].first <= self._released + 1:
                    gone.append(self._files.pop(0))
                kept = self._files[:1] if gone and self.durable and not self._files[0].secure else []
                fds = duplicate_descriptors(kept)
            if kept:
                # Else no whole header might be left after a power cut, and that counts as damage.
                self._sync(fds, folder=True)
                kept[0].secure = True
            for file in gone:
                self._spares.keep(file.path)
            with self._lock:
                for file in gone:
                    file.close()
                    self._total -= file.size

    def forget_spares(self) -> None:
        """Give back the room of files that are not needed: nobody writes at the moment. Raises JournalFailed."""
        with translate_os_errors(f"the journal in {self.folder} cannot be released"):
            self._spares.drop()

    def close(self) -> None:
        """Let the folder go. What is not released stays in it, for the next one who takes it."""
        if self._folder < 0:
            return
        with contextlib.suppress(StoreError):
            self._tidy(FILE_HEADER_SIZE)
        # What another thread still removes, the next one who takes the folder must not find.
        with self._tidying, self._flushing, self._lock:
            with contextlib.suppress(OSError):
                self._spares.drop()
                if self._current is not None:
                    os.ftruncate(self._current.fd, self._current.size)  # it may have been a spare
            for file in self._files:
                file.close()
            self._current = None
            os.close(self._folder)
            self._folder = -1
