"""Whatever becomes of the cache's files, a chunk that it gives is the chunk of that name."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.patience import PATIENCE
from zvault.blockstore.read.disk_cache import (
    CACHE_FRAME_SIZE,
    CHUNK_BYTES,
    SEGMENT_CHUNKS,
    CacheFailed,
    DiskCache,
)
from zvault.core.errors import Busy

STORE, OTHER = bytes(range(16)), b"the other store!"


def content(segment: int, chunk: int, size: int = CHUNK_BYTES) -> bytes:
    return random.Random(segment << 20 | chunk).randbytes(size)


def put(cache: DiskCache, segment: int, chunk: int) -> None:
    cache.put(segment, chunk, content(segment, chunk))


def size_for(count: int) -> int:
    return count * (CACHE_FRAME_SIZE + 80)


@contextmanager
def opened(folder: Path, count: int = 20, identity: bytes = STORE) -> Iterator[DiskCache]:
    cache = DiskCache(folder, identity, size=size_for(count))
    try:
        yield cache
    finally:
        cache.close()


def held(cache: DiskCache, segment: int, chunks: range) -> list[int]:
    """The chunks that it has, all of them right."""
    found = []
    for chunk in chunks:
        data = cache.get(segment, chunk)
        if data is not None:
            assert data == content(segment, chunk)
            found.append(chunk)
    return found


def test_what_was_put_is_there_before_and_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path / "c") as cache:
        for chunk in range(10):
            put(cache, 7, chunk)
        cache.put(8, 3, b"short")
        cache.put(8, 4, b"")
        assert held(cache, 7, range(12)) == list(range(10))
        assert (cache.get(8, 3), cache.get(8, 4), cache.get(7 << 20, 1)) == (b"short", b"", None)
        assert (cache.hits, cache.misses, cache.failures) == (12, 3, 0)
        assert cache.used == 12 * CACHE_FRAME_SIZE <= cache.size
        cache.drop(7, 3)
        cache.forget(8)
        assert cache.get(7, 3) is None
        assert cache.get(8, 3) is None
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    with opened(tmp_path / "c") as cache:
        assert held(cache, 7, range(12)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert (cache.get(8, 3), cache.failures) == (None, 0)
    assert cache.get(7, 1) is None
    cache.put(7, 1, b"")
    assert sum(path.stat().st_size for path in (tmp_path / "c").iterdir()) <= cache.size


def test_a_killed_process_leaves_most_of_it(tmp_path: Path) -> None:
    """Killed as it writes."""
    script = f"""
import random
from pathlib import Path
from zvault.blockstore.read.disk_cache import DiskCache, CHUNK_BYTES
cache = DiskCache(Path({str(tmp_path)!r}), {STORE!r}, size={size_for(300)})
for number in range(10**9):
    segment, chunk = divmod(number, 100)
    cache.put(segment, chunk, random.Random(segment << 20 | chunk).randbytes(CHUNK_BYTES))
    print(number, flush=True)
"""
    for stop in (250, 700):
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= stop:
                break
        child.kill()
        child.communicate()
        with opened(tmp_path, 300) as cache:
            found = sum(len(held(cache, segment, range(100))) for segment in range(2 + stop // 100))
            assert found > 180
            # At most the frame that was being written belies the index, besides those of records that were not.
            assert cache.failures <= 70
        shutil.rmtree(tmp_path)


def test_another_stores_chunks_and_a_broken_index_are_dropped(tmp_path: Path) -> None:
    with opened(tmp_path) as cache:
        put(cache, 1, 1)
    with opened(tmp_path, identity=OTHER) as cache:
        assert (cache.get(1, 1), cache.used, cache.failures) == (None, 0, 0)
        assert (tmp_path / "frames").stat().st_size == 0
        put(cache, 1, 2)
    for spoiled in (b"", b"\0" * 10, b"\xff" * 1000):
        (tmp_path / "index").write_bytes(spoiled)
        with opened(tmp_path, identity=OTHER) as cache:
            assert cache.get(1, 2) is None
            put(cache, 1, 2)
            assert cache.get(1, 2) == content(1, 2)
    # Another store's frame under an index that says it is this one's.
    index = (tmp_path / "index").read_bytes()
    (tmp_path / "index").write_bytes(index.replace(OTHER, STORE, 1))
    with opened(tmp_path) as cache:
        assert (cache.get(1, 2), cache.failures) == (None, 1)


@settings(max_examples=cases(60), deadline=None)
@given(seed=st.integers(0, 2**32), both=st.booleans())
def test_damaged_files_never_give_a_wrong_chunk(
    seed: int, both: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Bits, pages and whole frames changed, exchanged or cut off, in the frames and the index."""
    folder, chance = tmp_path_factory.mktemp("c"), random.Random(seed)
    with opened(folder) as cache:
        for chunk in range(15):
            put(cache, 1, chunk)
    for path in [folder / "frames", folder / "index"][: 1 + both]:
        data = bytearray(path.read_bytes())
        step = CACHE_FRAME_SIZE if path.name == "frames" else 16
        first, second = (chance.randrange(15) * step + (0 if step > 16 else 32) for _ in range(2))
        match chance.randrange(4):
            case 0:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case 1:
                data[first : first + step], data[second : second + step] = (
                    data[second : second + step],
                    data[first : first + step],
                )
            case 2:
                at = chance.randrange(len(data)) // 512 * 512
                data[at : at + 512] = chance.randbytes(len(data[at : at + 512]))
            case 3:
                del data[chance.randrange(len(data)) :]
        path.write_bytes(data)
    with opened(folder) as cache:
        held(cache, 1, range(15))
        for chunk in range(15):
            put(cache, 2, chunk)
        assert held(cache, 2, range(15)) == list(range(15))
        held(cache, 1, range(15))
        assert cache.used <= cache.size
    shutil.rmtree(folder)


