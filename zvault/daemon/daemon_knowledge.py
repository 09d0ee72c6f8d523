"""What the daemon knows that explains how something is: its memory, its history, its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.api.events import DatasetFailed, HealedEvent
from zvault.api.health import HealthDocument
from zvault.api.runs import RunDocument
from zvault.api.vaults import VaultDocument
from zvault.config.schema import Backup
from zvault.core.errors import ErrorDocument
from zvault.core.integrity.damage import DamagedFile
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.status import DaemonStatus
from zvault.ops.explain.knowledge import PrunedSnapshot
from zvault.ops.vault_facts import make_health_document


@dataclass(frozen=True)
class DaemonKnowledge:
    """See ops/explain/knowledge.py. ``vaults`` are their documents, as last seen."""

    status: DaemonStatus
    vaults: Sequence[VaultDocument]
    known: bool = True

    def lags(self, backup: Backup) -> Mapping[str, DatasetLag] | None:
        seen = self.status.runs.readings.seen_at(backup.name) is not None
        return self.status.runs.readings.read_last(backup.name) if seen else None

    def vault_seen(self, backup: Backup) -> float | None:
        return self.status.runs.readings.seen_at(backup.name)

    def verdicts(self, backup: Backup) -> Sequence[tuple[Literal["backup", "vault"], HealthDocument]]:
        found: list[tuple[Literal["backup", "vault"], HealthDocument]] = [
            ("backup", make_health_document(self.status.backup_verdict(backup)))
        ]
        found += [
            ("vault", make_health_document(self.status.vault_verdict(vault)))
            for vault in self.vaults
            if vault["name"] == backup.vault
        ]
        return found

    def last_run(self, backup: Backup) -> RunDocument | None:
        return self.status.history.last(backup.name, way=self.status.context.env.way(backup))

    def failed(self, run: str, dataset: str) -> ErrorDocument | None:
        for event in reversed(self.status.runs.runner.events.past(run) or ()):
            if isinstance(event, DatasetFailed) and event.dataset == dataset and not event.again:
                return event.error
        return None

    def running(self, backup: Backup) -> bool:
        return self.status.runs.runner.running(backup.name) is not None

    def next_run(self, backup: Backup) -> float | None:
        return self.status.scheduler.next_run(backup.name)

    def pruned(self, snapshot: str) -> list[PrunedSnapshot]:
        return self.status.history.pruned(snapshot)

    def unhealed(self, vault: str, damage: DamagedFile) -> str:
        for event in self.status.runs.runner.events.newest():
            if isinstance(event, HealedEvent) and event.vault == vault:
                here = (damage.dataset, damage.snapname, damage.path)
                left = (one for one in event.left if (one["dataset"], one["snapshot"], one["file"]) == here)
                return next((one["why"] for one in left), "")
        return ""
