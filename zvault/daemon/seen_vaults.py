"""The vaults as they were looked at last, for whoever tells of them and looks at none himself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zvault.api.vaults import VaultDocument
from zvault.ops.vaults.vault import Vaults


@dataclass
class SeenVaults:
    """The newest look at all vaults: what was seen, and since when it holds (monotonic seconds)."""

    vaults: Vaults
    documents: Sequence[VaultDocument] = field(default_factory=list)
    began: float = 0.0

    def note_look(self, documents: Sequence[VaultDocument], began: float) -> None:
        """Take in a look that has just ended, and when it began."""
        self.documents, self.began = documents, began

    def list_documents(self) -> Sequence[VaultDocument]:
        """Return what was seen."""
        return self.documents

    def list_outdated(self) -> set[str]:
        """Vaults that are no longer as they were looked at, or will not stay so."""
        return {one.name for one in self.vaults.all() if one.moving or one.changed >= self.began}
