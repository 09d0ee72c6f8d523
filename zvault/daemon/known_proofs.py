"""Proofs as they were last seen, also by a daemon before this one: a vault that is down cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zvault.core.integrity.verification import PROOF_LEVELS, LevelProof, ProofLevel, parse_proof
from zvault.daemon.per_backup import ValuesByBackup
from zvault.ops.state.environment import Environment
from zvault.system.record_store import RecordStore

PROOFS_FOLDER = "proofs"
"""Below the state directory."""

Proofs = Mapping[ProofLevel, LevelProof]


class KnownProofs(ValuesByBackup[Proofs]):
    """The proofs of each backup as this daemon has seen them; what is put here is noted on disk as well."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._store = RecordStore(env.paths.state / PROOFS_FOLDER)
        self._earlier: dict[tuple[str, str | None], Proofs | None] = {}

    def put(self, name: str, value: Proofs, way: str | None) -> None:
        """Keep them, and note them for the next daemon."""
        before = self.noted(name)
        super().put(name, value, way)
        # The state directory is for others to make.
        if self.get(name) == value and before != value and self._store.directory.parent.is_dir():
            texts = {level: str(proof) for level, proof in value.items()}
            self._store.note(name, {"way": way, "proofs": texts})

    def noted(self, name: str) -> Proofs | None:
        """The newest that are known, if need be from a daemon before this one; None where nobody has seen any."""
        if name in self:
            return self[name]
        key = name, self.way(name)
        if key not in self._earlier:
            there = self._store.recall(name, _load)
            self._earlier[key] = there[1] if there is not None and there[0] == self.way(name) else None
        return self._earlier[key]


def _load(data: dict[str, Any]) -> tuple[str | None, Proofs]:
    texts = data["proofs"]
    return data["way"], {level: parse_proof(str(texts[level])) for level in PROOF_LEVELS if level in texts}
