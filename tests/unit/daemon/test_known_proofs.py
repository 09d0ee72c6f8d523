"""What was seen of a backup's proofs outlives the daemon, and is true only of the vault that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.ops.ops_world import context
from zvault.core.integrity.verification import LevelProof
from zvault.daemon.known_proofs import PROOFS_FOLDER, KnownProofs

PROOFS: Any = {"guids": LevelProof(5, 5, "ok", 0, 1), "sample": LevelProof(3, 7, "differs", 9, 1)}


def test_they_are_known_to_the_next_daemon_but_not_as_seen_by_it(tmp_path: Path):
    KnownProofs(context(folder=tmp_path).env)["b"] = PROOFS
    after = KnownProofs(context(folder=tmp_path).env)
    assert after.noted("b") == PROOFS
    assert "b" not in after


def test_of_another_vault_nothing_is_known(tmp_path: Path):
    KnownProofs(context(folder=tmp_path).env)["b"] = PROOFS
    assert KnownProofs(context(folder=tmp_path, vault={"pool": "ice"}).env).noted("b") is None


def test_what_cannot_be_read_or_written_is_not_known(tmp_path: Path):
    KnownProofs(context(folder=tmp_path).env)["b"] = PROOFS
    (tmp_path / PROOFS_FOLDER / "b").write_text("nonsense")
    assert KnownProofs(context(folder=tmp_path).env).noted("b") is None
    nowhere = KnownProofs(context(folder=Path("/dev/null/nowhere")).env)
    nowhere["b"] = PROOFS
    assert nowhere.noted("b") == PROOFS
