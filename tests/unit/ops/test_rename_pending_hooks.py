"""Hooks that a crash kept from running, of a backup that has another name by now."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.ops.hooks import list_cut_off_backups, rename_pending_hooks
from zvault.system.record_store import RecordStore


@pytest.mark.parametrize("before", ["home", "run", "vault", "hooks"])
@pytest.mark.parametrize("scope", ["run", "vault"])
def test_they_keep_their_place_under_the_new_name(tmp_path: Path, before: str, scope: str) -> None:
    """A backup may be called as a scope is: its hooks went where no start looks for them."""
    store, about = (
        RecordStore(tmp_path),
        {"backup": before, "run": "r1", "source": "tank", "vault": "cold"},
    )
    store.put(f"hooks/{scope}/{before}/r1", {"about": about, "hooks": ["kept"]})
    rename_pending_hooks(store, lambda _: f"{before}@cold")
    assert store.names("hooks/") == [f"hooks/{scope}/{before}@cold/r1"]
    found = store.get(f"hooks/{scope}/{before}@cold/r1") or {}
    assert (found["about"]["backup"], found["hooks"]) == (f"{before}@cold", ["kept"])
    assert list_cut_off_backups(store) == ({f"{before}@cold"} if scope == "run" else set())
