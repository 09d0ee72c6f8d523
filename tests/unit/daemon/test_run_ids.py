"""Each run has an id of its own, whatever the clock and chance say."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon.assemble import assemble_daemon
from zvault.ops.run_outcome import RunOutcome


class IdleJob:
    """Does nothing, and well."""

    subject, trigger, aside = "a", "hand", False

    def __init__(self) -> None:
        self.outcome = RunOutcome()

    async def execute(self, *_: object) -> None: ...


async def test_no_two_runs_of_one_second_have_one_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history takes an id once: it had failed in a simulated year, and was told as one that cannot be written."""
    config = {"vault": {"cold": {"pool": "cold"}}, "backup": {"a": {"source": "tank", "vault": "cold"}}}
    daemon = assemble_daemon(Config.model_validate(config), Paths(tmp_path, tmp_path, tmp_path, tmp_path))
    drawn = iter(["aaaa", "aaaa", "aaaa", "bbbb", "aaaa", "cccc"])
    chance = SimpleNamespace(token_hex=lambda _: next(drawn))
    monkeypatch.setattr("zvault.daemon.job_runner.secrets", chance)
    clock = daemon.context.env.clock
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)

    ids = []
    try:
        for _ in range(3):
            ids.append(daemon.runs.runner.start(IdleJob()))
            if len(ids) > 1:
                await daemon.runs.runner.current[ids[-1]].task  # the history alone knows it then
        assert [one.rpartition("-")[2] for one in ids] == ["aaaa", "bbbb", "cccc"]
        assert daemon.history.run(ids[1]) is not None
    finally:
        for current in [*daemon.runs.runner.current.values()]:
            await current.task
        daemon.history.close()
