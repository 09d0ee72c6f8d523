"""zvaultctl blockstore, with its object store in memory: what it says, in which form, and what it refuses."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.cli.verbs.blockstore_places import (
    OTHER,
    PLACE,
    configured,
    full_store,  # noqa: F401
    key_file,  # noqa: F401
    store_in_memory,  # noqa: F401
)
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.repair import quiet_options
from zvault.blockstore.options import EngineOptions
from zvault.cli.verbs import blockstore_missing_journal, blockstore_place
from zvault.core.errors import JournalMissing
from zvault.object_store.interface import StoreError


def break_slot(store: MemoryStore) -> str:
    key = [key for key in sorted(store.objects) if "/segments/" in key][-2]
    data = bytearray(store.objects[key])
    data[5 * (BLOCK_SIZE + 8)] ^= 1
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
    assert row == [[str(1 << 30), str(550 * BLOCK_SIZE), "1", "1"]]
    found = json.loads(ctl("blockstore", "info", PLACE, "-j").out)
    assert found["output_version"]["command"] == "zvaultctl blockstore info"
    assert found["live_bytes"] == 550 * BLOCK_SIZE
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
    assert found["lost"] == [[5 * BLOCK_SIZE, BLOCK_SIZE]]
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
        blockstore_place,
        "find_lease_holder",
        lambda _place: ("filer1 (10.0.0.7) has held it since yesterday", False),
    )
    for verb in (["gc", PLACE], ["gc", PLACE, "--yes"], ["check", PLACE, "--repair", "--yes"]):
        said = ctl("blockstore", *verb)
        assert said.code == 2
        assert "filer1 (10.0.0.7) has held it" in said.err
        assert "take the vault down there" in said.err
    monkeypatch.setattr(blockstore_place, "find_lease_holder", lambda _place: ("filer2 has held it", True))
    said = ctl("blockstore", "check", PLACE, "--repair", "--yes")
    assert said.code == 2
    assert "in use here" in said.err
    assert "there" not in said.err
    monkeypatch.setattr(blockstore_place, "find_lease_holder", lambda _place: ("", False))
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
    here = quiet_options(EngineOptions(tmp_path / "here", mode="writeback", uploads=0))
    engine = attach_store(full, "cold", here, "here")
    engine.write(0, b"h" * BLOCK_SIZE)
    engine.flush()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    give_up = ["blockstore", "check", f"{PLACE} mode=writeback journal={here.journal}", "--give-up-journal"]
    give_up.append(str(here.journal))
    assert "is not given up" in ctl(*give_up, "--yes").err
    there = quiet_options(EngineOptions(tmp_path / "there", uploads=0, give_up_journal=True))
    attach_store(full, "cold", there, "there").close()
    with pytest.raises(Exception, match="writes that the store never got"):
        attach_store(full, "cold", here, "here")
    said = ctl(*give_up)
    assert (said.code, said.out) == (0, "would give up 1 write (4K) of epoch 2; do so with --yes\n")
    with pytest.raises(Exception, match="writes that the store never got"):
        attach_store(full, "cold", here, "here")
    assert "given up: 1 write" in ctl(*give_up, "--yes").out
    engine = attach_store(full, "cold", here, "here")
    assert engine.read(0, 1) == b"y"
    engine.close()


def test_a_folder_that_was_given_up_passes_for_no_other_hosts_journal(full: MemoryStore, ctl, tmp_path):
    """The store waits for the journal of whoever overtook it, which is on that host."""

    def host(name: str, **options: bool) -> EngineOptions:
        return quiet_options(EngineOptions(tmp_path / name, mode="writeback", uploads=0, **options))

    def die(options: EngineOptions) -> None:
        engine = attach_store(full, "cold", options, options.journal.name)
        engine.write(0, b"h" * BLOCK_SIZE)
        engine.flush()
        engine.fail(StoreError("it is gone"))
        engine.abandon()

    here = host("here")
    die(here)
    die(host("there", give_up_journal=True))
    place = f"{PLACE} mode=writeback journal={here.journal}"
    give_up = ["blockstore", "check", place, "--give-up-journal", str(here.journal), "--yes"]
    assert "given up: 1 write" in ctl(*give_up).out
    with pytest.raises(JournalMissing, match="of there, in use since"):
        attach_store(full, "cold", here, "here")
    engine = attach_store(full, "cold", host("there"), "there")
    assert engine.read(0, 1) == b"h"
    engine.close()
    attach_store(full, "cold", here, "here").close()


def test_a_journal_that_is_missing_is_given_up_only_with_yes(
    full: MemoryStore, ctl, disk, monkeypatch: pytest.MonkeyPatch
):
    here = quiet_options(EngineOptions(disk / "here", mode="writeback", uploads=0))
    engine = attach_store(full, "cold", here, "filer1, process 7")
    engine.write(0, b"h" * BLOCK_SIZE)
    engine.flush()
    engine.fail(StoreError("it is gone"))
    engine.abandon()
    place = f"{PLACE} mode=writeback journal={here.journal}"
    give_up = ["blockstore", "give-up-journal", place]
    there = ctl(*give_up, "--yes")
    assert (there.code, "none is missing" in there.err) == (2, True), there
    here.journal.rename(disk / "away")
    before = dict(full.objects)
    for words in ([], ["-n", "--yes"]):
        said = ctl(*give_up, *words)
        assert said.code == 0, said.err
        assert f"waits for the journal of epoch 2 in {here.journal} of filer1" in said.out
        assert "nothing is changed" in said.out
    assert not here.journal.exists(), "a look makes no folder below a mount point"
    assert (
        f"journal: what is not in the bucket yet is in {here.journal} of filer1"
        in ctl("blockstore", "info", PLACE).out
    )
    told = json.loads(ctl(*give_up, "-j").out)
    assert (told["epoch"], told["host"], told["found"], told["given_up"]) == (2, "filer1", "none", False)
    assert full.objects == before
    refused = ctl("blockstore", "gc", place, "--yes")
    assert "blockstore give-up-journal" in refused.err
    assert "given up" in ctl(*give_up, "--yes").out
    assert ctl("blockstore", "gc", place, "--yes", "-q").code == 0
    assert "none is missing" in ctl(*give_up).err


def test_no_journal_is_given_up_below_a_pool_that_is_imported(
    store: MemoryStore, ctl, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    configured(tmp_path, monkeypatch)
    assert ctl("blockstore", "create", "cold/0").code == 0
    options = quiet_options(EngineOptions(tmp_path / "elsewhere", mode="writeback", uploads=0))
    attach_store(store, "cold", options, "filer1, process 7").abandon()
    monkeypatch.setattr(blockstore_missing_journal, "POOLS_KSTAT", tmp_path / "pools")
    (tmp_path / "pools" / "ice").mkdir(parents=True)
    before = dict(store.objects)
    refused = ctl("blockstore", "give-up-journal", "cold/0", "--yes")
    assert (refused.code, "while the pool 'ice' is imported" in refused.err) == (2, True), refused
    assert store.objects == before
    (tmp_path / "pools" / "ice").rmdir()
    assert "given up" in ctl("blockstore", "give-up-journal", "cold/0", "--yes").out


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
    here = EngineOptions(tmp_path / "journal", mode="writeback", uploads=0)
    attach_store(full, "cold", here, "filer1").abandon()
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