def test_streams_leave_what_is_used_often_and_so_it_is_after_a_restart(tmp_path: Path) -> None:
    metadata = range(SEGMENT_CHUNKS - 30, SEGMENT_CHUNKS)

    def stream(cache: DiskCache, segments: range) -> None:
        for segment in segments:
            for chunk in range(SEGMENT_CHUNKS):
                cache.put(segment, chunk, b"stream")
                cache.get(segment, chunk)

    with opened(tmp_path, 50) as cache:
        for chunk in metadata:
            put(cache, 1, chunk)
            held(cache, 1, metadata)
            held(cache, 1, metadata)
        stream(cache, range(2, 12))
        assert held(cache, 1, metadata) == list(metadata)
        assert cache.used == 50 * CACHE_FRAME_SIZE
    with opened(tmp_path, 50) as cache:
        stream(cache, range(12, 22))
        assert held(cache, 1, metadata) == list(metadata)
    assert (tmp_path / "index").stat().st_size < 2 * 16 * 50


def test_a_smaller_size_after_a_restart_is_kept_to(tmp_path: Path) -> None:
    with opened(tmp_path, 20) as cache:
        for chunk in range(20):
            put(cache, 1, chunk)
    with opened(tmp_path, 8) as cache:
        found = held(cache, 1, range(20))
        assert len(found) <= 8
        assert (tmp_path / "frames").stat().st_size == 8 * CACHE_FRAME_SIZE
        for chunk in range(20):
            put(cache, 2, chunk)
        assert cache.used == 8 * CACHE_FRAME_SIZE
    with opened(tmp_path, 20) as cache:
        assert len(held(cache, 2, range(20))) == 8


def test_a_cache_without_room_for_one_chunk_does_without(tmp_path: Path) -> None:
    with opened(tmp_path, 0) as cache:
        put(cache, 1, 1)
        assert (cache.get(1, 1), cache.used, cache.failures) == (None, 0, 0)


def test_of_two_processes_one_is_told_that_it_is_busy(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(Busy, match="another process"):
        DiskCache(tmp_path, STORE, size=size_for(20))
    with opened(tmp_path) as cache:
        put(cache, 1, 1)


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheFailed, match="file"):
        DiskCache(tmp_path / "file" / "c", STORE, size=size_for(20))


def test_a_full_disk_stops_its_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwritev, 5 * CACHE_FRAME_SIZE + 5000

    def full(fd: int, pieces: list[bytes], at: int) -> int:
        left = room - at
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, [b"".join(pieces)[:left]], at)

    monkeypatch.setattr(os, "pwritev", full)
    with opened(tmp_path) as cache:
        for chunk in range(40):
            put(cache, 1, chunk)
        assert cache.failures == 1
        assert cache.used == 5 * CACHE_FRAME_SIZE
        assert len(held(cache, 1, range(40))) == 5
        for chunk in range(40):
            put(cache, 2, chunk)
            assert cache.get(2, chunk) == content(2, chunk)
        assert cache.failures == 1
    assert (tmp_path / "frames").stat().st_size == 5 * CACHE_FRAME_SIZE
    monkeypatch.undo()
    with opened(tmp_path) as cache:
        assert len(held(cache, 2, range(40))) == 5
        for chunk in range(40):
            put(cache, 3, chunk)
        assert cache.used == 20 * CACHE_FRAME_SIZE


