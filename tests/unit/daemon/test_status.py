"""What the status says of a backup is true of what it takes and of the vault that it goes into now."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import HOUR, START, context, snap
from zvault.api.events import RetryEvent
from zvault.api.status import BackupDocument
from zvault.core.integrity.verification import LevelProof
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.monitors.state_monitor import StateMonitor
from zvault.daemon.status import DaemonStatus
from zvault.ops.vaults.vault import Vaults

DAY = 24 * HOUR
FIGURES = {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0}


@pytest.fixture
def status(tmp_path: Path) -> Iterator[DaemonStatus]:
    where = context(START + 3 * HOUR, folder=tmp_path, max_lag="3h")
    history = RunHistory(tmp_path / "history.sqlite")
    runs = assemble_runs(where, Vaults(where), history, EventPublisher())
    monitor: Any = SimpleNamespace(documents=lambda: asyncio.sleep(0, []))
    scheduler: Any = SimpleNamespace(next_run=lambda _: None, behind=lambda: 0.0)
    yield DaemonStatus(where, monitor, runs, history, scheduler, started=START)
    history.close()


def ran(status: DaemonStatus, result: Any = "ok") -> None:
    """A run ended an hour ago."""
    env = status.context.env
    status.history.begin("r1", "b", "schedule", START + HOUR, env.way(env.backup("b")))
    status.history.end("r1", START + 2 * HOUR, result, FIGURES, None)
    status.runs.lags["b"] = {"tank": DatasetLag("tank", snap(1), 0)}
    status.runs.proofs["b"] = {"sample": LevelProof(proven=int(START + HOUR))}


def scheduled(status: DaemonStatus, **backup: Any) -> None:
    """Another configuration of the same way."""
    status.context.env.config = context(**backup).env.config


def test_without_a_vault_the_age_of_the_snapshots_is_all_that_is_told(status: DaemonStatus) -> None:
    scheduled(status, snapshots_only=True)
    assert told(status)["verdict"]["state"] == "new"
    scheduled(status, snapshots_only=True, schedule="hourly")
    status.runs.made["b"] = {"tank": START + HOUR, "tank/a": START + 3 * HOUR}
    found = told(status)
    assert (found["vault"], found["into"], found["lag_seconds"], found["proofs"]) == (None, None, None, None)
    assert (found["snapshot_age_seconds"], found["datasets"]) == (2 * HOUR, 2)
    assert found["verdict"]["state"] == "late", "two of its times went by on tank"
    status.runs.made["b"] = {"tank": START + 3 * HOUR, "tank/a": START + 3 * HOUR}
    assert told(status)["verdict"]["state"] == "ok"
    status.runs.made["b"] = {"tank": START + 3 * HOUR, "tank/a": None}
    assert told(status)["snapshot_age_seconds"] is None


@pytest.mark.parametrize(("hours", "late"), [(1, False), (2, True), (3, True)])
def test_without_a_max_lag_two_missed_times_are_unwell(status: DaemonStatus, hours: int, late: bool) -> None:
    ran(status)
    clock: Any = status.context.env.clock
    clock.at = START + HOUR + hours * HOUR
    scheduled(status, schedule="hourly")
    assert told(status)["late"] is late
    scheduled(status, every="1h")
    assert told(status)["late"] is late
    scheduled(status)
    assert told(status)["late"] is False


def test_a_disk_in_the_cupboard_makes_nothing_late_before_its_max_lag(status: DaemonStatus) -> None:
    ran(status)
    clock: Any = status.context.env.clock
    clock.at = START + 99 * HOUR
    usb = {"pool": "cold", "removable": True}
    scheduled(status, vault=usb, schedule="hourly")
    assert told(status)["verdict"]["state"] == "ok"
    scheduled(status, vault=usb, schedule="hourly", max_lag="5d")
    assert told(status)["late"] is False
    scheduled(status, vault=usb, schedule="hourly", max_lag="4d")
    assert told(status)["late"] is True


@pytest.mark.parametrize(("there", "state"), [(False, "ok"), (True, "unproven")])
@pytest.mark.parametrize(
    "proof", [LevelProof(proven=START), LevelProof(since=START)], ids=["passed", "never"]
)
def test_nor_unproven_while_nobody_can_look_at_it(
    status: DaemonStatus, monkeypatch: pytest.MonkeyPatch, there: bool, state: str, proof: LevelProof
) -> None:
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", lambda _: there)
    ran(status)
    status.runs.proofs["b"] = {"guids": LevelProof(since=START), "sample": proof}
    clock: Any = status.context.env.clock
    clock.at = START + 10 * DAY
    scheduled(status, vault={"pool": "cold", "removable": True}, schedule="hourly", max_lag="20d")
    assert told(status)["verdict"]["state"] == state


async def test_nor_before_it_can_have_been_looked_at_since_it_was_plugged_in(
    status: DaemonStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that the disk came, all who are told were told that its proof is overdue, and soon that it is not."""
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", lambda _: True)
    ran(status)
    status.runs.proofs["b"] = {"guids": LevelProof(since=START), "sample": LevelProof(proven=START)}
    clock: Any = status.context.env.clock
    clock.at = START + 10 * DAY
    scheduled(status, vault={"pool": "cold", "removable": True}, schedule="hourly", max_lag="20d")
    status.context.activity.appeared["cold"] = clock.monotonic()
    task, found = asyncio.current_task(), list[str]()
    assert task is not None
    current = status.runs.runner.current
    for after, trigger in ((0.5, ""), (0.6, ""), (0.1, "schedule"), (0.1, "verify"), (0.1, "")):
        clock.at += after * HOUR
        current.clear()
        if trigger:
            current["r2"] = ActiveRun("r2", "b", trigger, task, aside=trigger == "verify")
        found.append(told(status)["verdict"]["state"])
    assert found == ["ok", "unproven", "ok", "ok", "unproven"]


