"""How long each backup takes to restore: what was read of its vault, and how much it is there."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

from zvault.api.events import VaultHolds, VaultRead
from zvault.api.restore import RestoreTimeDocument
from zvault.config.schema import Backup
from zvault.core.integrity.restore_time import (
    DATASET_KINDS,
    ReadingKind,
    RestoreEstimate,
    TimedRead,
    choose_reading,
)
from zvault.daemon.history import KEPT_READINGS, RunHistory
from zvault.daemon.per_backup import ValuesByBackup, move_names
from zvault.ops.state.environment import Environment


class RestoreTimes:
    """Takes from events what tells how long a restore takes, and keeps it in the history for the next daemon.

    Who deletes the history gets it again of the next drill, verification, restore or scrub, and the next run.
    """

    def __init__(self, env: Environment, history: RunHistory) -> None:
        self._env, self._history = env, history
        self._readings: dict[tuple[str, ReadingKind, str | None], deque[TimedRead]] = defaultdict(
            lambda: deque(maxlen=KEPT_READINGS)
        )
        """By vault, kind and backup; with None for the backup the newest of all, so that none looks through all."""
        self.held: ValuesByBackup[int] = ValuesByBackup(env)
        """How many bytes each backup is on its vault."""
        self._earlier = history.held()
        for one in history.readings():
            self._keep(one)
        env.heed_renames(self._heed_rename)

    def _heed_rename(self, before: str, name: str) -> None:
        move_names(before, name, [self._earlier])
        for vault, kind, backup in [key for key in self._readings if key[2] == before and key[1] != "scrub"]:
            found = self._readings.pop((vault, kind, backup))
            self._readings[vault, kind, name].extend(replace(one, backup=name) for one in found)

    def _keep(self, one: TimedRead) -> None:
        for backup in (one.backup, None):
            self._readings[one.vault, one.kind, backup].append(one)

    def note_reading(self, event: VaultRead) -> None:
        """Keep how fast a vault was read in a run."""
        one = TimedRead(event.kind, event.backup, event.vault, event.time, event.bytes, event.seconds)
        if one.believed:
            self._keep(one)
            self._history.add_reading(event.run, one)

    def note_held(self, event: VaultHolds) -> None:
        """Keep how many bytes a backup is on its vault."""
        name, way = event.backup, self.held.way(event.backup)
        self.held.put(name, event.bytes, way)
        self._history.put_held(name, way, event.time, event.bytes)

    def estimate_restore(
        self, backup: Backup, size: int | None, kinds: Sequence[ReadingKind] = DATASET_KINDS
    ) -> RestoreEstimate:
        """Estimate a restore of ``size`` bytes of a backup, by the readings of its vault."""
        now, chosen = self._env.clock.time(), None
        for kind in kinds if backup.vault is not None else ():
            keys = ((backup.vault, kind, backup.name), (backup.vault, kind, None))
            known = [one for key in keys if key in self._readings for one in self._readings[key]]
            if (chosen := choose_reading(known, backup.name, now, (kind,))) is not None:
                break
        return RestoreEstimate(backup.name, now, size, chosen)

    def estimate_whole(self, backup: Backup) -> RestoreEstimate | None:
        """Estimate a restore of all of a backup; None of one that has no vault."""
        if backup.vault is None:
            return None
        return self.estimate_restore(backup, self._held(backup.name))

    def _held(self, name: str) -> int | None:
        if name in self.held:
            return self.held[name]
        way, size = self._earlier.get(name, (None, None))
        return size if way is not None and way == self.held.way(name) else None


def make_restore_time(estimate: RestoreEstimate) -> RestoreTimeDocument:
    """An estimate as the API sends it."""
    reading = estimate.reading
    return {
        "seconds": estimate.seconds,
        "bytes": estimate.bytes,
        "rate": reading.rate if reading is not None else None,
        "measured": reading.at if reading is not None else None,
        "measured_by": reading.kind if reading is not None else None,
        "measured_bytes": reading.bytes if reading is not None else None,
        "told": estimate.describe(),
    }
