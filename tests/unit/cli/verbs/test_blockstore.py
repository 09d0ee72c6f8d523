"""zvaultctl blockstore, with its object store in memory: what it says, in which form, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK
from zvault.blockstore.maintenance.repair import quiet
from zvault.blockstore.options import Options
from zvault.blockstore.serve_options import ServeOptions
from zvault.cli.verbs import blockstore_place
from zvault.config import paths
from zvault.devices.nbd.blockstore_server import PLUGIN
from zvault.object_store.interface import StoreError

PLACE = "zvault:zv/cold endpoint=http://127.0.0.1:1"
OTHER = "zvault:zv/warm endpoint=http://127.0.0.1:1"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    it = MemoryStore()
    monkeypatch.setattr(blockstore_place, "positions", lambda: tmp_path / "seen")
    monkeypatch.setattr(blockstore_place, "reach_bare", lambda _place: it)
    monkeypatch.setattr(blockstore_place, "holder", lambda _place: None)
    return it


@pytest.fixture
def full(store: MemoryStore, ctl, tmp_path) -> MemoryStore:
    """With garbage, and a log after its checkpoint."""
    assert ctl("blockstore", "create", PLACE, "--size", "1G", "-q").code == 0
    engine = attach(store, "cold", quiet(Options(tmp_path / "journal", uploads=0)), "filer1, process 7")
    for tag in range(5):
        engine.write(0, bytes([tag + 1]) * 300 * BLOCK)
        engine.write((1000 + 50 * tag) * BLOCK, b"x" * 50 * BLOCK)
        engine.flush()
        engine.checkpoint()
    engine.write(0, b"y" * BLOCK)
    engine.flush()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    return store


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file with a key to an encrypted store."""
    file = tmp_path / "key"
    file.write_text("12" * 32 + "\n")
    return file


def test_an_encrypted_store_from_its_making_to_another_key(
    store: MemoryStore, ctl, key: Path, tmp_path: Path
):
    place = f"{PLACE} encryption-key={key}"
    made = ctl("blockstore", "create", place, "--size", "1G")
    assert made.code == 0
    (recovery,) = re.findall(r"recovery key: (zvault-recovery-[a-z0-9-]+)", made.out.lower())
    assert ctl("blockstore", "create", place, "--size", "1G").code == 2
    assert "recovery" not in ctl("blockstore", "info", place).out
    told = ctl("blockstore", "info", PLACE)
    assert told.code != 0
    assert "the block store is encrypted" in told.err
    assert "encryption-key=" in told.err

    other = tmp_path / "other"
    other.write_text("34" * 32)
    wrong = ctl("blockstore", "info", f"{PLACE} encryption-key={other}")
    assert wrong.code == 2
    assert "cannot be opened with key" in wrong.err
    assert "34" * 32 not in wrong.err

    before = dict(store.objects)
    assert ctl("blockstore", "rotate-key", place, "-n").code == 0
    assert store.objects == before
    found = json.loads(ctl("blockstore", "rotate-key", place, "-j").out)
    assert (found["data_keys"], found["recovery_key"]) == (2, None)
    said = ctl("blockstore", "rotate-key", place, "--to", str(other))
    assert said.code == 0
    assert ctl("blockstore", "info", place).code == 2
    assert ctl("blockstore", "info", f"{PLACE} encryption-key={other}").code == 0

    key.write_text(recovery)
    assert ctl("blockstore", "info", place).code == 0
    assert ctl("blockstore", "rotate-key", place).code == 2, "an owner's key is needed"
    third = tmp_path / "third"
    third.write_text("56" * 32)
    again = ctl("blockstore", "rotate-key", place, "--to", str(third), "--new-recovery-key")
    assert "recovery key: zvault-recovery-" in again.out.lower()
    assert ctl("blockstore", "info", place).code == 2, "the old recovery key"
    assert ctl("blockstore", "info", f"{PLACE} encryption-key={third}").code == 0


def test_keys_that_are_not_there(store: MemoryStore, ctl, tmp_path: Path):
    place = f"{PLACE} encryption-key={tmp_path / 'none'}"
    said = ctl("blockstore", "create", place, "--size", "1G")
    assert said.code == 2
    assert "cannot be read" in said.err
    assert store.objects == {}
    assert ctl("blockstore", "rotate-key", PLACE).code == 2
    both = ctl("blockstore", "info", f"{place} encryption-credential=x")
    assert "leave one" in both.err