def test_a_disk_that_fails_is_counted_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as cache:
        for chunk in range(3):
            put(cache, 1, chunk)
        with monkeypatch.context() as patch:
            for name in ("pwritev", "pread", "write"):
                patch.setattr(os, name, broken)
            for chunk in range(200):
                put(cache, 2, chunk % SEGMENT_CHUNKS)
            assert cache.get(1, 0) is None
        assert cache.failures == 201
        assert held(cache, 1, range(3)) == [1, 2]
        put(cache, 1, 0)
        assert held(cache, 1, range(3)) == [0, 1, 2]


def test_many_threads_at_once(tmp_path: Path) -> None:
    """Fewer frames than chunks in use, so that frames are given away while they are read."""
    errors: list[BaseException] = []
    contents = {(segment, chunk): content(segment, chunk) for segment in range(3) for chunk in range(30)}
    keys = list(contents)

    def work(seed: int, cache: DiskCache) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(50_000):
                key = chance.choice(keys)
                data = cache.get(*key)
                if data is None:
                    cache.put(*key, contents[key])
                else:
                    assert data == contents[key]
                if chance.random() < 0.02:
                    cache.drop(*key)
                if chance.random() < 0.002:
                    cache.forget(key[0])
        except BaseException as error:
            errors.append(error)

    with opened(tmp_path, 12) as cache:
        threads = [threading.Thread(target=work, args=(seed, cache)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert cache.hits > 100
        assert cache.used <= 12 * CACHE_FRAME_SIZE
        assert cache.failures == 0
        # No frame was lost.
        for chunk in range(60):
            put(cache, 9, chunk)
        assert cache.used == 12 * CACHE_FRAME_SIZE
    with opened(tmp_path, 12) as cache:
        assert len(held(cache, 9, range(60))) > 0


def test_closing_waits_for_those_who_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they might write to what is another file by then."""
    cache = DiskCache(tmp_path, STORE, size=size_for(20))
    real, begun, go = os.pwritev, threading.Event(), threading.Event()

    def slow(fd: int, pieces: list[bytes], at: int) -> int:
        begun.set()
        assert go.wait(PATIENCE)
        return real(fd, pieces, at)

    monkeypatch.setattr(os, "pwritev", slow)
    writing = threading.Thread(target=put, args=(cache, 1, 1))
    closing = threading.Thread(target=cache.close)
    writing.start()
    assert begun.wait(PATIENCE)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    put(cache, 1, 2)
    go.set()
    for thread in (writing, closing):
        thread.join()
    cache.close()
    with opened(tmp_path) as again:
        assert held(again, 1, range(3)) == [1]
        assert again.failures == 0


def test_a_frame_given_away_and_back_while_it_is_read_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread
    with opened(tmp_path, 1) as cache:
        put(cache, 1, 1)

        def meanwhile(fd: int, size: int, at: int) -> bytes:
            monkeypatch.setattr(os, "pread", real)
            put(cache, 1, 2)
            found = real(fd, size, at)
            put(cache, 1, 1)
            return found

        monkeypatch.setattr(os, "pread", meanwhile)
        assert cache.get(1, 1) == content(1, 1)
        monkeypatch.setattr(os, "pread", lambda *_: (put(cache, 1, 2), real(*_))[1])
        assert cache.get(1, 1) is None
        assert (cache.failures, cache.get(1, 2)) == (0, content(1, 2))


@pytest.mark.parametrize("later", [30, 200], ids=["same size", "larger"])
def test_an_index_of_many_changes_counts_each_frame_once(tmp_path: Path, later: int) -> None:
    """As a killed process leaves it."""
    folder, left = tmp_path / "c", tmp_path / "left"
    with opened(folder, 30) as cache:
        for number in range(640):
            cache.put(number // SEGMENT_CHUNKS, number % SEGMENT_CHUNKS, b"x")
        shutil.copytree(folder, left)
    with opened(left, later) as cache:
        assert cache.used == 30 * CACHE_FRAME_SIZE
        assert len(cache._policy) == 30
        assert [cache.get(number // SEGMENT_CHUNKS, number % SEGMENT_CHUNKS) for number in range(640)].count(
            b"x"
        ) == 30
        assert cache.failures == 0


def test_what_was_dropped_does_not_come_back_after_a_kill(tmp_path: Path) -> None:
    folder, left = tmp_path / "c", tmp_path / "left"
    with opened(folder, 60) as cache:
        # 64 changes are written together.
        for chunk in range(50):
            put(cache, 1, chunk)
        for chunk in range(14):
            cache.drop(1, chunk)
        shutil.copytree(folder, left)
    with opened(left, 60) as cache:
        assert held(cache, 1, range(50)) == list(range(14, 50))
        assert cache.failures == 0
