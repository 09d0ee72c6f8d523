"""A writer that another one shut out: nothing of its is seen, and what a flush was answered for is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.blockstore.engine_world import BLOCKS, listed
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import BLOCK_SIZE, parse_key_numbers
from zvault.blockstore.options import EngineOptions, WriteMode
from zvault.blockstore.recovery import create_store
from zvault.blockstore.writer_fence import WriterFenced
from zvault.core.errors import Refused, ZvaultError
from zvault.object_store.interface import SMALL_OBJECT, Buffer, ListedObject


@pytest.mark.parametrize("mode", ["strict", "writeback"])
def test_a_writer_that_was_shut_out_is_never_seen(tmp_path: Path, mode: WriteMode) -> None:
    store = MemoryStore()
    create_store(store, "vault", BLOCKS * BLOCK_SIZE)
    old = attach_store(store, "vault", EngineOptions(tmp_path / "a", mode=mode, uploads=0), "a")
    old.write(0, b"a" * BLOCK_SIZE)
    old.flush()
    old.put_all()
    new = attach_store(store, "vault", EngineOptions(tmp_path / "b", uploads=0, give_up_journal=True), "b")
    old.write(0, b"x" * BLOCK_SIZE)
    if mode == "strict":
        with pytest.raises(WriterFenced, match="b has taken it"):
            old.flush()
        with pytest.raises(WriterFenced):
            old.write(0, b"x" * BLOCK_SIZE)
    else:
        old.flush()  # its journal has it, which nobody shuts it out of
        old.put_all()
    new.write(BLOCK_SIZE, b"b" * BLOCK_SIZE)
    new.flush()
    if mode == "writeback":
        with pytest.raises(WriterFenced, match="b has taken it"):
            old.checkpoint()
    new.close()
    again = attach_store(store, "vault", EngineOptions(tmp_path / "b", uploads=0), "b")
    assert again.read(0, 2 * BLOCK_SIZE) == b"a" * BLOCK_SIZE + b"b" * BLOCK_SIZE
    for _ in range(3):
        again.checkpoint()
    assert {key[:2] for key in map(parse_key_numbers, listed(store, "segments"))} == {(1, 1), (2, 2), (2, 1)}
    again.close()


class Interrupted(MemoryStore):
    """A store in which something else happens just before one of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.then: Callable[[], None] | None = None

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0 and (then := self.then) is not None:
            self.then = None
            then()

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._count()
        return super().get(key, start, length)

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        self._count()
        return super().tail(key, length)

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        self._count()
        return super().read(key, most)

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        self._count()
        return super().put(key, data, condition)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        self._count()
        return super().list(prefix, after)


@pytest.mark.parametrize(
    ("inner", "answers"), [("flush", {True, False}), ("take", {False})], ids=["while taken", "while flushed"]
)
def test_what_a_flush_was_answered_for_is_there_whoever_took_the_store_meanwhile(
    tmp_path: Path, inner: str, answers: set[bool]
) -> None:
    answered: set[bool] = set()
    for at in range(30):
        store = Interrupted()
        create_store(store, "vault", BLOCKS * BLOCK_SIZE)
        old = attach_store(store, "vault", EngineOptions(tmp_path / f"a{at}", uploads=0), "a")
        taken: list[BlockEngine] = []
        flushed: list[bool] = []

        def flush(old: BlockEngine = old, flushed: list[bool] = flushed) -> None:
            try:
                old.write(0, b"a" * BLOCK_SIZE)
                old.flush()
            except WriterFenced:
                flushed.append(False)
            else:
                flushed.append(True)

        def take(store: MemoryStore = store, taken: list[BlockEngine] = taken, at: int = at) -> None:
            taken.append(attach_store(store, "vault", EngineOptions(tmp_path / f"b{at}", uploads=0), "b"))

        first, store.then = (take, flush) if inner == "flush" else (flush, take)
        store.left = at
        first()
        if store.then is not None:
            break  # it was all over before
        assert taken[0].read(0, BLOCK_SIZE) == b"a" * BLOCK_SIZE or not flushed[0]
        answered.add(flushed[0])
    else:
        pytest.fail("it asks for more than is tried here")
    assert answered == answers


class Forgetful(MemoryStore):
    """A store whose first answer to each put is lost, behind somebody who then asks again."""

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        super().put(key, data, condition)
        return super().put(key, data, condition)


def test_nobody_is_shut_out_by_himself_when_an_answer_is_lost(tmp_path: Path) -> None:
    store = Forgetful()
    create_store(store, "vault", BLOCKS * BLOCK_SIZE)
    with pytest.raises(Refused, match="something is there already"):
        create_store(store, "vault", BLOCKS * BLOCK_SIZE)
    engine = attach_store(store, "vault", EngineOptions(tmp_path / "a", uploads=0), "a")
    engine.write(0, b"a" * BLOCK_SIZE)
    engine.flush()
    engine.close()


def test_a_journal_that_another_host_overtook_is_not_dropped(tmp_path: Path) -> None:
    store = MemoryStore()
    create_store(store, "vault", BLOCKS * BLOCK_SIZE)
    here = EngineOptions(tmp_path / "a", mode="writeback", uploads=0)
    old = attach_store(store, "vault", here, "a")
    old.write(0, b"a" * BLOCK_SIZE)
    old.flush()
    old.abandon()
    there = attach_store(store, "vault", EngineOptions(tmp_path / "b", uploads=0, give_up_journal=True), "b")
    there.write(0, b"b" * BLOCK_SIZE)
    there.close()
    with pytest.raises(ZvaultError, match="writes that the store never got"):
        attach_store(store, "vault", here, "a")
    with pytest.raises(ZvaultError, match="writes that the store never got"):
        attach_store(store, "vault", here, "a")
    given_up = EngineOptions(tmp_path / "a", mode="writeback", uploads=0, give_up_journal=True)
    again = attach_store(store, "vault", given_up, "a")
    assert again.read(0, BLOCK_SIZE) == b"b" * BLOCK_SIZE
    again.close()
