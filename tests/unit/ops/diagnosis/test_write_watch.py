"""The watch over a vault's writes beside a run: real programs in place of zpool, that answer or hang."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.api.events import RunEvent, WarningEvent
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.ops.context import Context
from zvault.ops.diagnosis import write_watch
from zvault.ops.diagnosis.write_watch import watch_drift
from zvault.ops.state.environment import Environment
from zvault.system.process.runner import HostRunner

WAITS = "/dev/nbd0\t" + "\t".join(
    ["0"] * 7 + ["900000000", "0", "50000000"] + ["0"] * 12 + ["30", "4"] + ["0"] * 6
)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    limit = 'zfs_vdev_aggregation_limit_non_rotating = "4M"\n'
    (profiles / "wide.toml").write_text(f"[module]\n{limit}zfs_txg_timeout = 5\n")
    config = Config.model_validate({"vault": {"cold": {"pool": "cold", "profile": "wide"}}})
    monkeypatch.setattr(write_watch, "FIRST_SAMPLE_PAUSE", 0.05)
    paths = Paths(etc=tmp_path, run=tmp_path, state=tmp_path)
    return Context.of(Environment(config, paths, HostRunner(), "here"))


def opened() -> Any:
    async def devices() -> list[Any]:
        return []

    return SimpleNamespace(name="cold", pool="cold", guid=1, managed=SimpleNamespace(devices=devices))


def answers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Programs that tell of 128 requests of 128 KiB more each time they are asked."""
    count, line = folder / "count", "\\t".join(["131072", *["0"] * 6, "%d", *["0"] * 7])
    script = (
        f"n=$(cat {count} 2>/dev/null || echo 0); n=$((n + 128)); echo $n >{count}; printf '{line}\\n' $n"
    )
    monkeypatch.setattr(write_watch.statistics, "queue_argv", lambda *_: ["printf", "%s\n", WAITS])
    monkeypatch.setattr(write_watch.statistics, "requests_argv", lambda _: ["sh", "-c", script])
    monkeypatch.setattr(write_watch.statistics, "groups_argv", lambda _: ["true"])


async def test_what_drifts_is_told_once_and_forgotten_when_the_next_run_begins(
    context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    answers(monkeypatch, tmp_path)
    told: list[RunEvent] = []
    async with watch_drift(context, opened(), told.append):
        while len(told) < 1:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        assert context.activity.writes.samples["cold"].request == 131072
        assert context.activity.writes.samples["cold"].wait == pytest.approx(0.9)
    (one,) = told
    assert isinstance(one, WarningEvent)
    assert (one.vault, one.drift) == ("cold", "request-size")
    assert context.activity.writes.drifts == {"cold": one.text}
    assert context.activity.writes.samples == {}
    async with watch_drift(context, opened(), told.append):
        assert context.activity.writes.drifts == {}


async def test_two_runs_into_one_vault_are_watched_once(context: Context, monkeypatch: pytest.MonkeyPatch):
    async with watch_drift(context, opened(), lambda _: None):
        before = len(asyncio.all_tasks())
        async with watch_drift(context, opened(), lambda _: None):
            assert len(asyncio.all_tasks()) == before
        assert context.activity.writes.watched == {"cold"}
    assert context.activity.writes.watched == set()


async def test_a_pool_that_hangs_ends_the_watch_and_holds_up_nobody(
    context: Context, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(write_watch.statistics, "queue_argv", lambda *_: ["sleep", str(FOR_EVER)])
    monkeypatch.setattr(write_watch, "WRITE_SAMPLE_DEADLINE", 0.1)
    async with watch_drift(context, opened(), lambda _: None):
        (watch,) = [task for task in asyncio.all_tasks() if task.get_name() == "drift cold"]
        await asyncio.wait_for(asyncio.wait({watch}), PATIENCE)
        assert watch.exception() is None
    monkeypatch.setattr(write_watch, "WRITE_SAMPLE_DEADLINE", FOR_EVER)
    async with asyncio.timeout(PATIENCE):  # a look that is not over is given up with the run
        async with watch_drift(context, opened(), lambda _: None):
            await asyncio.sleep(0.2)
