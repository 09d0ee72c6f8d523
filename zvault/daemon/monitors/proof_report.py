"""What is known of a backup's proofs, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from zvault.api.status import ProofDocument
from zvault.config.tables.verification import Verify
from zvault.core.integrity.verification import LevelProof, ProofLevel, ProofResult, describe_proof_age

_RESULTS: dict[str, ProofResult] = {result: result for result in get_args(ProofResult)}
"""What a proof on the vault may say; another word is not known."""


def make_proofs_document(
    config: Verify, proofs: Mapping[ProofLevel, LevelProof] | None, now: float
) -> dict[str, ProofDocument] | None:
    """A backup's proofs, level by level; a level that is not known is left out. None where nobody has looked yet.

    ``max_age`` is its interval in seconds, None where it is done by hand only.
    """
    if proofs is None:
        return None
    return {
        level: {
            "proven": proof.proven,
            "tried": proof.tried,
            "result": _RESULTS.get(proof.result),
            "max_age": config.interval(level),
            "told": describe_proof_age(proof.proven, now),
        }
        for level, proof in proofs.items()
    }
