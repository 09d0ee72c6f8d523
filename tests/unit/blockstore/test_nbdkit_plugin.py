"""What nbdkit calls, on the engine and a store in memory; nbdkit itself runs it in the lab."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.api.conforms import wrong
from tests.unit.blockstore.plugin_device import (
    NBDKIT,
    SIZE,
    Device,
    device_for_test,  # noqa: F401
)
from zvault.api.blockstore import EngineStatus, StoreDocument
from zvault.blockstore import server
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.readonly_device import DeviceSuperseded
from zvault.blockstore.serve_options import make_engine_options
from zvault.config.device_specs.blockstore import BlockstoreServer, parse_blockstore
from zvault.core.errors import Refused, ZvaultError
from zvault.devices.nbd import blockstore_server


def within(seconds: float, look: Callable[[], bool]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_it_says_it_can(device: Device):
    handle = device.serve("create=yes")
    plugin = device.plugin
    assert plugin.API_VERSION == 2
    assert plugin.thread_model() == NBDKIT["THREAD_MODEL_PARALLEL"]
    assert plugin.can_fua(handle) == NBDKIT["FUA_NATIVE"]
    assert plugin.get_size(handle) == SIZE
    for can in ("write", "flush", "trim", "zero", "fast_zero", "multi_conn"):
        assert getattr(plugin, f"can_{can}")(handle) is True
    least, liked, most = plugin.block_size(handle)
    assert (least, most) == (1, 32 << 20)
    assert liked & (liked - 1) == 0


def test_it_reads_what_was_written_at_any_place(device: Device):
    handle = device.serve("create=yes")
    plugin = device.plugin
    plugin.pwrite(handle, memoryview(b"x" * 10_000), 4095, 0)
    plugin.zero(handle, 5000, 4097, 0)
    plugin.pwrite(handle, bytearray(b"end"), SIZE - 3, 0)
    plugin.trim(handle, 4096, 12288, 0)
    got = device.read(handle, 0, 16384)
    assert got == b"\0" * 4095 + b"xx" + b"\0" * 5000 + b"x" * (12288 - 9097) + b"\0" * 4096
    assert device.read(handle, SIZE - 4, 4) == b"\0end"


@pytest.mark.parametrize("ask", ["fua", "flush"])
def test_what_was_flushed_is_in_the_store(device: Device, ask: str):
    handle = device.serve("create=yes")
    device.plugin.pwrite(handle, b"a" * 8192, 0, NBDKIT["FLAG_FUA"] if ask == "fua" else 0)
    if ask == "flush":
        device.plugin.flush(handle, 0)
    stored = b"".join(data for key, data in device.store.objects.items() if "/segments/" in key)
    assert b"a" * 4096 in stored


def test_all_is_in_the_store_when_it_ends(device: Device, disk: Path):
    journal = disk / "journal"
    words = ("mode=writeback", f"journal={journal}", "create=yes")
    options = make_engine_options(parse_blockstore(f"zv/cold size=1T mode=writeback journal={journal}"))
    assert (options.mode, options.journal) == ("writeback", journal)
    handle = device.serve(*words)
    device.plugin.pwrite(handle, b"b" * 8192, 4096, 0)
    device.plugin.flush(handle, 0)
    assert device.status()["ready"]
    device.plugin.cleanup()
    told = device.status()
    assert (told["ready"], told["closed"], told["error"]) == (False, True, None)
    assert told["engine"]["journal_used"] < 4096

    handle = device.serve(*words)
    assert device.read(handle, 0, 16384) == b"\0" * 4096 + b"b" * 8192 + b"\0" * 4096


def test_the_status_has_what_the_daemon_tells(device: Device):
    handle = device.serve("create=yes")
    device.plugin.pwrite(handle, b"c" * 4096, 0, NBDKIT["FLAG_FUA"])
    handle.write_status()
    told = device.status()
    assert told["trouble"] is None
    assert told["engine"]["mode"] == "strict"
    assert told["engine"]["size"] == SIZE
    needed = {"journal_used", "journal_capacity", "live_bytes", "stored_bytes", "uploads_waiting", "fenced"}
    needed |= {"cache_hits", "cache_misses", "cache_used", "gc_moved_bytes", "written_bytes", "read_bytes"}
    assert needed <= set(told["engine"])
    assert told["requests"]["put"]["requests"] >= 2
    assert told["requests"]["put"]["bytes"] > 4096
    assert told["journal"] == str(device.folder / "journal")
    assert list(wrong(told["engine"], EngineStatus)) == []
    assert list(wrong(blockstore_server.make_store_document(told, time.time()), StoreDocument)) == []


def test_one_that_is_only_looked_at(device: Device, tmp_path: Path):
    writer, plugin = device.serve("create=yes"), device.plugin
    plugin.pwrite(writer, b"a" * 10_000, 4000, NBDKIT["FLAG_FUA"])
    before, taken = set(device.store.objects), device.store.objects["cold/epoch"]
    seen = device.serve("readonly=yes")
    assert device.plugin.get_size(seen) == SIZE
    for can in ("write", "flush", "trim", "zero", "fast_zero"):
        assert getattr(device.plugin, f"can_{can}")(seen) is False
    assert device.plugin.can_fua(seen) == NBDKIT["FUA_NONE"]
    assert device.plugin.can_multi_conn(seen) is True
    for write in (
        lambda: device.plugin.pwrite(seen, b"x" * 4096, 0, 0),
        lambda: device.plugin.zero(seen, 4096, 0, 0),
        lambda: device.plugin.trim(seen, 4096, 0, 0),
    ):
        with pytest.raises(Refused, match="cannot be written to"):
            write()
    assert set(device.store.objects) == before
    assert device.store.objects["cold/epoch"] == taken

    plugin.pwrite(writer, b"b" * 20_000, 0, NBDKIT["FLAG_FUA"])
    assert device.read(seen, 3999, 10_002) == b"\0" + b"a" * 10_000 + b"\0"
    seen.write_status()
    told = device.status()
    assert (told["ready"], told["trouble"], told["journal"]) == (True, None, None)
    assert (told["engine"]["mode"], told["engine"]["epoch"], told["engine"]["checkpoint"]) == (
        "readonly",
        1,
        1,
    )
    assert told["engine"]["read_bytes"] == 10_002
    assert list(wrong(told["engine"], EngineStatus)) == []
    assert list(wrong(blockstore_server.make_store_document(told, time.time()), StoreDocument)) == []
    assert abs(told["engine"]["as_of"] - time.time()) < 60
    assert told["requests"]["get"]["requests"] > 0
    assert "put" not in {kind for kind, count in told["requests"].items() if count["requests"]}
    assert [line for line in device.said if "read-only: checkpoint 1 of epoch 1 and 1 segment of log" in line]
    device.plugin.cleanup()
    assert device.status()["closed"]
    assert list(tmp_path.glob("journal/*")), "the writer's alone"
    writer.close()


def test_one_that_has_passed_says_so_once(device: Device):
    writer = device.serve("create=yes")
    device.plugin.pwrite(writer, b"p" * 8192, 0, NBDKIT["FLAG_FUA"])
    seen = device.serve("readonly=yes")
    assert isinstance(writer.device, BlockEngine)
    writer.device.discard(0, SIZE)
    writer.device.flush()
    for _ in range(3):
        writer.device.checkpoint()
    for _ in range(3):
        with pytest.raises(DeviceSuperseded, match="has passed") as caught:
            device.read(seen, 0, 8192)
    assert device.errors == [errno.EIO] * 3
    assert sum("has passed" in line for line in device.said) == 1
    assert device.read(seen, 8192, 4096) == bytes(4096)
    told = "".join(traceback.format_exception(caught.value))
    assert "another exception" not in told, "the unit's journal has words, and no story of each read"
    assert "direct cause" not in told
    assert "readonly_device.py" not in told
    seen.write_status()
    assert "attach it anew" in device.status()["trouble"]
    assert device.status()["engine"]["fenced"] is False
    writer.close()


def test_an_error_with_words_has_one_line_and_a_fault_its_traceback_however_it_is_asked_for(device: Device):
    """Python's own libraries call it with the error alone; nbdkit with its kind, itself and its traceback."""
    device.load("create=yes")
    for error in (Refused("no", "none", ""), ValueError("a fault")):
        try:
            raise error
        except Exception as caught:
            forms = [
                traceback.format_exception(caught),
                traceback.format_exception(caught, limit=2),
                traceback.format_exception(type(caught), caught, caught.__traceback__),
                traceback.format_exception(type(caught), value=caught, tb=caught.__traceback__),
            ]
        for lines in forms:
            assert (len(lines) == 1) == isinstance(error, ZvaultError)
            assert str(error) in lines[-1]


