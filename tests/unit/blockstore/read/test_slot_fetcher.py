"""Slots as they come out of a store: by few requests, each block verified, and no more memory than was given."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from tests.unit.patience import PATIENCE
from zvault.blockstore.format import BLOCK_SIZE, CHUNK_SLOTS, SLOT_SIZE, ObjectDamaged, make_segment_key
from zvault.blockstore.log.segment_buffer import CAPACITY, SegmentBuffer
from zvault.blockstore.map.blockmap import BlockExtent
from zvault.blockstore.read.slot_fetcher import SPAN_CHUNKS, SlotFetcher
from zvault.object_store.interface import StoreError, StoreUnreachable

IDENTITY, EPOCH, FIRST = bytes(range(16)), 3, 1000
KEY = make_segment_key("it", 7, EPOCH)


class CountingStore(MemoryStore):
    """Notes what it is asked for, in slots, and may answer late or not."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.away = False

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked.append((start // SLOT_SIZE, (length or 0) // SLOT_SIZE))
        self.may_answer.wait(10)
        if self.away:
            raise StoreUnreachable(f"{key} cannot be read", "it is away", "wait")
        return super().get(key, start, length)


def content(block: int) -> bytes:
    return block.to_bytes(8, "little") * (BLOCK_SIZE // 8)


@pytest.fixture
def store() -> CountingStore:
    """One with a segment of 640 blocks from FIRST on, which came in pieces of 20 in any order."""
    it = CountingStore()
    filling = SegmentBuffer(7, EPOCH, bytearray(CAPACITY))
    for piece in pieces():
        filling.add(piece, memoryview(b"".join(content(block) for block in range(piece, piece + 20))))
    it.put(KEY, filling.encode(filling.sealed(0, 0), IDENTITY))
    return it


def pieces() -> list[int]:
    out = list(range(FIRST, FIRST + 640, 20))
    random.Random(1).shuffle(out)
    return out


def extents(first: int, count: int) -> list[BlockExtent]:
    """Where blocks are, as the map says it: in the order of the blocks."""
    order = pieces()
    out = []
    for block in range(first, first + count):
        piece = FIRST + (block - FIRST) // 20 * 20
        out.append(BlockExtent(block, 1, 7, order.index(piece) * 20 + block - piece))
    return out


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as it:
        yield it


def read(fetcher: SlotFetcher, first: int, count: int) -> bytes:
    out = bytearray(count * BLOCK_SIZE)
    view, wanted = memoryview(out), extents(first, count)
    outs = [view[at * BLOCK_SIZE : (at + 1) * BLOCK_SIZE] for at in range(count)]
    fetcher.read(wanted, [EPOCH] * count, outs)
    return bytes(out)


def wanted(first: int, count: int) -> bytes:
    return b"".join(content(block) for block in range(first, first + count))


@pytest.mark.parametrize("threads", [True, False])
def test_blocks_that_lie_in_any_order_come_by_few_requests(
    store: CountingStore, pool: ThreadPoolExecutor, threads: bool
) -> None:
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool if threads else None)
    assert read(fetcher, FIRST, 640) == wanted(FIRST, 640)
    assert sorted(store.asked) == [
        (0, SPAN_CHUNKS * CHUNK_SLOTS),
        (SPAN_CHUNKS * CHUNK_SLOTS, 640 - SPAN_CHUNKS * CHUNK_SLOTS),
    ]


def test_what_is_read_ahead_comes_by_longer_requests_and_is_not_asked_for_again(
    store: CountingStore, pool: ThreadPoolExecutor
) -> None:
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    fetcher.ahead(extents(FIRST, 640), [EPOCH] * 640, 2 * SPAN_CHUNKS)
    assert read(fetcher, FIRST + 100, 30) == wanted(FIRST + 100, 30)
    assert store.asked == [(0, 640)]


def test_what_many_want_at_once_is_asked_for_once(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    store.may_answer.clear()
    with ThreadPoolExecutor(8) as readers:
        found = [readers.submit(read, fetcher, FIRST + 40, 20) for _ in range(8)]
        while not store.asked:
            pass
        store.may_answer.set()
        assert {one.result() for one in found} == {wanted(FIRST + 40, 20)}
    asked = [slot for first, count in store.asked for slot in range(first, first + count)]
    assert len(asked) == len(set(asked))


def test_what_did_not_come_is_asked_for_again(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    store.away = True
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            read(fetcher, FIRST, 640)
    store.away = False
    assert read(fetcher, FIRST, 640) == wanted(FIRST, 640)


@pytest.mark.parametrize("place", [0, BLOCK_SIZE - 1, BLOCK_SIZE, SLOT_SIZE - 1])
def test_a_bit_that_is_another_is_never_given_out(
    store: CountingStore, pool: ThreadPoolExecutor, place: int
) -> None:
    """Neither of a block nor of its checksum; what lies beside it is."""
    slot = extents(FIRST + 333, 1)[0].slot
    data = bytearray(store.objects[KEY])
    data[slot * SLOT_SIZE + place] ^= 4
    store.objects[KEY] = bytes(data)
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    for count in (640, 334):
        with pytest.raises(ObjectDamaged, match="does not match its checksums"):
            read(fetcher, FIRST, count)
    assert read(fetcher, FIRST, 333) == wanted(FIRST, 333)
    assert read(fetcher, FIRST + 334, 306) == wanted(FIRST + 334, 306)


def test_what_is_damaged_on_its_way_comes_once_more(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    class OnceDamaged(CountingStore):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            data = bytearray(super().get(key, start, length))
            if len(self.asked) == 1:
                data[len(data) // 2] ^= 1
            return bytes(data)

    once = OnceDamaged()
    once.objects = store.objects
    fetcher = SlotFetcher(once, "it", None, 64 << 20, pool)
    assert read(fetcher, FIRST, 300) == wanted(FIRST, 300)
    assert once.asked[-1][1] == CHUNK_SLOTS


def test_an_object_that_ends_too_soon_is_damaged(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    store.objects[KEY] = store.objects[KEY][: 100 * SLOT_SIZE + 17]
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    with pytest.raises(ObjectDamaged):
        read(fetcher, FIRST, 640)


def test_another_segments_blocks_do_not_pass(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    """The right bytes in the wrong place: of another epoch."""
    store.objects[make_segment_key("it", 7, EPOCH + 1)] = store.objects[KEY]
    fetcher = SlotFetcher(store, "it", None, 64 << 20, pool)
    with pytest.raises(ObjectDamaged):
        fetcher.read(extents(FIRST, 1), [EPOCH + 1], [memoryview(bytearray(BLOCK_SIZE))])


def test_no_more_is_kept_than_there_is_memory_for(store: CountingStore, pool: ThreadPoolExecutor) -> None:
    fetcher = SlotFetcher(store, "it", None, 4 * CHUNK_SLOTS * SLOT_SIZE, pool)
    for chunk in (*range(40), *range(38, -1, -1)):
        slots = range(chunk * CHUNK_SLOTS, (chunk + 1) * CHUNK_SLOTS)
        found = [one for one in extents(FIRST, 640) if one.slot in slots]
        out = bytearray(BLOCK_SIZE)
        fetcher.read(found[:1], [EPOCH], [memoryview(out)])
        assert bytes(out) == content(found[0].block)
        assert len(fetcher._spans) <= fetcher.room
    # On the way back the last few were there.
    assert len(store.asked) == 40 + 39 - 3


@pytest.mark.timeout(PATIENCE)
def test_whoever_waits_for_blocks_that_are_not_asked_for_any_more_is_told(store: CountingStore) -> None:
    pool = ThreadPoolExecutor(1)
    it = SlotFetcher(store, "it", None, 64 << 20, pool)
    store.may_answer.clear()
    far = [
        BlockExtent(FIRST, CHUNK_SLOTS, 7, 0),
        BlockExtent(FIRST + 4 * CHUNK_SLOTS, CHUNK_SLOTS, 7, 4 * CHUNK_SLOTS),
    ]
    it.ahead(far, [EPOCH, EPOCH])  # one thread: the second waits for the first
    told: list[BaseException] = []

    def read() -> None:
        try:
            it.read(far[1:], [EPOCH], [memoryview(bytearray(CHUNK_SLOTS * BLOCK_SIZE))])
        except StoreError as error:
            told.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    found = it._spans[7, 4]
    while not found.came._condition._waiters:  # type: ignore[attr-defined]
        time.sleep(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    reader.join()
    assert "is being closed" in str(told[0])
    store.may_answer.set()
    it.ahead([BlockExtent(FIRST + 8 * CHUNK_SLOTS, CHUNK_SLOTS, 7, 8 * CHUNK_SLOTS)], [EPOCH])
    assert (7, 8) not in it._spans
