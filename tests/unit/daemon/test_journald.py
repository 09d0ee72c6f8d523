"""What the log says of a run, and that no log is no reason to fail."""

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from systemd.journal import JournalHandler

from tests.unit.events import make_event
from zvault.api.events import RunEvent
from zvault.core.errors import Conflict
from zvault.daemon import journald

ERROR = Conflict("tank/a cannot follow", "no base is shared", "rename it").as_dict()


def event(name: str, **fields: Any) -> RunEvent:
    return make_event(name, **fields)


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    found: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record)

    keeper = Keeper()
    before = journald.log.level
    journald.log.addHandler(keeper)
    journald.log.setLevel(logging.DEBUG)
    yield found
    journald.log.removeHandler(keeper)
    journald.log.setLevel(before)


@pytest.mark.parametrize(
    ("told", "level", "text"),
    [
        (event("run-started", trigger="catch-up"), logging.INFO, "b: run r1 begins (catch-up)"),
        (
            event("snapshot", snapname="zvault_1", datasets=3),
            logging.INFO,
            "b: snapshot zvault_1; datasets: 3",
        ),
        (
            event(
                "transfer-started",
                dataset="tank/my data",
                kind="full",
                to="zvault_1",
                reason="the vault has none",
            ),
            logging.INFO,
            "b: tank/my data: full to zvault_1: the vault has none",
        ),
        (
            event("transfer-finished", dataset="tank/a", bytes=3 << 30, seconds=125.0),
            logging.INFO,
            "b: tank/a: 3G in 2m 5s",
        ),
        (
            event("dataset-failed", dataset="tank/a", error=ERROR),
            logging.ERROR,
            "b: tank/a: tank/a cannot follow: no base is shared. Next: rename it",
        ),
        (
            event("pruned", side="vault", count=4, snapshots=[]),
            logging.INFO,
            "b: pruned 4 snapshots on the vault",
        ),
        (event("message", text="hello"), logging.INFO, "b: hello"),
        (event("warning", text="beware"), logging.WARNING, "b: beware"),
        (
            event("verified", level="full", result="differs", datasets=2, files=7, bytes=1 << 20),
            logging.ERROR,
            "b: verified (full): 2 datasets, 7 files, 1M: differs",
        ),
        (
            event("vault-read", vault="cold", kind="drill", bytes=164 << 20, seconds=4.0),
            logging.INFO,
            "b: vault cold was read (drill): 164M in 4s (41M/s)",
        ),
        (
            event("restored", dataset="tank/new", mountpoint="/new", snapshot="cold/a@s"),
            logging.INFO,
            "b: restored cold/a@s to tank/new: /new",
        ),
        (
            event("run-finished", result="ok", bytes=0, seconds=1.0, error=None),
            logging.INFO,
            "b: run r1 ok: 0B in 1s",
        ),
        (
            event(
                "run-finished", result="failed", bytes=0, seconds=1.0, error={**ERROR, "why": "", "next": ""}
            ),
            logging.ERROR,
            "b: run r1 failed: 0B in 1s; tank/a cannot follow",
        ),
    ],
)
def test_an_event_as_a_line(records: list[logging.LogRecord], told: RunEvent, level: int, text: str) -> None:
    journald.log_event(told)
    (record,) = records
    assert (record.levelno, record.getMessage()) == (level, text)


@pytest.mark.parametrize("kind", ["progress", "plan", "vault-up", "inhibitor"])
def test_what_is_only_for_terminals_is_not_logged(records: list[logging.LogRecord], kind: str) -> None:
    journald.log_event(event(kind))
    assert records == []


def test_a_record_can_be_searched_for_by_its_fields(records: list[logging.LogRecord]) -> None:
    journald.log_event(event("dataset-failed", dataset="tank/a", error=ERROR))
    assert fields(records[0]) == {
        "RUN": "r1",
        "BACKUP": "b",
        "DATASET": "tank/a",
        "REASON": "conflict",
    }


def test_what_is_not_known_is_no_field(records: list[logging.LogRecord]) -> None:
    journald.log_event(event("message", text="hello"))
    assert fields(records[0]) == {"RUN": "r1", "BACKUP": "b"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name.isupper()}


def test_a_percent_sign_is_only_a_percent_sign(records: list[logging.LogRecord]) -> None:
    journald.log_event(event("message", text="buffer 100% full %s %d"))
    assert records[0].getMessage() == "b: buffer 100% full %s %d"


class FakeJournal:
    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.error = error

    def send(self, MESSAGE: str, **fields: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append({"MESSAGE": MESSAGE, **fields})


def logger_to(fake: FakeJournal) -> logging.Logger:
    """One whose records go by systemd's handler to a journal that is none."""
    handler: Any = journald.make_journal_handler()
    handler.send = fake.send
    logger = logging.Logger("zvault.test")
    logger.addHandler(handler)
    return logger


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, "7"),
        (logging.INFO, "6"),
        (logging.WARNING, "4"),
        (logging.ERROR, "3"),
        (logging.CRITICAL, "2"),
    ],
)
def test_the_journal_gets_priority_and_fields(level: int, priority: str) -> None:
    fake = FakeJournal()
    logger_to(fake).log(level, "hello %s", "there", extra={"BACKUP": "b"})
    wanted = {
        "MESSAGE": "hello there",
        "PRIORITY": priority,
        "LOGGER": "zvault.test",
        "SYSLOG_IDENTIFIER": "zvaultd",
        "BACKUP": "b",
    }
    (sent,) = fake.sent
    assert {name: sent[name] for name in wanted} == wanted


def test_an_exception_comes_with_its_trace() -> None:
    fake = FakeJournal()
    try:
        raise ValueError("it broke")
    except ValueError:
        logger_to(fake).exception("unexpected")
    assert "ValueError: it broke" in fake.sent[0]["MESSAGE"]


def test_a_journal_that_is_gone_does_not_come_back_to_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    logger_to(FakeJournal(OSError("no socket"))).warning("hello")
    assert "no socket" in capsys.readouterr().err


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_stderr_that_is_the_journal_is_used_as_one(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.fstat(2)
    monkeypatch.setenv("JOURNAL_STREAM", f"{here.st_dev}:{here.st_ino}")
    journald.set_up_logging()
    assert isinstance(root.handlers[0], JournalHandler)


@pytest.mark.parametrize("stream", [None, "8:12345", "nonsense", ""])
def test_by_hand_the_log_goes_to_stderr_also_below_a_unit_of_systemd(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, stream: str | None
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    if stream is not None:
        monkeypatch.setenv("JOURNAL_STREAM", stream)
    journald.set_up_logging()
    assert not isinstance(root.handlers[0], JournalHandler)
    assert isinstance(root.handlers[0], logging.StreamHandler)


def test_libraries_that_chatter_are_hushed(root: logging.Logger) -> None:
    journald.set_up_logging()
    assert logging.getLogger("apscheduler").getEffectiveLevel() == logging.WARNING
    assert logging.getLogger("zvault").getEffectiveLevel() == logging.INFO
