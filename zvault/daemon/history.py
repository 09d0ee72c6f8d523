"""The history of runs, for people. No decision rests on it; deleting the file loses only the past."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = """
create table if not exists run (
    id text primary key,
    backup text not null,
    trigger text not null,
    started real not null,
    ended real,
    result text,
    bytes integer not null default 0,
    datasets integer not null default 0,
    sent integer not null default 0,
    pruned integer not null default 0,
    error text
);
create index if not exists run_by_backup on run (backup, started);
"""

KEPT = 10_000
"""Runs remembered; a year of hourly runs of one backup."""


class History:
    """Runs in SQLite. A damaged or unwritable file is set aside: history must never stop a backup."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._opened()
        except sqlite3.DatabaseError:
            self.file.replace(self.file.with_suffix(".damaged"))
            return self._opened()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.file, isolation_level=None, timeout=5.0)
        connection.row_factory = sqlite3.Row
        connection.executescript(SCHEMA)
        return connection

    def begin(self, run: str, backup: str, trigger: str, started: float) -> None:
        """Write down that a run has begun."""
        self._connection.execute(
            "insert into run (id, backup, trigger, started) values (?, ?, ?, ?)",
            (run, backup, trigger, started),
        )
        self._connection.execute(
            "delete from run where id in (select id from run order by started desc limit -1 offset ?)",
            (KEPT,),
        )

    def end(self, run: str, ended: float, result: str, figures: Mapping[str, int], error: object) -> None:
        """Write down how a run ended. ``figures``: bytes, datasets, sent, pruned."""
        self._connection.execute(
            "update run set ended=?, result=?, bytes=?, datasets=?, sent=?, pruned=?, error=? where id=?",
            (
                ended,
                result,
                figures["bytes"],
                figures["datasets"],
                figures["sent"],
                figures["pruned"],
                json.dumps(error) if error else None,
                run,
            ),
        )

    def interrupt_unfinished(self, now: float) -> list[str]:
        """Mark runs that never ended, as after a crash, and name their backups."""
        rows = self._connection.execute("select distinct backup from run where ended is null").fetchall()
        self._connection.execute("update run set ended=?, result='interrupted' where ended is null", (now,))
        return [row["backup"] for row in rows]

    def runs(self, backup: str | None, limit: int) -> list[dict[str, Any]]:
        """The newest runs first."""
        where, values = ("where backup=?", [backup]) if backup else ("", [])
        rows = self._connection.execute(
            f"select * from run {where} order by started desc, rowid desc limit ?",  # noqa: S608 - no input in it
            (*values, limit),
        )
        return [_document(row) for row in rows]

    def last(self, backup: str, result: str | None = None) -> dict[str, Any] | None:
        """The newest ended run of a backup, or the newest with that result."""
        row = self._connection.execute(
            "select * from run where backup=? and ended is not null and (? is null or result=?)"
            " order by started desc, rowid desc limit 1",
            (backup, result, result),
        ).fetchone()
        return _document(row) if row else None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _document(row: sqlite3.Row) -> dict[str, Any]:
    document = dict(row)
    document["error"] = json.loads(row["error"]) if row["error"] else None
    document["seconds"] = (row["ended"] - row["started"]) if row["ended"] else None
    return document
