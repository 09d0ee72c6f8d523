"""The program that looks up a moment: what it finds in a store, and the errors that it tells."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.blockstore.test_kept_moments import NOON, filled
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore import find_moment, server
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store, read_newest_root, read_superblock
from zvault.core.policy.retention import KeepRules

WORDS = ("bucket=zv", "key=vault", "readonly=yes")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore()
    monkeypatch.setattr(server, "reach_store", lambda *_: SimpleNamespace(bare=made))
    monkeypatch.setattr(find_moment, "drop_server_rights", lambda _: [])
    return made


def test_the_last_moment_up_to_a_time(store: MemoryStore, tmp_path: Path) -> None:
    ticks = iter(range(1000))
    options = EngineOptions(
        tmp_path / "journal", uploads=0, history=KeepRules(last=9), clock=lambda: NOON + next(ticks) * 1200
    )
    create_store(store, "vault", 1 << 20)
    filled(store, options, 5)
    past = read_newest_root(store, "vault", read_superblock(store, "vault")).past
    assert len(past) > 2
    for before, after in itertools.pairwise(past):
        expected = {"epoch": before.epoch, "number": before.number, "taken": before.taken}
        assert find_moment.find_moment(after.taken - 1, WORDS) == expected
        assert find_moment.find_moment(before.taken, WORDS) == expected
    early = find_moment.find_moment(past[0].taken - 1, WORDS)["error"]
    assert early["kind"] == "NotFound"
    assert "the oldest that is kept is of" in early["why"]


def test_where_nothing_is_kept_or_nothing_is_there(store: MemoryStore) -> None:
    assert find_moment.find_moment(NOON, WORDS)["error"]["kind"] == "NotFound"
    create_store(store, "vault", 1 << 20)
    assert find_moment.find_moment(NOON, WORDS)["error"]["why"] == "no moment of its past is kept"


def test_words_that_are_none() -> None:
    assert find_moment.find_moment(NOON, ["nonsense"])["error"]["kind"] == "ConfigError"
