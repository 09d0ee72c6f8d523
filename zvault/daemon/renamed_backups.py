"""Carries over what is known of a backup whose name changed, as when it got several vaults, or one again.

``home`` with ``vault = "cold"`` is called ``home@cold`` once it has ``vaults``. What it takes and where it puts that is
the same, so it is the same backup, whatever it is called: its history, its proofs and what was found of it go on. Bases
need none of this: they are kept by the GUIDs of pools.
"""

from __future__ import annotations

import contextlib

from zvault.config.schema import Backup
from zvault.core.errors import ZvaultError
from zvault.daemon.history import RunHistory
from zvault.daemon.journald import log
from zvault.daemon.known_proofs import PROOFS_FOLDER
from zvault.ops.hooks import HookRun
from zvault.ops.state.environment import Environment
from zvault.system.record_store import RecordStore

RECORD_FOLDERS = ("unchanged", "replaced", "exposed", PROOFS_FOLDER)
"""Below the state directory, each with a file for each backup (ops/state/records.py)."""


def carry_over_names(env: Environment, history: RunHistory) -> dict[str, str]:
    """Find the backups that had another name as they went the same way (Environment.way), and rename what is kept.

    That name is none's any more, and under its own a backup has not run on this way yet. It is the name of a table that
    got several vaults, or one again; or any of which a run has not ended, for else a run of the new name would send
    beside it. Returns their names by the ones that they had: what is under way for them goes on, see
    Environment.current_name.
    """
    renamed: dict[str, str] = {}
    names_by_way, unfinished = history.list_ways(), history.list_unfinished()
    for backup in env.config.backup.values():
        if backup.vault is None:
            continue
        way = env.way(backup)
        names = names_by_way.get(way, [])
        heirs = {_find_other_name(backup, backup.vault), *unfinished} - env.config.backup.keys()
        before = next((name for name in names if name in heirs), None)
        if before is None or backup.name in names:
            continue
        for folder in RECORD_FOLDERS:
            with contextlib.suppress(OSError, ZvaultError):
                RecordStore(env.paths.state / folder).rename(before, backup.name)
        # Last: who was killed before it does all of this again.
        history.rename_backup(before, backup.name, way, backup.vault)
        env.note_rename(before, backup.name)
        renamed[before] = backup.name
        log.info("%s was called %s: its history goes on", backup.name, before, extra={"BACKUP": backup.name})
    return renamed


def find_hooks_backup(env: Environment, about: HookRun) -> str:
    """The name that the backup has now of which a run had hooks: what is pending of it waits for the same vault."""
    if about.backup in env.config.backup:
        return about.backup
    heirs = [
        backup.name
        for backup in env.config.backup.values()
        if (backup.vault, str(backup.source)) == (about.vault, about.source)
    ]
    return heirs[0] if len(heirs) == 1 else about.backup


def _find_other_name(backup: Backup, vault: str) -> str:
    return backup.table_name if backup.siblings else f"{backup.name}@{vault}"
