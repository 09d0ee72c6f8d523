"""The state of everything in a sentence or two, from the document that tells it."""

from __future__ import annotations

from zvault.api.status import BackupDocument, StatusDocument
from zvault.api.vaults import JudgedVault
from zvault.core.health.headlines import DaemonFinding, HeadlineSubject, write_headlines


def write_status_headlines(status: StatusDocument) -> list[str]:
    """A sentence for each kind that needs attention or is not known, or that all is well."""
    return write_headlines(
        [_subject(one, sends=one["vault"] is not None) for one in status["backups"]],
        [_subject(one) for one in status["vaults"]],
        [DaemonFinding(one["level"], one["what"]) for one in status["daemon"]["verdict"]["findings"]],
    )


def _subject(one: BackupDocument | JudgedVault, *, sends: bool = True) -> HeadlineSubject:
    return HeadlineSubject(one["name"], one["verdict"]["level"], one["verdict"]["state"], sends)
