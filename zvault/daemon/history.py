"""The history of runs, for people. No decision rests on it; deleting the file loses only the past."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from zvault.api.events import PrunedEvent, TransferFinished
from zvault.api.runs import RunDocument, RunResult
from zvault.core.errors import ErrorDocument
from zvault.core.health.days import PastRun
from zvault.core.integrity.restore_time import READING_KINDS, TimedRead
from zvault.daemon.history_file import (
    DAMAGED_CODES,
    PASSING_CODES,
    UNWRITABLE_CODES,
    find_error_code,
    merge_history,
    open_history,
)
from zvault.ops.explain.knowledge import PrunedSnapshot

OTHER_TRIGGERS = ("restore", "prune", "scrub", "heal", "verify", "snapshot")
"""Triggers of runs that back nothing up: they tell nothing of how a backup fares."""
FEW_PRUNED = 10
"""Records of one name that are told: a name comes again only where somebody makes it by hand."""
LARGEST_NUMBER = 2**63 - 1
"""The largest number that SQLite keeps."""
KEPT_RUNS = 10_000
"""Runs remembered; a year of hourly runs of one backup."""
KEPT_PRUNED = 200_000
"""Pruned snapshots remembered, some 30 MB: three months of 100 datasets that are snapshotted every hour."""
KEPT_READINGS = 10
"""Readings of one kind that are remembered of a backup's vault."""
SENT_INTERVAL = 1.0
"""Seconds between two updates of what a run has sent: each waits for the disk, and small streams end by the hundred."""
log = logging.getLogger(__name__)


