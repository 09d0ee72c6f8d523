"""Block stores in memory, where zvaultctl finds them by the name of a place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.cli.verbs import blockstore_place
from zvault.config import paths
from zvault.object_store.interface import StoreError

PLACE = "zvault:zv/cold endpoint=http://127.0.0.1:1"
OTHER = "zvault:zv/warm endpoint=http://127.0.0.1:1"


@pytest.fixture(name="store")
def store_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    it = MemoryStore()
    monkeypatch.setattr(blockstore_place, "find_positions_folder", lambda: tmp_path / "seen")
    monkeypatch.setattr(blockstore_place, "reach_bare_objects", lambda _place: it)
    monkeypatch.setattr(blockstore_place, "reach_writers_bucket", lambda _place: it)
    monkeypatch.setattr(blockstore_place, "find_lease_holder", lambda _place: (None, False))
    return it


@pytest.fixture(name="full")
def full_store(store: MemoryStore, ctl, tmp_path) -> MemoryStore:
    """With garbage, and a log after its checkpoint."""
    assert ctl("blockstore", "create", PLACE, "--size", "1G", "-q").code == 0
    engine = attach_store(
        store, "cold", quiet_options(EngineOptions(tmp_path / "journal", uploads=0)), "filer1, process 7"
    )
    for tag in range(5):
        engine.write(0, bytes([tag + 1]) * 300 * BLOCK_SIZE)
        engine.write((1000 + 50 * tag) * BLOCK_SIZE, b"x" * 50 * BLOCK_SIZE)
        engine.flush()
        engine.checkpoint()
    engine.write(0, b"y" * BLOCK_SIZE)
    engine.flush()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    return store


@pytest.fixture(name="key")
def key_file(tmp_path: Path) -> Path:
    """A file with a key to an encrypted store."""
    file = tmp_path / "key"
    file.write_text("12" * 32 + "\n")
    return file


def configured(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str = "") -> None:
    """A vault 'cold' with a block store, and another device."""
    text = '[vault.cold]\npool = "ice"\n'
    text += (
        f'[[vault.cold.device]]\nnbd = "{PLACE} size=1G{words}"\nprices = {{ put = 0.005, get = 0.0004 }}\n'
    )
    text += '[[vault.cold.device]]\nnbd = "unix:/run/other.sock"\n'
    (folder / "zvault.toml").write_text(text)
    profiles = Path(__file__).parents[4] / "config" / "profiles"
    monkeypatch.setattr(paths.Paths.__init__, "__defaults__", (folder, folder, folder, profiles))
