"""Which pools the vaults were seen to have."""

from __future__ import annotations

import os
import time
from pathlib import Path
from unittest.mock import Mock

from zvault.ops.state.pool_book import PoolBook, SeenPool
from zvault.system.record_store import RecordStore


def aged(folder: Path) -> None:
    """As if nothing had been written there for a minute."""
    then = time.time() - 60
    os.utime(folder, (then, then))


def test_what_does_not_change_is_read_once_and_each_change_is_seen(tmp_path: Path) -> None:
    store = RecordStore(tmp_path, boot_id="b")
    book, other = PoolBook(store), PoolBook(store)
    assert book.all() == {}
    other.note(7, SeenPool("cold", "cold"))
    assert book.all() == {7: SeenPool("cold", "cold")}
    other.note(8, SeenPool("cold", "cold"))
    assert book.all().keys() == {7, 8}, "written just after the last look"
    aged(tmp_path)
    book.all()
    reads = store.get = Mock(wraps=store.get)  # type: ignore[method-assign]
    assert book.all().keys() == {7, 8}
    assert not reads.called
    book.all().clear()
    assert book.all().keys() == {7, 8}
    other.note(9, SeenPool("warm", "warm"))
    assert book.all().keys() == {7, 8, 9}
    aged(tmp_path)
    store.drop("9")
    assert book.all().keys() == {7, 8}


def test_one_that_cannot_be_read_is_tried_again(tmp_path: Path) -> None:
    book = PoolBook(RecordStore(tmp_path, boot_id="b"))
    book.note(7, SeenPool("cold", "cold"))
    whole = (tmp_path / "7").read_text()
    (tmp_path / "7").write_text("no lease")
    aged(tmp_path)
    assert book.all() == {}
    (tmp_path / "7").write_text(whole)
    aged(tmp_path)
    assert book.all().keys() == {7}
