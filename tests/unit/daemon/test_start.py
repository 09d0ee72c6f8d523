"""Nothing that lies in the folders of the daemon keeps it from starting."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patience import eventually
from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Config
from zvault.core.errors import Refused, ToolMissing
from zvault.daemon.app import ZvaultDaemon, _patience
from zvault.daemon.assemble import assemble_daemon
from zvault.daemon.journald import log
from zvault.ops.vault_documents import make_vault_document
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.past_record import PastVault
from zvault.system.process.runner import HostRunner

LEASES = (
    "vault/cold",
    "vault/gone",
    "look/00000000",
    "hooks/run/b/r1",
    "hooks/snapshot/b/r1",
    "tuning/host",
    "tuning/vault/cold",
    "take/cold",
    "past/cold/1-2",
    "past/gone/none",
)

MALFORMED = (
    "",
    "no JSON",
    "[1]",
    "{}",
    '{"boot_id": "x", "time": 1, "data": []}',
    '{"boot_id": "x", "time": 1, "data": {}}',
    '{"boot_id": "x", "time": 1, "data": {"kind": 1, "host": 2, "path": 3, "paths": 4, "about": 5, "hooks": 6}}',
    "[" * 100_000,
)


class NoTools(HostRunner):
    """A host on which nothing is installed."""

    async def run(self, argv: Any, **_: Any) -> Any:
        raise ToolMissing(f"{argv[0]} is not installed", "it was not found on PATH", "install it")


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **vault: Any) -> ZvaultDaemon:
    monkeypatch.setattr("zvault.daemon.assemble.HostRunner", NoTools)
    config = {
        "vault": {"cold": {"pool": "cold", **vault}},
        "backup": {"b": {"source": "tank", "vault": "cold"}},
    }
    return assemble_daemon(Config.model_validate(config), Paths(tmp_path, tmp_path, tmp_path, tmp_path))


@pytest.mark.parametrize("text", MALFORMED)
async def test_malformed_leases_keep_it_not_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    it = made(tmp_path, monkeypatch)
    store = it.context.records.undo
    for name in LEASES:
        path = store.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    await it.reconcile()
    assert b"zvault_build_info" in it.metrics.text()
    assert (await make_vault_document(it.vaults["cold"]))["past"] == []
    it.history.close()


async def test_while_it_starts_a_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it, seen = made(tmp_path, monkeypatch), list[str]()

    async def reconcile() -> set[str]:
        seen.append(it.paths.starting.read_text())
        assert it.paths.starting.stat().st_mode & 0o777 == 0o644
        return set()

    async def listen(_: Path) -> None:
        seen.append(it.paths.starting.read_text())
        raise OSError("enough")

    monkeypatch.setattr(it, "reconcile", reconcile)
    monkeypatch.setattr(it.api, "listen", listen)
    with pytest.raises(OSError, match="enough"):
        await it.serve()
    assert seen == [f"{os.getpid()}\n"] * 2
    assert not it.paths.starting.exists()
    for task in it._tasks:
        task.cancel()
    it.history.close()


async def test_as_it_stops_what_is_being_opened_as_it_was_is_given_up_before_runs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, told = made(tmp_path, monkeypatch), list[str]()

    async def end_runs(*_: object) -> None:
        with pytest.raises(Refused) as refused:
            await it.runs.past.open("cold", 1.0, lambda _: None)
        told.append(refused.value.why)

    monkeypatch.setattr("zvault.daemon.app.end_runs", end_runs)
    await it._drain()
    assert told == ["the daemon is stopping"]


async def test_a_vault_that_is_open_as_it_was_does_not_vanish_from_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = made(tmp_path, monkeypatch)
    past = PastVault("cold", 1, 2, 9.5, "cold_then", "somebody", 77, opened=True, pinned=True)
    it.context.records.undo.put(past.lease, past.as_lease())
    monkeypatch.setattr("zvault.daemon.reload.load_config", lambda _: Config.model_validate({}))
    await it.config_reload.reload()
    told = it.status.warnings["config"]
    assert "vault cold is gone from the configuration but open as it was" in told
    assert "'zvaultctl vault close cold'" in told
    assert "cold" in it.context.env.config.vault
    it.context.records.undo.drop(past.lease)
    await it.config_reload.reload()
    assert "config" not in it.status.warnings
    assert it.context.env.config.vault == {}
    it.history.close()


def test_a_profile_with_a_typo_keeps_no_vault_from_going_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "mine.toml").write_text("[pol]\nashift = 12\n")
    it = made(tmp_path, monkeypatch, profile="mine")
    assembly = it.vaults["cold"].assembly()
    assert isinstance(assembly, VaultAssembly)
    assert assembly.stack().queue == QueueSettings()
    it.history.close()


@pytest.mark.parametrize(("version", "warnings"), [((2, 2, 7), 1), ((2, 4, 4), 0)])
async def test_an_openzfs_it_was_not_tested_with_is_told_once_and_not_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, ...],
    warnings: int,
) -> None:
    monkeypatch.setattr("zvault.daemon.app.read_loaded_version", lambda: version)
    monkeypatch.setattr(log, "propagate", True)
    it = made(tmp_path, monkeypatch)
    await it.reconcile()
    told = [
        record
        for record in caplog.records
        if record.levelname == "WARNING" and "OpenZFS on this host is 2." in record.getMessage()
    ]
    assert len(told) == warnings
    it.history.close()


async def test_an_openzfs_that_is_not_loaded_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent() -> tuple[int, ...]:
        raise FileNotFoundError("/sys/module/zfs/version")

    monkeypatch.setattr("zvault.daemon.app.read_loaded_version", absent)
    monkeypatch.setattr(log, "propagate", True)
    it = made(tmp_path, monkeypatch)
    await it.reconcile()
    assert "OpenZFS on this host" not in caplog.text
    it.history.close()


async def test_systemd_waits_as_long_as_the_start_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr("zvault.daemon.app.sd_notify.extend_start", asked.append)
    monkeypatch.setattr("zvault.daemon.app.PATIENCE_STEP", 0.001)
    async with _patience(math.inf, 60.0):
        await eventually(lambda: len(asked) > 200)
    ended = len(asked)
    await asyncio.sleep(0.01)
    assert len(asked) == ended
    assert set(asked) == {60.0}


async def test_a_start_that_is_to_stop_is_waited_for_as_long_as_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hook of an earlier run may take a day; whoever stops zvaultd, or the host, does not wait for that."""
    asked: list[float] = []
    monkeypatch.setattr("zvault.daemon.app.sd_notify.extend_start", asked.append)
    monkeypatch.setattr("zvault.daemon.app.PATIENCE_STEP", 0.001)
    monkeypatch.setattr("zvault.daemon.app.DRAIN_PATIENCE", 0.01)
    stop = asyncio.Event()
    async with _patience(math.inf, 60.0, stop):
        await eventually(lambda: len(asked) > 20)
        stop.set()
        before = len(asked)
        await asyncio.sleep(0.2)
        assert len(asked) <= before + 12


async def test_a_drain_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr("zvault.daemon.app.sd_notify.extend_start", asked.append)
    monkeypatch.setattr("zvault.daemon.app.PATIENCE_STEP", 0.001)
    async with _patience(0.01, 15.0):
        await eventually(lambda: len(asked) >= 10)
        await asyncio.sleep(0.05)
    assert len(asked) <= 11
