"""What only a daemon knows of a backup: how its runs went, what was pruned, what is due. Without one, nothing of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from zvault.api.health import HealthDocument
from zvault.api.runs import RunDocument
from zvault.config.schema import Backup
from zvault.core.errors import ErrorDocument
from zvault.core.integrity.damage import DamagedFile
from zvault.core.replication.lag import DatasetLag


@dataclass(frozen=True, slots=True)
class PrunedSnapshot:
    """A snapshot that a run pruned on a ``side``, at this time (seconds since the epoch)."""

    run: str
    backup: str
    side: Literal["source", "vault"]
    at: float


class KnowledgeSource(Protocol):
    """Asked of what is in memory and in the history, never of a pool."""

    @property
    def known(self) -> bool:
        """True if there is a daemon at all."""
        ...

    def lags(self, backup: Backup) -> Mapping[str, DatasetLag] | None:
        """Its lags by dataset, as last read from its vault; None where nobody has."""
        ...

    def vault_seen(self, backup: Backup) -> float | None:
        """Return when somebody last looked at the backup's vault, None where nobody has."""
        ...

    def verdicts(self, backup: Backup) -> Sequence[tuple[Literal["backup", "vault"], HealthDocument]]:
        """The verdicts on it and on its vault."""
        ...

    def last_run(self, backup: Backup) -> RunDocument | None:
        """Its last run that ended."""
        ...

    def failed(self, run: str, dataset: str) -> ErrorDocument | None:
        """Why a run left a dataset out, None where it did not, or nobody knows any more."""
        ...

    def running(self, backup: Backup) -> bool:
        """True if a run of it is under way."""
        ...

    def next_run(self, backup: Backup) -> float | None:
        """Return when the backup's next run is due, None where none is."""
        ...

    def pruned(self, snapshot: str) -> list[PrunedSnapshot]:
        """The records of a snapshot of that name having been pruned, the newest first."""
        ...

    def unhealed(self, vault: str, damage: DamagedFile) -> str:
        """Why a damage was not healed when that was tried last; empty where nobody knows."""
        ...


class NoDaemon:
    """There is none, so none of it is known."""

    known = False

    def lags(self, _: Backup) -> None:
        """See Knowledge."""

    def vault_seen(self, _: Backup) -> None:
        """See Knowledge."""

    def verdicts(self, _: Backup) -> Sequence[tuple[Literal["backup", "vault"], HealthDocument]]:
        return ()

    def last_run(self, _: Backup) -> None:
        """See Knowledge."""

    def failed(self, _: str, __: str) -> None:
        """See Knowledge."""

    def running(self, _: Backup) -> bool:
        return False

    def next_run(self, _: Backup) -> None:
        """See Knowledge."""

    def pruned(self, _: str) -> list[PrunedSnapshot]:
        return []

    def unhealed(self, _: str, __: DamagedFile) -> str:
        return ""
