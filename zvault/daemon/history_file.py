"""The history's file: its tables, what an older version lacks, and which of SQLite's errors mean what."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

HISTORY_SCHEMA = """
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
    error text,
    warning text,
    way text,
    held_back text,
    made_by text
);
create index if not exists run_in_order on run (backup);
create table if not exists pruned (
    run text not null,
    backup text not null,
    side text not null,
    at real not null,
    snapshot text not null,
    unique (run, side, snapshot)
);
create index if not exists pruned_by_name on pruned (snapshot);
create table if not exists reading (
    run text not null,
    vault text not null,
    kind text not null,
    backup text not null,
    at real not null,
    bytes integer not null,
    seconds real not null,
    unique (run, kind, at)
);
create table if not exists held (
    backup text primary key,
    way text,
    at real not null,
    bytes integer not null
);
"""
DAMAGED_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""Result codes (sqlite.org/rescode.html) of a file that will not get better; SQLITE_ERROR: it holds something else."""
PASSING_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
"""Result codes of a trouble that passes by itself: a record is lost, the file is not."""
UNWRITABLE_CODES = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}
"""Result codes of a file that may be read, but not be written now."""


def open_history(file: Path | str) -> sqlite3.Connection:
    """The file, with its tables as this version has them. Raises sqlite3.Error."""
    connection = sqlite3.connect(file, isolation_level=None, timeout=1.0)
    connection.row_factory = sqlite3.Row
    try:
        connection.executescript(HISTORY_SCHEMA)
        _add_what_came_later(connection)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def merge_history(source: sqlite3.Connection, into: sqlite3.Connection) -> None:
    """Have every run of one history in another, as it is there, in the order in which they began; all or none."""
    rows = source.execute("select * from run order by rowid").fetchall()
    into.execute("begin")
    try:
        for row in rows:
            columns = row.keys()
            news = ", ".join(f"{name}=excluded.{name}" for name in columns)
            into.execute(
                f"insert into run ({', '.join(columns)}) values ({', '.join('?' for _ in columns)})"  # noqa: S608
                f" on conflict (id) do update set {news}",
                tuple(row),
            )
        rows = source.execute("select run, backup, side, at, snapshot from pruned order by rowid").fetchall()
        into.executemany("insert or ignore into pruned values (?, ?, ?, ?, ?)", [tuple(row) for row in rows])
        _copy_table(source, into, "reading", "or ignore")
        _copy_table(source, into, "held", "or replace")
        into.execute("commit")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            into.execute("rollback")
        raise


def _copy_table(source: sqlite3.Connection, into: sqlite3.Connection, table: str, otherwise: str) -> None:
    rows = [tuple(row) for row in source.execute(f"select * from {table} order by rowid")]  # noqa: S608
    if rows:
        places = ", ".join("?" for _ in rows[0])
        into.executemany(f"insert {otherwise} into {table} values ({places})", rows)  # noqa: S608


def _add_what_came_later(connection: sqlite3.Connection) -> None:
    """A file that an older version made lacks columns."""
    columns = {row["name"] for row in connection.execute("pragma table_info(run)")}
    for later in ("warning", "way", "held_back", "made_by"):
        if later not in columns:
            connection.execute(f"alter table run add column {later} text")


def find_error_code(error: sqlite3.Error) -> int:
    """The primary result code; 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
