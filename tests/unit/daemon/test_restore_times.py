"""How long a restore takes is learned from events, survives the daemon, and goes with the vault it was learned of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.events import make_event
from tests.unit.ops.ops_world import HOUR, START, context
from zvault.api.events import VaultHolds, VaultRead
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import KEPT_READINGS, RunHistory
from zvault.daemon.metrics.restore_time import collect_restore_times
from zvault.daemon.restore_times import RestoreTimes, make_restore_time

MIB = 1 << 20


class Host:
    """A daemon's history and what it learned; ``restart`` is the next daemon."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "history.sqlite"
        self.context = context(START + 3 * HOUR, folder=folder, max_restore="1h")
        self.restart()

    def restart(self) -> None:
        self.history = RunHistory(self.file)
        self.times = RestoreTimes(self.context.env, self.history)

    def hear(self, event: str, **fields: Any) -> None:
        publisher = EventPublisher()
        publisher.subscribe(VaultRead, self.times.note_reading)
        publisher.subscribe(VaultHolds, self.times.note_held)
        publisher.publish(make_event(event, **{"time": START, "vault": self.vault, **fields}))

    @property
    def backup(self) -> Any:
        return self.context.env.backup("b")

    @property
    def vault(self) -> str:
        return str(self.backup.its_vault)

    def told(self) -> Any:
        estimate = self.times.estimate_whole(self.backup)
        assert estimate is not None
        return make_restore_time(estimate)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    it = Host(tmp_path)
    yield it
    it.history.close()


def test_what_nobody_measured_is_unknown(host: Host) -> None:
    told = host.told()
    assert (told["seconds"], told["bytes"], told["rate"]) == (None, None, None)
    assert told["told"].startswith("unknown: ")


def test_it_outlives_the_daemon(host: Host) -> None:
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0)
    before = host.told()
    assert (before["seconds"], before["bytes"], before["rate"]) == (100.0, 1000 * MIB, 10.0 * MIB)
    assert (before["measured"], before["measured_by"], before["measured_bytes"]) == (
        START,
        "drill",
        100 * MIB,
    )
    host.history.close()
    host.restart()
    assert host.told() == before


def test_a_history_that_is_gone_loses_only_the_past(host: Host) -> None:
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0)
    host.file.unlink()
    assert host.told()["seconds"] == 100.0
    host.history.close()
    host.restart()
    assert host.told()["seconds"] is None
    host.hear("vault-read", kind="scrub", bytes=100 * MIB, seconds=10.0)
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    assert host.told()["told"] == "1m 40s at 10M/s, by the scrub of 3h ago"


def test_a_rate_that_is_not_believed_is_not_kept(host: Host) -> None:
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.hear("vault-read", kind="restore", bytes=3 * MIB, seconds=0.1)
    assert host.told()["seconds"] is None
    assert host.history.readings() == []


def test_many_of_one_kind_push_no_other_out(host: Host) -> None:
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0, run="d")
    for number in range(3 * KEPT_READINGS):
        host.hear("vault-read", kind="verify", bytes=100 * MIB, seconds=1.0, run=f"v{number}")
    kept = host.history.readings()
    assert [one.kind for one in kept] == ["drill", *["verify"] * KEPT_READINGS]
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    assert host.told()["measured_by"] == "drill"


def test_others_in_the_vault_push_none_out_and_count_where_it_has_none(host: Host) -> None:
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0, run="d")
    for number in range(3 * KEPT_READINGS):
        host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=1.0, run=f"o{number}", backup="other")
    for _ in range(2):
        assert host.told()["rate"] == 10.0 * MIB
        host.history.close()
        host.restart()
    host.hear("vault-read", kind="restore", bytes=100 * MIB, seconds=2.0, backup="other")
    assert host.told()["rate"] == 50.0 * MIB, "a restore tells more than a drill, also another's"


def test_another_vault_is_another_storage(host: Host) -> None:
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0)
    host.hear("vault-read", kind="restore", bytes=100 * MIB, seconds=1.0, vault="other")
    assert host.told()["rate"] == 10.0 * MIB


def test_how_much_it_is_goes_with_its_source_and_vault(host: Host) -> None:
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.context.env.config = context(source="pool/other").env.config
    assert host.told()["bytes"] is None
    host.history.close()
    host.restart()
    assert host.told()["bytes"] is None


def test_the_metrics_have_no_sample_of_what_is_unknown(host: Host) -> None:
    def samples() -> dict[str, Any]:
        found = collect_restore_times({"b": host.backup}, host.times.estimate_whole)
        return {one.name: {tuple(s.labels.values()): s.value for s in one.samples} for one in found}

    assert samples() == {
        "zvault_backup_restore_seconds": {},
        "zvault_backup_restore_bytes": {},
        "zvault_backup_restore_rate": {},
        "zvault_backup_restore_measured_timestamp_seconds": {},
        "zvault_backup_max_restore_seconds": {("b",): HOUR},
    }
    host.hear("vault-holds", datasets=3, bytes=1000 * MIB)
    host.hear("vault-read", kind="drill", bytes=100 * MIB, seconds=10.0)
    assert samples() == {
        "zvault_backup_restore_seconds": {("b",): 100.0},
        "zvault_backup_restore_bytes": {("b",): 1000.0 * MIB},
        "zvault_backup_restore_rate": {("b", "drill"): 10.0 * MIB},
        "zvault_backup_restore_measured_timestamp_seconds": {("b",): START},
        "zvault_backup_max_restore_seconds": {("b",): HOUR},
    }


def test_what_was_learned_goes_on_under_the_name_that_a_backup_gets(host: Host) -> None:
    host.hear("vault-read", kind="drill", bytes=256 * MIB, seconds=2.0, backup="b")
    host.hear("vault-holds", datasets=1, bytes=512 * MIB, backup="b")
    host.restart()
    before = host.told()
    env = host.context.env
    env.reconfigure(env.config.model_copy(update={"backup": {"b@cold": host.backup.model_copy()}}))
    env.config.backup["b@cold"].named("b@cold")
    env.host = "host"
    env.note_rename("b", "b@cold")
    estimate = host.times.estimate_whole(env.backup("b@cold"))
    assert estimate is not None
    assert make_restore_time(estimate) == before
    assert before["seconds"] == 4.0
