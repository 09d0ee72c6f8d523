"""What nbdkit calls, on the engine and a store in memory; nbdkit itself runs it in the lab."""

from __future__ import annotations

import errno
import importlib.util
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.api.conforms import wrong
from tests.unit.object_store.memory_store import MemoryStore
from zvault.api.blockstore import EngineStatus, StoreDocument
from zvault.blockstore import reach, serve_options, server
from zvault.blockstore.engine import Engine
from zvault.blockstore.options import Options
from zvault.blockstore.position import WentBack
from zvault.blockstore.reach import ReachedStore
from zvault.blockstore.readonly import Superseded
from zvault.blockstore.recovery import create
from zvault.blockstore.serve_options import ServeOptions, file_system, options_of
from zvault.blockstore.server import ServedDevice
from zvault.config.device_specs.blockstore import BlockstoreServer, parse_blockstore
from zvault.core.errors import Busy, ConfigError, NotFound, Refused, ZvaultError
from zvault.devices.nbd import blockstore_server
from zvault.object_store.interface import Buffer, Unreachable
from zvault.object_store.metered import MeteredStore
from zvault.object_store.retrying import RetryingStore

PLUGIN = Path(server.__file__).with_name("nbdkit_plugin.py")
ROOT = PLUGIN.parents[2]
SIZE = 64 << 20

NBDKIT = {"THREAD_MODEL_PARALLEL": 3, "FUA_NONE": 0, "FUA_NATIVE": 2, "FLAG_FUA": 2}


class Outage(MemoryStore):
    """A store that can be out of reach."""

    away = False

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        if self.away:
            raise Unreachable(f"{key} was not put", "it answers 503", "wait")
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
        if key := reach.encryption_key(serving.words.spec) if self.encrypted else None:
            objects = reach.encrypted_store(patient, "cold", key, self.said.append)
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


