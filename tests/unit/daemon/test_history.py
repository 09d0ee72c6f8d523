"""History is for people: it may be damaged, deleted or impossible, and no backup notices."""

import errno
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.api.backups import Side
from zvault.api.events import PrunedEvent, TransferFinished
from zvault.core.integrity.restore_time import TimedRead
from zvault.daemon import history as module
from zvault.daemon.history import RunHistory
from zvault.ops.explain.knowledge import PrunedSnapshot

FIGURES = {"bytes": 5, "datasets": 4, "sent": 3, "pruned": 2}
ERROR = {"reason": "conflict", "what": "what", "why": "why", "next": "next"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


@pytest.fixture
def history(file: Path) -> Iterator[RunHistory]:
    history = RunHistory(file)
    yield history
    history.close()


def add(history: RunHistory, run: str, started: float = 10.0, result: str = "ok", backup: str = "b") -> None:
    history.begin(run, backup, "hand", started)
    history.end(run, started + 5, result, FIGURES, ERROR if result != "ok" else None)


def ids(history: RunHistory, backup: str | None = None, limit: int = 20) -> list[str]:
    return [run["id"] for run in history.runs(backup, limit)]


def test_a_run_is_told_as_the_api_tells_it(history: RunHistory) -> None:
    add(history, "r1", result="partial")
    assert history.runs("b", 20) == [
        {
            "id": "r1",
            "backup": "b",
            "trigger": "hand",
            "started": 10.0,
            "ended": 15.0,
            "result": "partial",
            **FIGURES,
            "error": ERROR,
            "warning": None,
            "seconds": 5.0,
        }
    ]


def test_a_run_that_is_killed_has_sent_what_it_had_sent(file: Path, history: RunHistory) -> None:
    history.begin("r1", "b", "hand", 10.0)
    history.begin("r2", "b", "hand", 10.0)
    for number in range(5):
        for run in ("r1", "r2"):
            history.note_sent(sent(run, time=20.0 + 2 * number, run_bytes=100 * (number + 1)))
    history.end("r2", 40.0, "ok", FIGURES, None)
    killed = RunHistory(file)
    killed.interrupt_unfinished(50.0)
    told = {run["id"]: (run["result"], run["sent"], run["bytes"]) for run in killed.runs("b", 20)}
    assert told == {"r1": ("interrupted", 5, 500), "r2": ("ok", FIGURES["sent"], FIGURES["bytes"])}
    killed.close()


def test_streams_by_the_hundred_are_written_once_a_second(history: RunHistory) -> None:
    history.begin("r1", "b", "hand", 10.0)
    before = history._connection.total_changes
    for number in range(300):
        history.note_sent(sent("r1", time=20.0 + number / 100, run_bytes=number))
    assert history._connection.total_changes - before <= 4


def sent(run: str, time: float, run_bytes: int) -> TransferFinished:
    return TransferFinished(
        time=time,
        run=run,
        backup="b",
        dataset="tank",
        bytes=100,
        seconds=1.0,
        run_bytes=run_bytes,
        run_total=500,
    )


def test_only_runs_of_the_way_that_a_backup_goes_now_are_its_last(history: RunHistory) -> None:
    history.begin("r1", "b", "hand", 10.0, "tank to cold")
    history.end("r1", 15.0, "ok", FIGURES, None)
    add(history, "r2", 20)
    last = history.last("b", way="tank to cold")
    assert last is not None
    assert last["id"] == "r1"
    assert history.last("b", "ok", way="tank to new") is None


def test_a_warning_is_kept_also_in_a_file_of_an_older_version(file: Path, history: RunHistory) -> None:
    history.close()
    old = sqlite3.connect(file)
    old.execute("alter table run drop column warning")
    old.execute("alter table run drop column way")
    old.commit()
    old.close()
    anew = RunHistory(file)
    anew.begin("r1", "b", "hand", 10.0)
    anew.end("r1", 15.0, "ok", FIGURES, None, "its requests are small")
    (run,) = anew.runs("b", 1)
    anew.close()
    assert run["warning"] == "its requests are small"


def test_figures_beyond_what_the_file_keeps_do_not_lose_the_end_of_a_run(history: RunHistory) -> None:
    history.begin("r", "b", "hand", 1.0)
    history.end("r", 2.0, "ok", {**FIGURES, "bytes": 2**64 - 400}, None)
    [run] = history.runs(None, 1)
    assert (run["ended"], run["result"], run["bytes"]) == (2.0, "ok", 2**63 - 1)


def test_what_prune_limit_holds_back_is_that_of_the_last_pruning(file: Path, history: RunHistory) -> None:
    for run, backup, held_back in (
        ("r1", "b", {"source": 0, "vault": 2}),
        ("r2", "b", {"source": 1, "vault": 0}),
        ("r3", "b", None),  # it failed before it could prune
        ("r4", "c", {"source": 0, "vault": 0}),
    ):
        history.begin(run, backup, "hand", 10.0)
        history.end(run, 15.0, "ok", FIGURES, None, None, held_back)
    history.close()
    anew = RunHistory(file)
    assert anew.held_back() == {("b", "source"): 1, ("b", "vault"): 0, ("c", "source"): 0, ("c", "vault"): 0}
    anew.close()


def test_a_run_in_progress_has_no_end(history: RunHistory) -> None:
    history.begin("r1", "b", "schedule", 10.0)
    (run,) = history.runs("b", 1)
    assert (run["ended"], run["result"], run["seconds"], run["error"]) == (None, None, None, None)
    assert history.last("b") is None


def test_the_newest_come_first_of_all_backups_or_of_one(history: RunHistory) -> None:
    add(history, "r1", 10, backup="a")
    add(history, "r2", 30)
    add(history, "r3", 20)  # the clock was set back
    add(history, "r4", 20)
    assert ids(history) == ["r4", "r3", "r2", "r1"]
    assert ids(history, "b", 2) == ["r4", "r3"]
    assert ids(history, "nobody") == []
    assert ids(history, "a'; drop table run; --") == []
    assert ids(history, limit=10**30) == ["r4", "r3", "r2", "r1"]


def test_the_last_run_and_the_last_success_are_told_apart(history: RunHistory) -> None:
    add(history, "r1", 10)
    add(history, "r2", 20, "failed")
    history.begin("r3", "b", "hand", 30)
    last, success = history.last("b"), history.last("b", "ok")
    assert last is not None
    assert success is not None
    assert (last["id"], success["id"]) == ("r2", "r1")
    assert history.last("b", "interrupted") is None


def test_a_clock_that_was_set_back_hides_no_failure(history: RunHistory) -> None:
    add(history, "r1", 1000.0)
    add(history, "r2", 10.0, "failed")
    last = history.last("b")
    assert last is not None
    assert last["id"] == "r2"


def test_after_a_crash_unfinished_runs_are_interrupted(file: Path) -> None:
    before = RunHistory(file)
    add(before, "r1", 10)
    before.begin("r2", "b", "hand", 20)
    before.begin("r3", "c", "hand", 21)
    # No close: the daemon was killed.
    after = RunHistory(file)
    assert sorted(after.interrupt_unfinished(99.0)) == ["b", "c"]
    assert after.interrupt_unfinished(100.0) == []
    last = after.last("b")
    assert last is not None
    assert (last["id"], last["result"], last["ended"]) == ("r2", "interrupted", 99.0)


def test_only_so_many_runs_are_kept(history: RunHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_RUNS", 3)
    for number in range(6):
        add(history, f"r{number}", number)
    assert ids(history) == ["r5", "r4", "r3"]


def assert_works(history: RunHistory) -> None:
    add(history, "new", 1000)
    assert ids(history, limit=1) == ["new"]


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"\0" * 8192])
def test_a_file_that_is_no_database_is_set_aside(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    assert_works(RunHistory(file))
    assert file.with_suffix(".damaged").read_bytes() == content
    assert ids(RunHistory(file)) == ["new"]


def test_an_empty_file_is_a_new_history(file: Path) -> None:
    file.parent.mkdir()
    file.touch()
    assert_works(RunHistory(file))


def test_another_programs_table_is_set_aside(file: Path) -> None:
    file.parent.mkdir()
    with sqlite3.connect(file) as other:
        other.execute("create table run (id integer, colour text)")
    other.close()
    assert_works(RunHistory(file))
    assert file.with_suffix(".damaged").exists()


def test_a_damaged_page_found_while_the_daemon_runs_is_survived(file: Path, history: RunHistory) -> None:
    for number in range(150):
        history.begin(f"r{number}", "b" * 50, "hand", number)
    history.close()
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    again = RunHistory(file)
    file.write_bytes(content)
    assert again.runs(None, 10_000) == []
    assert_works(again)
    assert file.with_suffix(".damaged").exists()
    assert ids(RunHistory(file)) == ["new"]


def test_a_stale_journal_is_not_rolled_back_into_the_new_file(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database" * 1000)
    journal = file.with_name("history.sqlite-journal")
    journal.write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7" + b"\0" * 1000)
    assert_works(RunHistory(file))
    assert ids(RunHistory(file)) == ["new"]


def test_a_file_deleted_while_the_daemon_runs_is_made_anew(file: Path, history: RunHistory) -> None:
    add(history, "r1")
    file.unlink()
    assert history.last("b") is None
    assert_works(history)
    assert ids(RunHistory(file)) == ["new"]


def test_a_storage_that_fails_keeps_no_run_from_its_start(
    history: RunHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start asks whether the history knows the run's id."""

    def fails(_: Path) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "exists", fails)
    add(history, "r1")
    assert history.run("r2") is None
    assert history.run("r1") is not None


def test_a_folder_deleted_while_the_daemon_runs_is_made_anew(file: Path, history: RunHistory) -> None:
    file.unlink()
    file.parent.rmdir()
    assert_works(history)
    assert file.exists()


def test_a_file_replaced_while_the_daemon_runs_is_taken_up(
    file: Path, history: RunHistory, tmp_path: Path
) -> None:
    restored = RunHistory(tmp_path / "restored.sqlite")
    add(restored, "restored", 1)
    restored.close()
    (tmp_path / "restored.sqlite").replace(file)
    assert_works(history)
    assert ids(RunHistory(file)) == ["new", "restored"]


def test_where_no_file_can_be_had_memory_serves(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    history = RunHistory(tmp_path / "state" / "history.sqlite")
    assert_works(history)
    assert history.interrupt_unfinished(1.0) == []


def test_a_folder_in_the_files_place_is_left_alone(file: Path) -> None:
    (file / "precious").mkdir(parents=True)
    assert_works(RunHistory(file))
    assert (file / "precious").exists()


def test_a_file_somebody_locked_is_neither_set_aside_nor_waited_for_long(
    file: Path, history: RunHistory
) -> None:
    add(history, "r1")
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("begin exclusive")
    before = time.monotonic()
    history.begin("lost", "b", "hand", 20.0)
    assert time.monotonic() - before < 10
    other.execute("rollback")
    other.close()
    assert not file.with_suffix(".damaged").exists()
    add(history, "r2", 30)
    assert ids(RunHistory(file)) == ["r2", "r1"]


def limited(monkeypatch: pytest.MonkeyPatch, history: RunHistory, pragma: str) -> None:
    """From now on every file is opened under a limit, as of a filesystem that is full or became read-only."""
    opened = module.open_history

    def open_limited(file: Path | str) -> sqlite3.Connection:
        connection = opened(file)
        if file != ":memory:":
            connection.execute(pragma)
        return connection

    monkeypatch.setattr(module, "open_history", open_limited)
    history._connection.execute(pragma)


def test_what_cannot_be_written_is_remembered_and_written_later(
    file: Path, history: RunHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(history, "r1")
    history.begin("r2", "b", "hand", 20)
    limited(monkeypatch, history, "pragma query_only=on")
    history.end("r2", 25.0, "ok", FIGURES, None)
    add(history, "r3", 30, "failed")
    assert history.trouble is not None
    assert "readonly" in history.trouble
    assert [(run["id"], run["result"]) for run in history.runs("b", 9)] == [
        ("r3", "failed"),
        ("r2", "ok"),
        ("r1", "ok"),
    ]
    assert ids(RunHistory(file)) == ["r2", "r1"]
    history.return_to_file()
    assert history.trouble is not None
    monkeypatch.undo()
    history.return_to_file()
    assert history.trouble is None
    add(history, "r4", 40)
    again = RunHistory(file)
    assert ids(again) == ["r4", "r3", "r2", "r1"]
    last = again.last("b", "failed")
    assert last is not None
    assert again.runs("b", 9)[2]["result"] == "ok"


def test_a_full_disk_loses_no_run_while_the_daemon_runs(
    file: Path, history: RunHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(history, "r1")
    (pages,) = history._connection.execute("pragma page_count").fetchone()
    limited(monkeypatch, history, f"pragma max_page_count={pages}")
    for number in range(2, 40):
        add(history, f"r{number}", number, backup="b" * 200)
    assert history.trouble is not None
    assert len(ids(history, limit=100)) == 39
    monkeypatch.undo()
    history.return_to_file()
    assert len(ids(RunHistory(file), limit=100)) == 39


def test_a_file_that_cannot_be_had_from_the_start_is_made_once_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.write_text("a file where the folder should be")
    history = RunHistory(folder / "history.sqlite")
    add(history, "r1")
    read = TimedRead("drill", "b", "cold", 12.0, 1 << 30, 60.0)
    history.add_reading("r1", read)
    history.put_held("b", "from here to there", 15.0, 5 << 30)
    history.return_to_file()
    assert history.trouble is not None
    folder.unlink()
    history.return_to_file()
    assert history.trouble is None
    written = RunHistory(folder / "history.sqlite")
    assert ids(written) == ["r1"]
    assert (written.readings(), written.held()) == ([read], {"b": ("from here to there", 5 << 30)})


def test_a_run_that_ends_but_never_began_is_no_error(history: RunHistory) -> None:
    history.end("unknown", 1.0, "ok", FIGURES, None)
    assert ids(history) == []


def pruned(run: str, *snapshots: str, side: Side = "source", at: float = 7.0) -> PrunedEvent:
    return PrunedEvent(
        run=run, backup="b", time=at, side=side, count=len(snapshots), snapshots=list(snapshots)
    )


def test_what_was_pruned_is_told_by_name(file: Path, history: RunHistory) -> None:
    history.note_pruned(pruned("r1", "tank@a", "tank@b"))
    history.note_pruned(pruned("r1", "tank@a", "tank@b"))
    history.note_pruned(pruned("r2", "cold/tank@a", side="vault", at=8.0))
    assert history.pruned("tank@a") == [PrunedSnapshot("r1", "b", "source", 7.0)]
    assert history.pruned("cold/tank@a") == [PrunedSnapshot("r2", "b", "vault", 8.0)]
    assert history.pruned("tank@c") == []
    history.note_pruned(pruned("r3", "tank@a", at=9.0))
    assert [one.run for one in RunHistory(file).pruned("tank@a")] == ["r3", "r1"]


def test_only_so_many_pruned_snapshots_are_kept(history: RunHistory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_PRUNED", 3)
    history.note_pruned(pruned("r1", *(f"tank@{number}" for number in range(5))))
    assert [number for number in range(5) if history.pruned(f"tank@{number}")] == [2, 3, 4]


def test_what_was_pruned_while_the_file_could_not_be_written_is_written_later(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.mkdir()
    history = RunHistory(file)
    history.note_pruned(pruned("r1", "tank@a"))
    file.rmdir()
    history.return_to_file()
    assert history.trouble is None
    assert [one.run for one in RunHistory(file).pruned("tank@a")] == ["r1"]


def test_a_backup_with_another_name_has_the_history_of_its_way(history: RunHistory) -> None:
    for run, way in (("r1", "to cold"), ("r2", "to usb"), ("r3", "to cold")):
        history.begin(run, "b", "hand", 10.0, way)
        history.end(run, 15.0, "ok", FIGURES, None)
    history.put_held("b", "to cold", 1.0, 7)
    history.add_reading("r1", TimedRead("restore", "b", "cold", 1.0, 1 << 30, 1.0))
    assert not history.has_runs("b", "to far")
    history.rename_backup("b", "b@cold", "to cold", "cold")
    assert (history.has_runs("b", "to cold"), history.has_runs("b@cold", "to cold")) == (False, True)
    assert (ids(history, "b@cold"), ids(history, "b")) == (["r3", "r1"], ["r2"])
    assert [run["id"] for run in history.runs(["b", "b@cold"], 9)] == ["r3", "r2", "r1"]
    assert history.held() == {"b@cold": ("to cold", 7)}
    assert [one.backup for one in history.readings()] == ["b@cold"]
    history.rename_backup("b@cold", "b", "to cold", "cold")
    assert ids(history, "b") == ["r3", "r2", "r1"]