def test_a_key_that_a_program_prints(store: MemoryStore, ctl, tmp_path: Path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho " + "ab" * 32 + "\n")
    program.chmod(0o700)
    place = f"{PLACE} encryption-command={program}"
    assert ctl("blockstore", "create", place, "--size", "1G").code == 0
    assert ctl("blockstore", "info", place).code == 0
    program.write_text("#!/bin/sh\necho it is locked >&2\nexit 3\n")
    said = ctl("blockstore", "info", place)
    assert said.code != 0
    assert "it is locked" in said.err


def test_a_copy_is_encrypted_where_its_place_says_so(full: MemoryStore, ctl, key: Path):
    there = f"{OTHER} encryption-key={key}"
    said = ctl("blockstore", "copy", PLACE, there)
    assert said.code == 0, said.err
    assert "recovery key: zvault-recovery-" in said.out.lower()
    assert ctl("blockstore", "check", there, "--all").code == 0
    assert ctl("blockstore", "check", OTHER, "--all").code != 0
    assert b"x" * 64 not in b"".join(data for name, data in full.objects.items() if name.startswith("warm/"))


def break_slot(store: MemoryStore) -> str:
    key = [key for key in sorted(store.objects) if "/segments/" in key][-2]
    data = bytearray(store.objects[key])
    data[5 * (BLOCK + 8)] ^= 1
    store.objects[key] = bytes(data)
    return key


def test_create_makes_one_and_no_second(store: MemoryStore, ctl):
    said = ctl("blockstore", "create", PLACE, "--size", "10T", "-n")
    assert (said.code, store.objects) == (0, {})
    assert "would make a block store of 10T in s3://zv/cold at http://127.0.0.1:1" in said.out
    said = ctl("blockstore", "create", PLACE, "--size", "10T")
    assert said.code == 0
    assert set(store.objects) == {"cold/store"}
    again = ctl("blockstore", "create", PLACE, "--size", "10T")
    assert again.code == 2
    assert "there is no new block store made" in again.err
    assert ctl("blockstore", "create", PLACE, "--size", "10T", "-n").code == 2


def test_create_wants_a_size_that_can_be(store: MemoryStore, ctl):
    assert "how large" in ctl("blockstore", "create", PLACE).err
    assert ctl("blockstore", "create", PLACE, "--size", "much").code == 2
    assert ctl("blockstore", "create", f"{PLACE} size=2T", "--size", "1T").code == 2
    assert store.objects == {}
    said = ctl("blockstore", "create", f"{PLACE} size=2T", "-j")
    assert json.loads(said.out)["size"] == 2 << 40


@pytest.mark.parametrize(
    "place", ["zvault:", "zvault:zv", "zvault:zv/cold color=red", "zvault:zv/c secret-key=x"]
)
def test_a_place_that_is_none_is_told(store: MemoryStore, ctl, place: str):
    said = ctl("blockstore", "info", place)
    assert said.code == 2
    assert "is no place of a block store" in said.err


def test_nothing_there(store: MemoryStore, ctl):
    for verb in (["info", PLACE], ["check", PLACE], ["gc", PLACE], ["copy", PLACE, OTHER]):
        said = ctl("blockstore", *verb)
        assert said.code == 2
        assert "there is no block store" in said.err


def test_info(full: MemoryStore, ctl):
    said = ctl("blockstore", "info", PLACE)
    assert said.code == 0
    assert re.search(r"live: 2\.15M", said.out)
    assert "writer: filer1, process 7 (epoch 1" in said.out
    assert "log since: 1 segment," in said.out
    row = ctl("blockstore", "info", PLACE, "-H", "-p", "-o", "size,live,epoch,log").cells
    assert row == [[str(1 << 30), str(550 * BLOCK), "1", "1"]]
    found = json.loads(ctl("blockstore", "info", PLACE, "-j").out)
    assert found["output_version"]["command"] == "zvaultctl blockstore info"
    assert found["live_bytes"] == 550 * BLOCK
    assert found["dead_bytes"] > found["live_bytes"]


def test_check_of_a_sound_store(full: MemoryStore, ctl):
    before = dict(full.objects)
    said = ctl("blockstore", "check", PLACE, "--all")
    assert said.code == 0, said
    assert "state: all is well" in said.out
    assert ctl("blockstore", "check", PLACE, "-q").out == ""
    found = json.loads(ctl("blockstore", "check", PLACE, "--all", "-j").out)
    assert (found["well"], found["problems"], found["lost"]) == (True, [], [])
    assert found["read_segments"] == found["segments"]
    assert ctl("blockstore", "check", PLACE, "--sample", "half").code == 2
    assert ctl("blockstore", "check", PLACE, "--sample", "0.5").code == 0
    assert full.objects == before


def test_check_names_what_is_damaged(full: MemoryStore, ctl):
    key = break_slot(full)
    said = ctl("blockstore", "check", PLACE, "--all")
    assert said.code == 1
    assert key in said.out
    assert "zpool scrub" in said.out
    found = json.loads(ctl("blockstore", "check", PLACE, "--all", "-j").out)
    assert found["lost"] == [[5 * BLOCK, BLOCK]]
    assert ctl("blockstore", "check", PLACE, "--all", "-H").cells[0][:2] == ["slots", key]


def test_repair_is_only_shown_without_yes(full: MemoryStore, ctl):
    full.put("cold/maps/0000000001-00000000", b"stray")
    before = dict(full.objects)
    for flags in (["--repair"], ["--repair", "--yes", "-n"]):
        said = ctl("blockstore", "check", PLACE, *flags)
        assert said.code == 0
        assert "nothing is repaired" in said.err
        assert "cold/maps/0000000001-00000000" in said.out
    assert full.objects == before


def test_repair_repairs_the_map(full: MemoryStore, ctl):
    maps = [key for key in sorted(full.objects) if "/maps/" in key]
    for key in maps[:-1]:
        full.objects[key] = b"\0" + full.objects[key][1:]
    del full.objects[maps[-1]]
    said = ctl("blockstore", "check", PLACE)
    assert said.code == 1
    assert maps[-1] in said.out
    said = ctl("blockstore", "check", PLACE, "--repair", "--yes", "--doubtful", "data")
    assert said.code == 0
    assert "rebuilt parts of the map from the segments: 1" in said.out
    said = ctl("blockstore", "check", PLACE, "--all")
    assert (said.code, "all is well" in said.out) == (0, True), said


def test_repair_tells_what_stays_lost(full: MemoryStore, ctl):
    key = break_slot(full)
    full.put("cold/maps/0000000001-00000000", b"stray")
    said = ctl("blockstore", "check", PLACE, "--all", "--repair", "--yes")
    assert said.code == 1
    assert key in said.out.partition("what stays:")[2]
    assert "cold/maps/0000000001-00000000" not in full.objects


def test_nobody_is_shut_out_by_mistake(full: MemoryStore, ctl, monkeypatch: pytest.MonkeyPatch):
    full.put("cold/maps/0000000001-00000000", b"stray")
    before = dict(full.objects)
    monkeypatch.setattr(
        blockstore_place, "holder", lambda _place: "filer1 (10.0.0.7) has held it since yesterday"
    )
    for verb in (["gc", PLACE], ["gc", PLACE, "--yes"], ["check", PLACE, "--repair", "--yes"]):
        said = ctl("blockstore", *verb)
        assert said.code == 2
        assert "filer1 (10.0.0.7) has held it" in said.err
    monkeypatch.setattr(blockstore_place, "holder", lambda _place: "")
    said = ctl("blockstore", "gc", PLACE)
    assert said.code == 2
    assert "cannot be told" in said.err
    assert full.objects == before
    assert ctl("blockstore", "gc", PLACE, "--yes").code == 0


def test_gc(full: MemoryStore, ctl):
    size = sum(map(len, full.objects.values()))
    said = ctl("blockstore", "gc", PLACE, "-n")
    assert "could be removed" in said.out
    assert sum(map(len, full.objects.values())) == size
    found = json.loads(ctl("blockstore", "gc", PLACE, "-j").out)
    assert found["after"] <= 1.1 * found["live"]
    assert sum(map(len, full.objects.values())) < size / 2
    assert ctl("blockstore", "check", PLACE, "--all").code == 0
    assert "freed 0B" in ctl("blockstore", "gc", PLACE).out


def test_copy(full: MemoryStore, ctl):
    before = set(full.objects)
    assert "would copy about" in ctl("blockstore", "copy", PLACE, OTHER, "-n").out
    assert ctl("blockstore", "copy", PLACE, f"{PLACE} uploads=2").code == 2
    assert set(full.objects) == before
    said = ctl("blockstore", "copy", PLACE, OTHER)
    assert said.code == 0, said.err
    assert "copied 2.15M of a device of 1G to s3://zv/warm" in said.out
    assert ctl("blockstore", "check", OTHER, "--all").code == 0
    assert ctl("blockstore", "copy", PLACE, OTHER).code == 2, "there is one already"


def test_a_journal_that_was_overtaken_is_given_up_only_with_yes(full: MemoryStore, ctl, tmp_path):
    here = quiet(Options(tmp_path / "here", mode="writeback", uploads=0))
    engine = attach(full, "cold", here, "here")
    engine.write(0, b"h" * BLOCK)
    engine.flush()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    give_up = ["blockstore", "check", f"{PLACE} mode=writeback journal={here.journal}", "--give-up-journal"]
    give_up.append(str(here.journal))
    assert "is not given up" in ctl(*give_up, "--yes").err
    attach(full, "cold", quiet(Options(tmp_path / "there", uploads=0)), "there").close()
    with pytest.raises(Exception, match="writes that the store never got"):
        attach(full, "cold", here, "here")
    said = ctl(*give_up)
    assert (said.code, said.out) == (0, "would give up 1 write (4K) of epoch 2; do so with --yes\n")
    with pytest.raises(Exception, match="writes that the store never got"):
        attach(full, "cold", here, "here")
    assert "given up: 1 write" in ctl(*give_up, "--yes").out
    engine = attach(full, "cold", here, "here")
    assert engine.read(0, 1) == b"y"
    engine.close()


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
    attach(store, "cold", quiet(Options(tmp_path / "journal", uploads=0)), "x").close()
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


def test_a_vault_of_the_configuration(store: MemoryStore, ctl, tmp_path, monkeypatch: pytest.MonkeyPatch):
    configured(tmp_path, monkeypatch)
    assert ctl("blockstore", "create", "cold").code == 0
    for name in ("cold", "cold/0"):
        assert ctl("blockstore", "info", name, "-H", "-o", "place").cells == [
            ["s3://zv/cold at http://127.0.0.1:1"]
        ]
    assert "is no block store" in ctl("blockstore", "info", "cold/1").err
    assert "there is no vault 'warm'" in ctl("blockstore", "info", "warm").err


def test_a_store_that_went_back_is_taken_as_it_is_when_told(full: MemoryStore, ctl, tmp_path):
    older = dict(full.objects)
    assert ctl("blockstore", "gc", PLACE, "--yes", "-q").code == 0
    full.objects = dict(older)
    refused = ctl("blockstore", "gc", PLACE, "--yes")
    assert refused.code == 1
    assert "is older than this host knows it" in refused.err
    assert "--accept-rollback --yes" in refused.err
    accept = ["blockstore", "check", PLACE, "--accept-rollback"]
    for options in ([], ["-n", "--yes"]):
        said = ctl(*accept, *options)
        assert said.code == 0
        assert "this host knows it at epoch 2" in said.out
        assert "nothing is changed" in said.out
        assert {key: data for key, data in full.objects.items() if key != "cold/epoch"} == {
            key: data for key, data in older.items() if key != "cold/epoch"
        }
    assert json.loads(ctl(*accept, "-j").out)["accepted"] is False
    said = ctl(*accept, "--yes")
    assert (said.code, "accepted" in said.out) == (0, True)
    assert ctl("blockstore", "gc", PLACE, "--yes", "-q").code == 0


def test_a_journal_is_not_given_up_where_the_store_is_what_is_older(full: MemoryStore, ctl, tmp_path):
    older = dict(full.objects)
    here = Options(tmp_path / "journal", mode="writeback", uploads=0)
    attach(full, "cold", here, "filer1").abandon()
    full.objects = older
    said = ctl(
        "blockstore",
        "check",
        f"{PLACE} mode=writeback journal={here.journal}",
        "--give-up-journal",
        str(here.journal),
        "--yes",
    )
    assert said.code == 2
    assert "--accept-rollback" in said.err
