"""What is known of a backup's proofs, as a document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zvault.config.verify import Verify
from zvault.core.verify import Proof, Rung, aged


def proofs_document(config: Verify, proofs: Mapping[Rung, Proof], now: float) -> dict[str, Any]:
    """A backup's proofs, rung by rung; a rung that is not known is left out.

    ``max_age`` is its interval in seconds, None where it is done by hand only.
    """
    return {
        rung: {
            "proven": proof.proven,
            "tried": proof.tried,
            "result": proof.result or None,
            "max_age": config.interval(rung),
            "told": aged(proof.proven, now),
        }
        for rung, proof in proofs.items()
    }
