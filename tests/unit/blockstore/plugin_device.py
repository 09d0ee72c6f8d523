"""What nbdkit calls of the plugin, on an engine and a store in memory."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore import reached_store, server
from zvault.blockstore.reached_store import ReachedStore
from zvault.blockstore.server import ServedDevice
from zvault.object_store.interface import Buffer, StoreUnreachable
from zvault.object_store.metered_store import MeteredStore
from zvault.object_store.retrying_store import RetryingStore

PLUGIN = Path(server.__file__).with_name("nbdkit_plugin.py")
SIZE = 64 << 20
NBDKIT = {
    "THREAD_MODEL_PARALLEL": 3,
    "FUA_NONE": 0,
    "FUA_NATIVE": 2,
    "FLAG_FUA": 2,
    "FLAG_FAST_ZERO": 16,
    "EXTENT_HOLE": 1,
    "EXTENT_ZERO": 2,
}


class Outage(MemoryStore):
    """A store that can be out of reach."""

    away = False

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        if self.away:
            raise StoreUnreachable(f"{key} was not put", "it answers 503", "wait")
        return super().put(key, data, condition)


class Device:
    """A device as nbdkit has it: the plugin, with a store in memory behind it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.store = Outage()
        self.said: list[str] = []
        self.errors: list[int] = []
        self.encrypted = False
        stub = SimpleNamespace(set_error=self.errors.append, **NBDKIT)
        monkeypatch.setitem(sys.modules, "nbdkit", stub)
        # The plugin puts another in its place, for all of its process.
        monkeypatch.setattr(traceback, "format_exception", traceback.format_exception)
        self.plugin: Any = None

    def words(self, *more: str, size: int | None = SIZE) -> list[str]:
        sized = [f"size={size}"] if size is not None else []
        named = {word.partition("=")[0] for word in more}
        journal = [] if named & {"journal", "readonly"} else [f"journal={self.folder / 'journal'}"]
        return ["bucket=zv", "key=cold", *sized, *journal, f"status={self.folder / 'status'}", *more]

    def load(self, *more: str, size: int | None = SIZE) -> ServedDevice:
        """Begin anew with these words, up to where nbdkit attaches."""
        found = importlib.util.spec_from_file_location("plugin_of_nbdkit", PLUGIN)
        assert found is not None
        assert found.loader is not None
        self.plugin = importlib.util.module_from_spec(found)
        found.loader.exec_module(self.plugin)
        for word in self.words(*more, size=size):
            self.plugin.config(*word.split("=", 1))
        self.plugin.config_complete()
        (serving,) = self.plugin._serving
        counted = MeteredStore(self.store)
        patient = RetryingStore(counted, stopping=serving._stopping, say=self.said.append)
        serving._reached, serving._say = ReachedStore(patient, counted, counted), self.said.append
        if key := reached_store.read_encryption_key(serving.words.spec) if self.encrypted else None:
            objects = reached_store.encrypt_store(patient, "cold", key, self.said.append)
            serving._reached = ReachedStore(patient, counted, objects.over(counted), objects)
        return serving  # type: ignore[no-any-return]

    def serve(self, *more: str, size: int | None = SIZE) -> ServedDevice:
        """The same, attached and with a connection."""
        serving = self.load(*more, size=size)
        serving.begin()
        return self.plugin.open(False)  # type: ignore[no-any-return]

    def read(self, handle: ServedDevice, offset: int, length: int) -> bytes:
        buffer = bytearray(length)
        self.plugin.pread(handle, buffer, offset, 0)
        return bytes(buffer)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "status").read_text())
        return found


@pytest.fixture(name="device")
def device_for_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    it = Device(tmp_path, monkeypatch)
    yield it
    for serving in it.plugin._serving if it.plugin is not None else []:
        it.store.away = False
        serving._stopping.clear()
        if not serving._closed:
            serving.close()
