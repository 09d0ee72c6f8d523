"""A store that delete markers hide is no empty place: nothing advises to make another one over it, and nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.blockstore.locked_store import LOCK, POOL, opened
from tests.unit.blockstore.test_kept_moments import NOON
from tests.unit.object_store.locking_store import LockingStore
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.check import find_store_problems
from zvault.blockstore.maintenance.info import read_store_info
from zvault.blockstore.recovery import create_store
from zvault.core.errors import Refused


@pytest.fixture
def hidden(tmp_path: Path) -> LockingStore:
    now = [NOON]
    store = LockingStore(lambda: now[0], LOCK)
    create_store(store, "vault", 1 << 20)
    engine = opened(store, tmp_path, now)
    engine.write(0, b"k" * BLOCK_SIZE)
    engine.put_all()
    engine.close()
    store.delete(sorted(store.objects))
    return store


def test_no_store_is_made_over_one_that_delete_markers_hide(hidden: LockingStore) -> None:
    before = list(hidden.versions(""))
    with pytest.raises(Refused, match="delete markers hide") as error:
        create_store(hidden, "vault", 1 << 20)
    assert "recover" in error.value.next
    assert list(hidden.versions("")) == before
    create_store(hidden, "another", 1 << 20)


def test_whoever_looks_is_told_to_recover_it_and_not_to_make_one(hidden: LockingStore) -> None:
    for look in (
        lambda: read_store_info(hidden, "vault", POOL),
        lambda: find_store_problems(hidden, "vault", share=0, pool=POOL),
    ):
        with pytest.raises(Refused, match="delete markers hide") as error:
            look()
        assert "recover" in error.value.next


def test_a_store_whose_first_object_is_gone_for_good_is_not_hidden() -> None:
    store = MemoryStore()
    create_store(store, "vault", 1 << 20)
    store.put("vault/epoch", b"")
    store.delete(["vault/store"])
    report = find_store_problems(store, "vault", share=0, pool=POOL)
    assert [one.why for one in report.of("store")] == ["it is missing, so nothing can be read"]
