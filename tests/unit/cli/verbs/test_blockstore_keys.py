"""zvaultctl blockstore with encrypted stores: made, copied, given another key, and keys that are not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.unit.cli.verbs.blockstore_places import (
    OTHER,
    PLACE,
    full_store,  # noqa: F401
    key_file,  # noqa: F401
    store_in_memory,  # noqa: F401
)
from tests.unit.object_store.memory_store import MemoryStore


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
