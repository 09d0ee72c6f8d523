"""The journal hears of a verdict when it changes, with the reason, and of nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from zvault.core.health.backup_conditions import BACKUP_CONDITIONS, BACKUP_LATE, FAILED, NEW
from zvault.core.health.vault_conditions import VAULT_CONDITIONS, VAULT_DAMAGED
from zvault.core.health.verdict import HealthCondition, HealthVerdict, SubjectKind, make_finding
from zvault.daemon.health import journal as module
from zvault.daemon.health.journal import VerdictJournal

TANK: tuple[SubjectKind, str] = "backup", "tank"
COLD: tuple[SubjectKind, str] = "vault", "cold"


def backup(*conditions: HealthCondition) -> HealthVerdict:
    return HealthVerdict.of(
        [make_finding(one, "tank", "this is why") for one in conditions], BACKUP_CONDITIONS
    )


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)
    return caplog


def texts(heard: Any) -> list[str]:
    return [record.getMessage() for record in heard.records]


def test_a_change_is_told_once_with_why_and_what_next(heard: Any):
    journal = VerdictJournal()
    for verdict in (
        backup(),
        backup(),
        backup(BACKUP_LATE),
        backup(BACKUP_LATE),
        backup(FAILED, BACKUP_LATE),
        backup(),
        backup(),
    ):
        journal.tell({TANK: verdict})
    assert texts(heard) == [
        "backup tank (warning) is late: this is why. Next: start it with 'zvaultctl run tank'; see 'zvaultctl history "
        "tank'",
        "backup tank (warning) failed when it ran last: this is why; is late: this is why. Next: see what failed with "
        "'zvaultctl history tank', then 'zvaultctl run tank'",
        "backup tank is well again",
    ]
    assert [record.levelname for record in heard.records] == ["WARNING", "WARNING", "INFO"]
    fields = [(one.BACKUP, one.HEALTH, one.CONDITION) for one in heard.records]
    assert fields == [("tank", "warning", "late"), ("tank", "warning", "failed late"), ("tank", "ok", "")]


def test_the_reason_alone_is_no_change(heard: Any):
    journal = VerdictJournal()
    for why in ("the lag is 4h", "the lag is 5h"):
        journal.tell({TANK: HealthVerdict((make_finding(BACKUP_LATE, "tank", why),))})
    assert len(texts(heard)) == 1


def test_what_is_unknown_at_the_start_is_told_only_if_it_stays_so(
    heard: Any, monkeypatch: pytest.MonkeyPatch
):
    journal = VerdictJournal()
    journal.tell({TANK: backup(NEW)})
    assert texts(heard) == []
    monkeypatch.setattr(module, "UNKNOWN_SETTLING", 0.0)
    journal.tell({TANK: backup(NEW)})
    assert texts(heard) == [
        "backup tank (unknown) never ran: this is why. Next: start it with 'zvaultctl run tank'"
    ]
    journal.tell({TANK: backup()})
    assert texts(heard)[1:] == ["backup tank is well again"]


def test_a_vault_that_moves_is_told_of_once_it_is_there(heard: Any):
    journal = VerdictJournal()
    bad = HealthVerdict.of([make_finding(VAULT_DAMAGED, "cold", "1 error")], VAULT_CONDITIONS)
    journal.tell({COLD: HealthVerdict(), TANK: backup()})
    journal.tell({COLD: bad, TANK: backup()}, moving={"cold"})
    assert texts(heard) == []
    journal.tell({COLD: bad, TANK: backup()})
    assert [(one.VAULT, one.levelname) for one in heard.records] == [("cold", "ERROR")]


def test_what_is_no_longer_configured_is_forgotten(heard: Any):
    journal = VerdictJournal()
    journal.tell({TANK: backup(BACKUP_LATE)})
    journal.tell({})
    journal.tell({TANK: backup()})
    assert len(texts(heard)) == 1, "another backup of that name was never late"


def test_a_backup_that_is_being_read_is_told_of_once_it_was(heard: Any):
    journal = VerdictJournal()
    journal.tell({TANK: backup()})
    journal.tell({TANK: backup(BACKUP_LATE)}, unread={"tank"})
    journal.tell({TANK: backup()})
    assert texts(heard) == []
    journal.tell({TANK: backup(BACKUP_LATE)}, unread={"other"})
    assert len(texts(heard)) == 1