def test_one_for_a_copy_that_is_thrown_away_goes_on_with_the_writer(device: Device, tmp_path: Path):
    cache = (f"cache={tmp_path / 'cache'}", "cache-size=64M")
    writer = device.serve("create=yes", *cache)
    device.plugin.pwrite(writer, b"p" * 8192, 0, NBDKIT["FLAG_FUA"])
    seen = device.serve("readonly=yes", "latest=yes", *cache)
    assert device.plugin.can_write(seen) is False
    assert isinstance(writer.device, BlockEngine)
    device.plugin.pwrite(writer, b"q" * 8192, 0, NBDKIT["FLAG_FUA"])
    for _ in range(3):
        writer.device.checkpoint()
    assert device.read(seen, 0, 8192) in (b"p" * 8192, b"q" * 8192)
    writer.device.discard(0, SIZE)
    writer.device.flush()
    for _ in range(3):
        writer.device.checkpoint()
    assert device.read(seen, 4096, 8192)[4096:] == bytes(4096)
    assert device.errors == []
    seen.write_status()
    told = device.status()
    assert (told["ready"], told["trouble"], told["engine"]["mode"]) == (True, None, "readonly")
    assert list(wrong(told["engine"], EngineStatus)) == []
    device.plugin.cleanup()
    assert device.status()["closed"]
    writer.close()


