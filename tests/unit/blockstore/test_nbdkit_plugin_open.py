"""Which block stores nbdkit's plugin opens, makes or refuses, and what it says of those."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.blockstore.plugin_device import (
    NBDKIT,
    PLUGIN,
    SIZE,
    Device,
    device_for_test,  # noqa: F401
)
from zvault.blockstore import reached_store, serve_options
from zvault.blockstore.known_position import StoreWentBack
from zvault.blockstore.recovery import create_store
from zvault.blockstore.serve_options import ServeOptions, find_file_system, make_engine_options
from zvault.config.device_specs.blockstore import parse_blockstore
from zvault.core.errors import Busy, ConfigError, NotFound, Refused, ZvaultError


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
    key = reached_store.read_encryption_key(serving.words.spec)
    assert key is not None
    create_store(reached_store.encrypt_store(device.store, "cold", key, device.said.append), "cold", SIZE)
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
    with pytest.raises(StoreWentBack, match="older than this host knows it"):
        serving.begin()
    assert device.status()["error"]["kind"] == "StoreWentBack"
    assert "--accept-rollback" in device.status()["error"]["next"]
    device.plugin = None


def test_one_that_is_to_stop_waits_no_more_for_a_store_that_it_has_not_attached(device: Device) -> None:
    """Else systemd had to kill it after eleven minutes: it had nothing to put away."""
    device.serve("create=yes").close()
    serving, errors = device.load(), list[ZvaultError]()

    def begin() -> None:
        try:
            serving.begin()
        except ZvaultError as error:
            errors.append(error)

    device.store.away = True
    attaching = threading.Thread(target=begin)
    attaching.start()
    eventually_said = time.monotonic() + 60
    while not any("waiting for the object store" in line for line in device.said):
        assert time.monotonic() < eventually_said
        time.sleep(0.05)
    serving.give_up_attaching()
    attaching.join(30)
    assert not attaching.is_alive()
    (error,) = errors
    assert "503" in error.why
    assert device.status()["error"]["kind"] == "StoreUnreachable"


def test_one_that_is_told_to_stop_as_it_attaches_has_patience_to_put_all_away(device: Device) -> None:
    serving = device.load("create=yes")
    serving.give_up_attaching()
    serving.begin()
    assert not serving._stopping.is_set()
    serving.give_up_attaching()
    assert not serving._stopping.is_set()


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
        f"sys.modules['nbdkit'] = types.SimpleNamespace(shutdown=None, **{NBDKIT!r})\n"
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
    assert find_file_system(Path("/run/zvault/j"), mounts) == "tmpfs"
    assert find_file_system(Path("/runner"), mounts) == "ext4"
    assert find_file_system(Path("/srv/with space/j"), mounts) == "zfs"
    assert find_file_system(Path("/srv/j"), mounts) == "tmpfs"
    shm = parse_blockstore("zv/cold mode=writeback journal=/dev/shm/zvault-test")
    if find_file_system(Path("/dev/shm")) == "tmpfs":
        with pytest.raises(Refused, match="no place for a journal"):
            make_engine_options(shm)


def test_a_journal_in_memory_leaves_memory_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    spec = parse_blockstore(f"zv/cold journal={tmp_path / 'not' / 'yet'} journal-size=1G")
    monkeypatch.setattr(serve_options, "find_file_system", lambda path: "tmpfs")
    for room, size in ((300 << 20, 150 << 20), (10 << 20, 64 << 20), (100 << 30, 1 << 30)):
        monkeypatch.setattr(serve_options, "measure_free_space", lambda path, room=room: room)
        assert make_engine_options(spec).journal_size == size
    monkeypatch.undo()
    assert serve_options.measure_free_space(tmp_path / "not" / "yet") == pytest.approx(
        serve_options.measure_free_space(tmp_path), rel=0.1
    )