async def test_a_dataset_that_is_new_while_the_disk_is_away_is_late_with_it(
    status: DaemonStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a max_lag never; and a disk that nothing was ever put on is late after a day."""
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", lambda _: False)
    clock: Any = status.context.env.clock
    usb = {"pool": "cold", "removable": True}

    def after(days: float, **backup: Any) -> str:
        scheduled(status, vault=usb, schedule="hourly", **backup)
        told(status)
        clock.at += days * DAY
        return told(status)["verdict"]["state"]

    assert after(0.5) == "new"
    assert after(1) == "late"
    ran(status)
    status.runs.lags["b"] = {
        "tank": DatasetLag("tank", snap(1), 0),
        "tank/new": DatasetLag("tank/new", None, 3),
    }
    assert after(9) == "unknown"
    assert after(9, max_lag="40d") == "unknown"
    assert after(40, max_lag="40d") == "late"


def test_a_backup_that_never_ran_is_unwell_after_two_of_its_times(status: DaemonStatus) -> None:
    clock: Any = status.context.env.clock
    scheduled(status, every="1h")
    clock.at = START + HOUR
    assert told(status)["late"] is False
    clock.at = START + 2 * HOUR
    assert told(status)["late"] is True


async def test_what_cannot_be_kept_is_a_warning(status: DaemonStatus) -> None:
    assert (await status.document())["daemon"]["warnings"] == []
    monitor = status.state = StateMonitor(Path("/dev/null/nowhere"), status.history)
    await monitor.look()
    (warning,) = (await status.document())["daemon"]["warnings"]
    assert warning == monitor.trouble
    assert warning.startswith("nothing can be written in /dev/null/nowhere: Not a directory.")


def test_proofs_that_nobody_has_read_are_not_known(status: DaemonStatus) -> None:
    assert told(status)["proofs"] is None
    status.runs.proofs["b"] = {}
    assert told(status)["proofs"] == {}


async def test_a_run_that_waits_to_try_again_says_since_when_and_why(status: DaemonStatus) -> None:
    ran(status)
    error: Any = {"reason": "device", "what": "what", "why": "why", "next": "next"}
    task = asyncio.current_task()
    assert task is not None
    run = status.runs.runner.current["r2"] = ActiveRun("r2", "b", "schedule", task)
    status.runs.runner.emitter("r2", "b")(RetryEvent(wait=60.0, number=1, retries=5, error=error))
    assert (told(status)["state"], told(status)["retry_error"]) == ("running", None)
    run.waiting = START + 4 * HOUR
    found = told(status)
    assert (found["state"], found["retry_at"], found["retry_since"]) == (
        "waiting",
        START + 4 * HOUR,
        START + 3 * HOUR,
    )
    assert found["retry_error"] == error
    assert found["last_result"] == "ok"


def told(status: DaemonStatus) -> BackupDocument:
    return status.backup(status.context.env.backup("b"))


def test_a_backup_whose_vault_was_changed_has_no_backup_there_yet(status: DaemonStatus) -> None:
    ran(status)
    before = told(status)
    assert (before["lag_seconds"], before["pending"], before["late"]) == (2 * HOUR, 0, False)
    assert before["last_success"] == START + 2 * HOUR
    status.context.env.config = context(vault={"pool": "ice"}, max_lag="3h").env.config
    after = told(status)
    assert (after["lag_seconds"], after["pending"], after["datasets"]) == (None, None, None)
    assert (after["verdict"]["level"], after["verdict"]["state"], after["late"]) == ("unknown", "new", False)
    assert (after["last_success"], after["last_run"], after["last_result"]) == (None, None, None)
    assert status.dataset_lags("b") == {}
    clock: Any = status.context.env.clock
    clock.at += 3 * HOUR
    assert told(status)["late"], "unknown for as long as max_lag"


def test_the_line_for_systemctl_goes_by_the_newest_look_at_all_verdicts(status: DaemonStatus) -> None:
    scheduled(status, schedule="hourly")
    ran(status)
    clock: Any = status.context.env.clock
    clock.at = START + 2 * HOUR
    assert status.line() == "idle; backups: 1", "nobody has looked at all of them yet"
    status.verdicts([])
    clock.at += 5 * HOUR
    assert status.line() == "idle; backups: 1"
    status.verdicts([])
    assert status.line() == "late: b"