def test_a_second_server_takes_it_and_the_first_fails_loudly(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def often(spec: BlockstoreServer) -> EngineOptions:
        return replace(make_engine_options(spec), watch=0.1)

    monkeypatch.setattr(server, "make_engine_options", often)
    handle, plugin = device.serve("create=yes"), device.plugin
    plugin.pwrite(handle, b"e" * 4096, 0, NBDKIT["FLAG_FUA"])
    device.serve(f"journal={tmp_path / 'other'}")

    def refused() -> bool:
        try:
            plugin.pwrite(handle, b"f" * 4096, 0, NBDKIT["FLAG_FUA"])
        except ZvaultError:
            return True
        return False

    within(20, refused)
    assert device.errors == [errno.EIO]
    told = handle.status()
    assert told["engine"]["fenced"] is True
    assert told["trouble"]
    with pytest.raises(ZvaultError):
        handle.close()
    handle._closed = True


def test_an_outage_is_told_and_what_could_not_be_put_away_is_an_error(
    device: Device, monkeypatch: pytest.MonkeyPatch, disk: Path
):
    handle = device.serve("mode=writeback", f"journal={disk / 'journal'}", "create=yes")
    device.store.away = True
    device.plugin.pwrite(handle, b"g" * 8192, 0, NBDKIT["FLAG_FUA"])
    monkeypatch.setattr(server, "CLOSE_SECONDS", 3.0)
    with pytest.raises(ZvaultError):
        handle.close()
    told = device.status()
    assert not told["closed"]
    assert "503" in told["trouble"]
    assert told["error"]["what"]
    assert told["engine"]["journal_used"] >= 8192

    device.store.away = False
    handle._closed = True
    again = device.serve("mode=writeback", f"journal={disk / 'journal'}")
    assert device.read(again, 0, 8192) == b"g" * 8192


def test_the_status_goes_on_by_itself(device: Device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "STATUS_FILE_INTERVAL", 0.05)
    device.serve("create=yes")
    first = device.status()["at"]
    within(10, lambda: device.status()["at"] > first)


def test_it_tells_where_it_holds_something(device: Device):
    handle = device.serve("create=yes")
    plugin = device.plugin
    assert plugin.can_extents(handle)
    assert plugin.extents(handle, SIZE, 0, 0) == [(0, SIZE, 3)], "a new one is one hole"
    plugin.pwrite(handle, b"x" * 8192, 1 << 20, 0)
    plugin.pwrite(handle, b"y" * 100, (2 << 20) + 50, 0)
    told = plugin.extents(handle, SIZE, 0, 0)
    holds = [(1 << 20, 8192), (2 << 20, 4096)]
    assert [(begin, length) for begin, length, kind in told if not kind] == holds
    assert sum(length for _, length, _ in told) == SIZE
    assert plugin.extents(handle, 1000, (1 << 20) + 500, 0) == [((1 << 20) + 500, 1000, 0)]
    plugin.zero(handle, 8192, 1 << 20, 0)
    assert plugin.extents(handle, 2 << 20, 0, 0) == [(0, 2 << 20, 3)]


def test_zeroes_are_fast_only_where_nothing_has_to_be_read(device: Device):
    handle = device.serve("create=yes")
    plugin, fast = device.plugin, NBDKIT["FLAG_FAST_ZERO"]
    plugin.pwrite(handle, b"x" * 8192, 0, 0)
    for count, offset in ((100, 0), (4096, 50), (4000, 4096)):
        with pytest.raises(Refused):
            plugin.zero(handle, count, offset, fast)
    assert device.errors == [errno.EOPNOTSUPP] * 3
    assert device.read(handle, 0, 8192) == b"x" * 8192
    plugin.zero(handle, 4096, 4096, fast)
    assert device.read(handle, 0, 8192) == b"x" * 4096 + bytes(4096)