class RunHistory:
    """Runs in SQLite. History must never stop a backup, so no call fails for what befell the file.

    Runs come in the order in which they began, not by their times: a clock that was set back must not hide the newest.
    A damaged file is set aside and a new one begun, also while the daemon runs; one that was deleted is made
    anew. Where none can be had or written, runs are remembered in memory, and written once that is possible again.
    ``trouble`` says why they are not in the file; None where they are.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.trouble: str | None = None
        self._in_memory = False
        self._sent: dict[str, tuple[int, float]] = {}
        """By run under way: its streams that went through, and when that was written last (seconds since the epoch)."""
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            try:
                return open_history(self.file)
            except sqlite3.DatabaseError as error:
                if find_error_code(error) not in DAMAGED_CODES:
                    raise
                self._set_aside(error)
                return open_history(self.file)
        except (sqlite3.Error, OSError) as error:
            log.warning("the history cannot be kept in %s, only in memory: %s", self.file, error)
            self._in_memory, self.trouble = True, str(error)
            return open_history(":memory:")

    def _set_aside(self, error: sqlite3.Error) -> None:
        aside = self.file.with_suffix(".damaged")
        log.warning("the history is damaged (%s): it is now %s, and a new one begins", error, aside)
        self.file.replace(aside)
        # A journal left behind would be rolled back into the new file.
        self.file.with_name(f"{self.file.name}-journal").unlink(missing_ok=True)

    def _do(self, sql: str, values: Sequence[object] = ()) -> list[sqlite3.Row]:
        """Run one statement, if need be on a file made anew; nothing comes back where that fails too."""
        try:
            if self._in_memory or self._is_there():
                return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            log.warning("the history %s fails: %s", self.file, error)
            if find_error_code(error) in PASSING_CODES:
                return []
            if find_error_code(error) in DAMAGED_CODES:
                with contextlib.suppress(OSError):
                    self._set_aside(error)
        self._connection.close()
        self._connection = self._connect()
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            log.error("the history %s fails: %s", self.file, error)
            if find_error_code(error) in UNWRITABLE_CODES and not self._in_memory:
                return self._do_in_memory(error, sql, values)
            return []

    def _is_there(self) -> bool:
        """False if the file was deleted. Where that cannot be told, its storage fails, and SQLite says how."""
        try:
            return self.file.exists()
        except OSError:
            return True

    def _do_in_memory(self, error: sqlite3.Error, sql: str, values: Sequence[object]) -> list[sqlite3.Row]:
        """Go on with a copy in memory, as far as the file can be read."""
        memory = open_history(":memory:")
        with contextlib.suppress(sqlite3.Error):
            merge_history(self._connection, memory)
        self._connection.close()
        self._connection = memory
        self._in_memory, self.trouble = True, str(error)
        return self._do(sql, values)

    def return_to_file(self) -> None:
        """Write what is only in memory into the file, if there is such, and if that goes by now."""
        if not self._in_memory:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            connection = open_history(self.file)
        except (sqlite3.Error, OSError) as error:
            self.trouble = str(error)
            return
        try:
            merge_history(self._connection, connection)
        except sqlite3.Error as error:
            self.trouble = str(error)
            connection.close()
            return
        self._connection.close()
        self._connection = connection
        self._in_memory, self.trouble = False, None

    def begin(self, run: str, backup: str, trigger: str, started: float, way: str | None = None) -> None:
        """Write down that a run has begun, of a backup that goes this ``way`` (Environment.way)."""
        self._do(
            "insert into run (id, backup, trigger, started, way) values (?, ?, ?, ?, ?)",
            (run, backup, trigger, started, way),
        )
        self._do(
            "delete from run where id in (select id from run order by rowid desc limit -1 offset ?)",
            (KEPT_RUNS,),
        )

    def end(
        self,
        run: str,
        ended: float,
        result: RunResult,
        figures: Mapping[str, int],
        error: ErrorDocument | None,
        warning: str | None = None,
        held_back: Mapping[str, int] | None = None,
    ) -> None:
        """Write down how a run ended. ``figures``: bytes, datasets, sent, pruned.

        ``held_back`` counts by side the datasets of which prune_limit held something back; None where it did not prune.
        """
        self._sent.pop(run, None)
        self._do(
            "update run set ended=?, result=?, bytes=?, datasets=?, sent=?, pruned=?, error=?, warning=?,"
            " held_back=? where id=?",
            (
                ended,
                result,
                *(min(figures[key], LARGEST_NUMBER) for key in ("bytes", "datasets", "sent", "pruned")),
                json.dumps(error) if error else None,
                warning,
                json.dumps(held_back) if held_back is not None else None,
                run,
            ),
        )

    def has_runs(self, backup: str, way: str) -> bool:
        """True if a run is written down of a backup of this name that went this ``way``."""
        return bool(self._do("select 1 from run where backup=? and way=? limit 1", (backup, way)))

    def rename_backup(self, before: str, name: str, way: str, vault: str) -> None:
        """Have what is written down of a backup under another name from now on, as far as it went this ``way``.

        Its runs come last: has_runs says that nothing is left under the old name.
        """
        self._do(
            "update pruned set backup=? where run in (select id from run where backup=? and way=?)",
            (name, before, way),
        )
        self._do("update reading set backup=? where backup=? and vault=?", (name, before, vault))
        self._do("update or replace held set backup=? where backup=? and way=?", (name, before, way))
        self._do("update run set backup=? where backup=? and way=?", (name, before, way))

    def skip(self, run: str, made_by: str) -> None:
        """Write down that another host has made a backup's run in the place of this one, as it says."""
        self._do("update run set made_by=? where id=?", (made_by, run))

    def note_pruned(self, event: PrunedEvent) -> None:
        """Write down what was pruned, all by one statement: each waits for the disk."""
        self._do(
            "insert or ignore into pruned (run, backup, side, at, snapshot) select ?, ?, ?, ?, value from json_each(?)",
            (event.run, event.backup, event.side, event.time, json.dumps(event.snapshots)),
        )
        self._do("delete from pruned where rowid <= (select max(rowid) from pruned) - ?", (KEPT_PRUNED,))

    def add_reading(self, run: str, reading: TimedRead) -> None:
        """Write down how fast a vault was read in a run; of each kind the newest KEPT_READINGS of a backup stay."""
        self._do(
            "insert or ignore into reading (run, vault, kind, backup, at, bytes, seconds) values (?, ?, ?, ?, ?, ?, ?)",
            (
                run,
                reading.vault,
                reading.kind,
                reading.backup,
                reading.at,
                min(reading.bytes, LARGEST_NUMBER),
                reading.seconds,
            ),
        )
        self._do(
            "delete from reading where rowid in"
            " (select rowid from reading where vault=? and kind=? and backup=? order by rowid desc limit -1 offset ?)",
            (reading.vault, reading.kind, reading.backup, KEPT_READINGS),
        )

    def readings(self) -> list[TimedRead]:
        """How fast vaults were read, as far as that is written down, the oldest first."""
        rows = self._do("select * from reading order by rowid")
        return [
            TimedRead(row["kind"], row["backup"], row["vault"], row["at"], row["bytes"], row["seconds"])
            for row in rows
            if row["kind"] in READING_KINDS
        ]

    def put_held(self, backup: str, way: str | None, at: float, size: int) -> None:
        """Write down how many bytes a backup is on its vault, while it goes this ``way``."""
        self._do(
            "insert or replace into held (backup, way, at, bytes) values (?, ?, ?, ?)",
            (backup, way, at, min(size, LARGEST_NUMBER)),
        )

    def held(self) -> dict[str, tuple[str | None, int]]:
        """By backup the way that it went, and how many bytes it was on its vault."""
        return {row["backup"]: (row["way"], row["bytes"]) for row in self._do("select * from held")}

    def note_sent(self, event: TransferFinished) -> None:
        """Write down how far a run is, at most once a SENT_INTERVAL: a run that is killed would have sent nothing."""
        run, now = event.run, event.time
        sent, written = self._sent.get(run, (0, float("-inf")))
        due = abs(now - written) >= SENT_INTERVAL
        self._sent[run] = sent + 1, now if due else written
        if due:
            self._do(
                "update run set sent=?, bytes=? where id=?",
                (sent + 1, min(event.run_bytes, LARGEST_NUMBER), run),
            )

    def pruned(self, snapshot: str) -> list[PrunedSnapshot]:
        """The records of a snapshot of that full name having been pruned, the newest first."""
        rows = self._do(
            "select * from pruned where snapshot=? order by rowid desc limit ?", (snapshot, FEW_PRUNED)
        )
        return [PrunedSnapshot(row["run"], row["backup"], row["side"], row["at"]) for row in rows]

    def interrupt_unfinished(self, now: float, error: ErrorDocument | None = None) -> list[str]:
        """Mark runs that never ended, as after a crash, with the ``error`` that tells why, and name their backups."""
        rows = self._do("select distinct backup from run where ended is null")
        self._do(
            "update run set ended=?, result='interrupted', error=? where ended is null",
            (now, json.dumps(error) if error else None),
        )
        return [row["backup"] for row in rows]

    def runs(self, backup: str | Sequence[str] | None, limit: int) -> list[RunDocument]:
        """The newest runs first, of all or of some backups."""
        names = None if backup is None else json.dumps([backup] if isinstance(backup, str) else list(backup))
        rows = self._do(
            "select * from run where ? is null or backup in (select value from json_each(?))"
            " order by rowid desc limit ?",
            (names, names, min(limit, KEPT_RUNS)),
        )
        return [_document(row) for row in rows]

    def past(self, since: float) -> list[tuple[str, PastRun]]:
        """Backups' runs that ended since a time (seconds since the epoch), in the order in which they began."""
        rows = self._do(
            f"select backup, started, ended, result, bytes from run where trigger not in ({', '.join('?' for _ in OTHER_TRIGGERS)})"  # noqa: S608, E501
            " and ended >= ? and result is not null and result != 'skipped' order by rowid",
            (*OTHER_TRIGGERS, since),
        )
        return [
            (row["backup"], PastRun(row["started"], row["ended"], row["result"], row["bytes"]))
            for row in rows
        ]

    def begins(self) -> float | None:
        """Return when the oldest run began of which anything is known; None where there is none."""
        rows = self._do("select min(started) as first from run")
        return float(rows[0]["first"]) if rows and rows[0]["first"] is not None else None

    def run(self, id: str) -> RunDocument | None:
        """The run with a number; None where there is none, or no more."""
        rows = self._do("select * from run where id=?", (id,))
        return _document(rows[0]) if rows else None

    def last(
        self, backup: str, result: RunResult | None = None, *, way: str | None = None
    ) -> RunDocument | None:
        """The newest ended run of a backup, or the newest with that result. What is ASIDE tells nothing of it, nor does
        one that another host made.

        With a ``way`` only runs count from when the backup was configured to go that way.
        """
        rows = self._do(
            f"select * from run where backup=? and trigger not in ({', '.join('?' for _ in OTHER_TRIGGERS)})"  # noqa: S608
            " and ended is not null and result != 'skipped' and (? is null or result=?) and (? is null or way=?)"
            " order by rowid desc limit 1",
            (backup, *OTHER_TRIGGERS, result, result, way, way),
        )
        return _document(rows[0]) if rows else None

    def made_since(self, backup: str, *, way: str | None = None) -> str | None:
        """Which other host has made a run of a backup since this one's own newest that ended, as it says."""
        rows = self._do(
            f"select made_by from run where backup=? and trigger not in ({', '.join('?' for _ in OTHER_TRIGGERS)})"  # noqa: S608
            " and ended is not null and (result != 'skipped' or made_by is not null) and (? is null or way=?)"
            " order by rowid desc limit 1",
            (backup, *OTHER_TRIGGERS, way, way),
        )
        return rows[0]["made_by"] if rows else None

    def cut_off(self, backup: str) -> bool:
        """True if the last run of a backup was cut short, and nobody has made one since."""
        last = self.last(backup)
        return last is not None and last["result"] == "interrupted" and self.made_since(backup) is None

    def held_back(self) -> dict[tuple[str, str], int]:
        """By backup and side, of how many datasets prune_limit held something back when it was last pruned."""
        rows = self._do(
            "select backup, held_back from run where rowid in"
            " (select max(rowid) from run where held_back is not null group by backup)"
        )
        found: dict[tuple[str, str], int] = {}
        for row in rows:
            with contextlib.suppress(ValueError, AttributeError):
                found |= {(row["backup"], side): int(n) for side, n in json.loads(row["held_back"]).items()}
        return found

    def last_begun(self, backup: str, way: str | None) -> float | None:
        """Return when the newest run that went a ``way`` and got as far as its snapshot began, in seconds since the
        epoch.

        None where there is none. One that was cut short does not count: it is taken up again.
        """
        rows = self._do(
            f"select started from run where backup=? and trigger not in ({', '.join('?' for _ in OTHER_TRIGGERS)})"  # noqa: S608
            " and result in ('ok', 'partial', 'failed') and datasets > 0 and way=? order by rowid desc limit 1",
            (backup, *OTHER_TRIGGERS, way),
        )
        return float(rows[0]["started"]) if rows else None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _document(row: sqlite3.Row) -> RunDocument:
    return {
        "id": row["id"],
        "backup": row["backup"],
        "trigger": row["trigger"],
        "started": row["started"],
        "ended": row["ended"],
        "result": row["result"],
        "bytes": row["bytes"],
        "datasets": row["datasets"],
        "sent": row["sent"],
        "pruned": row["pruned"],
        "error": json.loads(row["error"]) if row["error"] else None,
        "warning": row["warning"],
        # The clock may have been set back meanwhile.
        "seconds": max(0.0, row["ended"] - row["started"]) if row["ended"] else None,
    }
