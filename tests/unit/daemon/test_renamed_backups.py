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
from zvault.system.record_store import RecordStore

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
        RecordStore(env.paths.state / folder).put("b", {"of": folder})
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
        patch.setattr(RecordStore, "rename", mortal(RecordStore.rename))
        patch.setattr(RunHistory, "rename_backup", mortal(RunHistory.rename_backup))
        if survives <= len(RECORD_FOLDERS):
            with pytest.raises(Crash):
                carry_over_names(env, history)
    carry_over_names(env, history)
    assert history.list_ways() == {env.way(before): ["b@cold"]}
    assert [run["id"] for run in history.runs("b@cold", 9)] == ["r1"]
    for folder in RECORD_FOLDERS:
        store = RecordStore(env.paths.state / folder)
        found = store.get("b@cold")
        assert (store.get("b"), found and found["of"]) == (None, folder)


@pytest.mark.parametrize(
    ("ran", "taken"),
    [
        ((("z", True),), False),
        ((("z", False),), True),
        ((("z", False), ("b", True)), False),
        ((("b@cold", True),), True),
        ((("b@cold", True), ("b", True)), False),
        ((("b", True),), False),
    ],
    ids=["another name", "whose run goes on", "but it ran itself", "one vault again", "long ago", "its own"],
)
def test_only_a_backup_that_never_ran_under_its_name_takes_over_from_another(
    tmp_path: Path, ran: tuple[tuple[str, bool], ...], taken: bool
) -> None:
    """What it knows of itself is newer, and is not lost to what a name that is long gone has left."""
    env, figures = context(folder=tmp_path).env, {"bytes": 0, "datasets": 1, "sent": 1, "pruned": 0}
    history, store = (
        RunHistory(tmp_path / "history.sqlite"),
        RecordStore(env.paths.state / RECORD_FOLDERS[0]),
    )
    for number, (name, ended) in enumerate(ran):
        store.put(name, {"of": name})
        history.begin(f"r{number}", name, "hand", 10.0 + number, env.way(env.backup("b")))
        if ended:
            history.end(f"r{number}", 20.0, "ok", figures, None)
    before = ran[0][0]
    assert carry_over_names(env, history) == ({before: "b"} if taken else {})
    kept = store.get("b")
    assert (kept and kept["of"]) == (before if taken else "b" if "b" in dict(ran) else None)
    assert env.current_name(before) == ("b" if taken or before == "b" else before)


def test_what_was_begun_two_names_ago_goes_on_under_the_newest(tmp_path: Path) -> None:
    """A run of hours may see more than one reload; that of the name between them failed for want of it."""
    env = context(folder=tmp_path).env
    env.note_rename("a", "a@cold")
    env.note_rename("a@cold", "b")
    assert [env.current_name(name) for name in ("a", "a@cold", "b", "c")] == ["b", "b", "b", "c"]
    with env.follow_names():
        assert env.backup("a").name == "b"
