"""zvaultctl blockstore serve, with its object store in memory: what it becomes, and what it refuses."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.verbs.blockstore_places import (
    PLACE,
    configured,
    full_store,  # noqa: F401
    key_file,  # noqa: F401
    store_in_memory,  # noqa: F401
)
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.serve_options import ServeOptions
from zvault.devices.nbd.blockstore_server import PLUGIN


@pytest.fixture
def nbdkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """An nbdkit that has all plugins. Where this process would become another, that one's words are kept."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "nbdkit"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    became: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _file, argv: became.append(argv))
    umask = os.umask(0o022)
    os.umask(umask)
    yield became
    os.umask(umask)


def test_serve_becomes_a_server_that_only_reads(full: MemoryStore, ctl, nbdkit, tmp_path: Path):
    before = dict(full.objects)
    at = tmp_path / "cold.sock"
    said = ctl("blockstore", "serve", PLACE, "--socket", str(at)).out
    (argv,) = nbdkit
    assert argv[:3] == ["nbdkit", "-f", "-r"]
    assert argv[argv.index("-U") + 1] == str(at)
    words = ServeOptions.of(argv[argv.index(str(PLUGIN)) + 1 :])
    assert (words.readonly, words.create, words.status) == (True, False, None)
    assert str(words.spec) == PLACE
    assert os.umask(0o077) == 0o077, "its socket is for root alone"
    assert "serving s3://zv/cold at http://127.0.0.1:1 read-only" in said
    assert f"  nbd-client -unix {at} /dev/nbd" in said
    assert "  zpool import -f -o readonly=on -N -d /dev/nbd" in said
    assert "-t POOL POOL-view" in said
    assert ctl("blockstore", "serve", PLACE, "--socket", str(at), "-q").out == ""
    assert nbdkit == [argv, argv]
    dry = ctl("blockstore", "serve", PLACE, "--socket", str(at), "-n")
    assert (dry.code, dry.out) == (0, f"would run {shlex.join(argv)}\n")
    assert nbdkit == [argv, argv]
    assert full.objects == before


def test_serve_takes_no_place_that_is_taken(full: MemoryStore, ctl, nbdkit, tmp_path: Path):
    at = tmp_path / "cold.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(at))
        server.listen()
        said = ctl("blockstore", "serve", PLACE, "--socket", str(at))
        assert (said.code, "is in use" in said.err) == (2, True)
    assert nbdkit == []
    assert ctl("blockstore", "serve", PLACE, "--socket", str(at)).code == 0
    assert len(nbdkit) == 1
    assert not at.exists(), "nobody listened there any more"
    at.write_text("mine")
    said = ctl("blockstore", "serve", PLACE, "--socket", str(at))
    assert (said.code, "is no socket" in said.err, at.read_text()) == (2, True, "mine")


def test_serve_of_none_and_of_what_cannot_be_read(store: MemoryStore, ctl, nbdkit, tmp_path: Path):
    said = ctl("blockstore", "serve", PLACE, "--socket", str(tmp_path / "s"))
    assert (said.code, "there is no block store at cold" in said.err) == (2, True)
    ctl("blockstore", "create", PLACE, "--size", "1G", "-q")
    attach_store(store, "cold", quiet_options(EngineOptions(tmp_path / "journal", uploads=0)), "x").close()
    for key in [key for key in store.objects if "/checkpoints/" in key]:
        store.objects[key] = b"?"
    said = ctl("blockstore", "serve", PLACE, "--socket", str(tmp_path / "s"))
    assert (said.code, "is damaged" in said.err) == (1, True)
    assert nbdkit == []
    assert "--socket" in ctl("blockstore", "serve", PLACE).err


def test_serve_needs_nbdkit(full: MemoryStore, ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = ctl("blockstore", "serve", PLACE, "--socket", str(tmp_path / "s"))
    assert said.code == 1
    assert "nbdkit" in said.err


def test_serve_of_a_vault_leaves_its_servers_folders_alone(
    full: MemoryStore, ctl, nbdkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = f" mode=writeback journal={tmp_path}/j journal-size=1G cache={tmp_path}/c cache-size=1G uploads=2"
    configured(tmp_path, monkeypatch, own)
    said = ctl("blockstore", "serve", "cold", "--socket", "s").out
    (argv,) = nbdkit
    spec = ServeOptions.of(argv[argv.index(str(PLUGIN)) + 1 :]).spec
    assert (spec.mode, spec.folders, spec.uploads, spec.size) == ("strict", {}, 2, 1 << 30)
    assert "-t ice ice-view" in said
    assert f"-unix {Path.cwd() / 's'} " in said