def within(seconds: float, look: Callable[[], bool]) -> None:
    """Wait until it is so."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    it = Device(tmp_path, monkeypatch)
    yield it
    for serving in it.plugin._serving if it.plugin is not None else []:
        it.store.away = False
        serving._stopping.clear()
        if not serving._closed:
            serving.close()


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


def test_all_is_in_the_store_when_it_ends(device: Device, tmp_path: Path):
    journal = tmp_path / "disk"
    words = ("mode=writeback", f"journal={journal}", "create=yes")
    options = options_of(parse_blockstore(f"zv/cold size=1T mode=writeback journal={journal}"))
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
    assert list(wrong(blockstore_server.document(told, time.time()), StoreDocument)) == []


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
    assert list(wrong(blockstore_server.document(told, time.time()), StoreDocument)) == []
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
    assert isinstance(writer.device, Engine)
    writer.device.discard(0, SIZE)
    writer.device.flush()
    for _ in range(3):
        writer.device.checkpoint()
    for _ in range(3):
        with pytest.raises(Superseded, match="has passed") as caught:
            device.read(seen, 0, 8192)
    assert device.errors == [errno.EIO] * 3
    assert sum("has passed" in line for line in device.said) == 1
    assert device.read(seen, 8192, 4096) == bytes(4096)
    told = "".join(traceback.format_exception(caught.value))
    assert "another exception" not in told, "the unit's journal has words, and no story of each read"
    assert "direct cause" not in told
    assert "readonly.py" not in told
    seen.write_status()
    assert "attach it anew" in device.status()["trouble"]
    assert device.status()["engine"]["fenced"] is False
    writer.close()


def test_one_for_a_copy_that_is_thrown_away_goes_on_with_the_writer(device: Device, tmp_path: Path):
    cache = (f"cache={tmp_path / 'cache'}", "cache-size=64M")
    writer = device.serve("create=yes", *cache)
    device.plugin.pwrite(writer, b"p" * 8192, 0, NBDKIT["FLAG_FUA"])
    seen = device.serve("readonly=yes", "latest=yes", *cache)
    assert device.plugin.can_write(seen) is False
    assert isinstance(writer.device, Engine)
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


def test_a_cache_that_the_writer_has_is_refused(device: Device, tmp_path: Path):
    cache = (f"cache={tmp_path / 'cache'}", "cache-size=64M")
    writer = device.serve("create=yes", *cache)
    with pytest.raises(Busy, match=f"the cache in {tmp_path / 'cache'} is in use") as caught:
        device.load("readonly=yes", *cache).begin()
    assert "a folder of its own" in caught.value.next
    assert device.status()["error"]["kind"] == "Busy"
    device.plugin.pwrite(writer, b"c" * 8192, 0, NBDKIT["FLAG_FUA"])
    writer.close()
    for hits in (0, 1):
        seen = device.serve("readonly=yes", *cache)
        assert device.read(seen, 0, 8192) == b"c" * 8192
        seen.write_status()
        assert device.status()["engine"]["cache_hits"] == hits
        device.plugin.cleanup()


def test_there_is_none_to_look_at(device: Device):
    with pytest.raises(NotFound, match="there is no block store in s3://zv/cold"):
        device.load("readonly=yes").begin()
    assert device.store.objects == {}


def test_there_is_none_and_nobody_said_that_one_is_to_be_made(device: Device):
    serving = device.load()
    with pytest.raises(NotFound, match="there is no block store in s3://zv/cold") as caught:
        serving.begin()
    assert "zvaultctl vault create" in caught.value.next
    assert device.store.objects == {}
    told = device.status()
    assert not told["ready"]
    assert told["error"]["kind"] == "NotFound"
    assert told["error"]["next"] == caught.value.next


def test_an_encrypted_one_is_used_and_never_made(device: Device, tmp_path: Path):
    file = tmp_path / "key"
    word = f"encryption-key={file}"
    serving = device.load("create=yes", word)
    with pytest.raises(NotFound, match="cannot be read"):
        serving.take_key()
    assert device.status()["error"]["kind"] == "NotFound"
    file.write_text("ab" * 32)
    device.encrypted = True
    serving = device.load("create=yes", word)
    with pytest.raises(Refused, match="no encrypted block store is made") as caught:
        serving.begin()
    assert "zvaultctl blockstore create" in caught.value.next
    assert device.store.objects == {}
    key = reach.encryption_key(serving.words.spec)
    assert key is not None
    create(reach.encrypted_store(device.store, "cold", key, device.said.append), "cold", SIZE)
    handle = device.serve(word)
    device.plugin.pwrite(handle, b"what nobody reads" * 4096, 0, 0)
    device.plugin.flush(handle, 0)
    assert b"what nobody reads" not in b"".join(device.store.objects.values())
    assert device.read(handle, 0, 34) == b"what nobody reads" * 2
    assert "ab" * 32 not in json.dumps(device.status())
    device.plugin.cleanup()
    file.write_text("cd" * 32)
    with pytest.raises(Refused, match="cannot be opened with key"):
        device.serve(word)
    device.encrypted = False
    with pytest.raises(Refused, match="the block store is encrypted"):
        device.serve()


def test_one_that_is_there_is_used(device: Device):
    handle = device.serve("create=yes")
    device.plugin.pwrite(handle, b"d" * 4096, 0, 0)
    device.plugin.cleanup()
    handle = device.serve("create=yes", size=None)
    assert device.read(handle, 0, 4096) == b"d" * 4096


def test_one_that_went_back_is_refused_also_where_its_journal_is_gone(device: Device, tmp_path: Path):
    """As after a boot: the journal was in memory."""
    seen = f"seen={tmp_path / 'seen'}"
    handle = device.serve("create=yes", seen)
    device.plugin.pwrite(handle, b"d" * 4096, 0, 0)
    device.plugin.flush(handle, 0)
    older = dict(device.store.objects)
    device.plugin.pwrite(handle, b"e" * 4096, 0, 0)
    device.plugin.cleanup()
    device.store.objects = older
    serving = device.load(seen, f"journal={tmp_path / 'another'}")
    with pytest.raises(WentBack, match="older than this host knows it"):
        serving.begin()
    assert device.status()["error"]["kind"] == "WentBack"
    assert "--accept-rollback" in device.status()["error"]["next"]
    device.plugin = None


def test_one_that_is_to_be_made_needs_a_size(device: Device):
    serving = device.load("create=yes", size=None)
    with pytest.raises(Refused, match="its size is not known"):
        serving.begin()


def test_one_of_another_size_is_refused(device: Device):
    device.serve("create=yes")
    device.plugin.cleanup()
    serving = device.load(size=2 * SIZE)
    with pytest.raises(Refused, match="has 64M") as caught:
        serving.begin()
    assert caught.value.next == "write size=64M"


def test_a_second_server_takes_it_and_the_first_fails_loudly(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def often(spec: BlockstoreServer) -> Options:
        return replace(options_of(spec), watch=0.1)

    monkeypatch.setattr(server, "options_of", often)
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
    device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    handle = device.serve("mode=writeback", f"journal={tmp_path / 'disk'}", "create=yes")
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
    again = device.serve("mode=writeback", f"journal={tmp_path / 'disk'}")
    assert device.read(again, 0, 8192) == b"g" * 8192


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["size=lots"], "size must be a size"),
        (["sizes=1T"], "did you mean size="),
        (["mode=writeback"], "needs journal=/path"),
        (["readonly=1"], "must be yes or no"),
        (["readonly=yes"], "create=yes: what is made is written to"),
        (["latest=yes"], "needs readonly=yes"),
        (["latest=1"], "must be yes or no"),
    ],
)
def test_wrong_words_are_refused(words: list[str], why: str):
    with pytest.raises(ConfigError) as caught:
        ServeOptions.of(["bucket=zv", "key=cold", "status=/run/s", "create=yes", *words])
    assert why in caught.value.why


def test_a_server_that_cannot_begin_says_why_on_one_line_and_ends(tmp_path: Path):
    script = (
        "import importlib.util, sys, types\n"
        f"sys.modules['nbdkit'] = types.SimpleNamespace(**{NBDKIT!r})\n"
        f"found = importlib.util.spec_from_file_location('plugin', {str(PLUGIN)!r})\n"
        "plugin = importlib.util.module_from_spec(found)\n"
        "found.loader.exec_module(plugin)\n"
        "for word in sys.argv[1:]: plugin.config(*word.split('=', 1))\n"
        "plugin.config_complete()\n"
        "plugin.after_fork()\n"
    )

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        # From elsewhere, as nbdkit does: it finds zvault by itself.
        argv = [sys.executable, "-c", script, "bucket=zv", "key=cold", *words]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, env={})

    wrong = run("size=lots")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("nbdkit: error: the block store cannot be served so: size must be a size")
    assert wrong.stderr.count("\n") == 1
    nothing = run("credential=zvault.none", f"journal={tmp_path / 'j'}", f"status={tmp_path / 'status'}")
    assert nothing.returncode == 1
    assert "there is no credential zvault.none" in nothing.stderr
    assert nothing.stderr.count("\n") == 1
    assert json.loads((tmp_path / "status").read_text())["error"]["kind"] == "NotFound"


def test_a_journal_that_holds_what_is_nowhere_else_is_not_in_memory(tmp_path: Path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n"
        "tank/a /srv/with\\040space zfs rw 0 0\ntmpfs /srv tmpfs rw 0 0\n"
    )
    assert file_system(Path("/run/zvault/j"), mounts) == "tmpfs"
    assert file_system(Path("/runner"), mounts) == "ext4"
    assert file_system(Path("/srv/with space/j"), mounts) == "zfs"
    assert file_system(Path("/srv/j"), mounts) == "tmpfs"
    shm = parse_blockstore("zv/cold mode=writeback journal=/dev/shm/zvault-test")
    if file_system(Path("/dev/shm")) == "tmpfs":
        with pytest.raises(Refused, match="no place for a journal"):
            options_of(shm)


def test_a_journal_in_memory_leaves_memory_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    spec = parse_blockstore(f"zv/cold journal={tmp_path / 'not' / 'yet'} journal-size=1G")
    monkeypatch.setattr(serve_options, "file_system", lambda path: "tmpfs")
    for room, size in ((300 << 20, 150 << 20), (10 << 20, 64 << 20), (100 << 30, 1 << 30)):
        monkeypatch.setattr(serve_options, "free", lambda path, room=room: room)
        assert options_of(spec).journal_size == size
    monkeypatch.undo()
    assert serve_options.free(tmp_path / "not" / "yet") == pytest.approx(
        serve_options.free(tmp_path), rel=0.1
    )


def test_the_status_goes_on_by_itself(device: Device, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "EVERY", 0.05)
    device.serve("create=yes")
    first = device.status()["at"]
    within(10, lambda: device.status()["at"] > first)
