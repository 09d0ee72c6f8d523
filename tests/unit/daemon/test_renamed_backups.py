"""A backup that gets several vaults keeps what is known of it, whenever zvaultd is killed as it carries that over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import Crash, context
from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.daemon.history import RunHistory
from zvault.daemon.renamed_backups import RECORD_FOLDERS, carry_over_names
from zvault.system.host_lease_store import HostLeaseStore

SEVERAL = """
[vault.cold]
pool = "cold"
[vault.shelf]
pool = "shelf"
[backup.b]
source = "tank"
vaults = ["cold", "shelf"]
keep = { source = { last = 3 }, vault = { daily = 30 } }
"""


@pytest.mark.parametrize("survives", range(len(RECORD_FOLDERS) + 2))
def test_a_kill_anywhere_leaves_nothing_under_the_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    env = context(folder=tmp_path).env
    before = env.config.backup["b"]
    history = RunHistory(tmp_path / "history.sqlite")
    history.begin("r1", "b", "hand", 10.0, env.way(before))
    for folder in RECORD_FOLDERS:
        HostLeaseStore(env.paths.state / folder).put("b", {"of": folder})
    file = tmp_path / "zvault.toml"
    file.write_text(SEVERAL)
    env.config = load_config(Paths(), file)
    left = [survives]

    def mortal(work: Any) -> Any:
        def step(*given: Any) -> Any:
            if not left[0]:
                raise Crash
            left[0] -= 1
            return work(*given)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(HostLeaseStore, "rename", mortal(HostLeaseStore.rename))
        patch.setattr(RunHistory, "rename_backup", mortal(RunHistory.rename_backup))
        if survives <= len(RECORD_FOLDERS):
            with pytest.raises(Crash):
                carry_over_names(env, history)
    carry_over_names(env, history)
    assert not history.has_runs("b", env.way(before))
    assert [run["id"] for run in history.runs("b@cold", 9)] == ["r1"]
    for folder in RECORD_FOLDERS:
        store = HostLeaseStore(env.paths.state / folder)
        found = store.get("b@cold")
        assert (store.get("b"), found and found["of"]) == (None, folder)
