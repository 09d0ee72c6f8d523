"""zvaultctl lag and history --plot: the figures, the bars at every width, and the exit status."""

from __future__ import annotations

import time

import pytest

from tests.unit.cli.api_documents import backup, status, trouble
from tests.unit.cli.test_terminal import Terminal

HOUR = 3600.0


def run(number, **changes):
    return {
        "id": f"r{number}",
        "backup": "home",
        "trigger": "schedule",
        "started": time.time() - number * HOUR,
        "ended": time.time() - number * HOUR + 60,
        "result": "ok",
        "bytes": number << 20,
        "datasets": 3,
        "sent": 1,
        "pruned": 0,
        "error": None,
        "warning": None,
        "seconds": 60.0 * number,
    } | changes


@pytest.fixture
def filled(daemon):
    late = backup("mail", lag_seconds=5 * HOUR, late=True)
    unknown = backup("a-name-that-is-rather-long", lag_seconds=None, max_lag_seconds=None, last_success=None)
    daemon.documents["GET /v1/status"] = status(backup(lag_seconds=HOUR), late, unknown)
    runs = [
        run(3),
        run(20, result="failed", error=trouble()),
        run(30, backup="mail", result=None, ended=None),
    ]
    daemon.documents["GET /v1/history"] = {"runs": runs}
    return daemon


def test_the_table(filled, ctl):
    said = ctl("lag")
    assert said.code == 1
    assert [line.split()[:4] for line in said.lines[:3]] == [
        ["BACKUP", "HEALTH", "LAG", "MAX"],
        ["home", "ok", "1h", "3h"],
        ["mail", "late", "5h", "3h"],
    ]
    assert said.lines[3].split()[2] == "unknown"
    assert ctl("lag", "-H", "-p", "-o", "backup,lag,max_lag").cells[0] == ["home", "3600", "10800"]


def test_some_backups_and_the_exit_status(filled, ctl):
    assert ctl("lag", "home").code == 0
    assert ctl("lag", "a-name-that-is-rather-long").code == 3
    said = ctl("lag", "nope")
    assert said.code == 2
    assert "there is no backup 'nope'" in said.err


def test_the_document(filled, ctl):
    assert '"command": "zvaultctl lag"' in ctl("lag", "-j").out
    assert '"lag_seconds": 3600.0' in ctl("lag", "home", "-j", "-o", "lag").out


def test_without_a_terminal_it_is_plain(filled, ctl):
    said = ctl("lag", "home", "mail", "--plot")
    assert "\x1b" not in said.out
    first = said.lines[0]
    assert first.startswith("home  ")
    assert first.endswith("1h of 3h ok")
    assert max(map(len, said.lines)) <= 80
    assert said.lines[2].endswith("5h of 3h late")


def bars(line):
    return [sign for sign in line if sign in "█░▓·▁▂▃▄▅▆▇#.!?"]


@pytest.mark.parametrize("columns", [20, 21, 34, 60, 80, 200])
@pytest.mark.parametrize("verb", [("lag", "--plot"), ("history", "--plot")])
def test_every_width(filled, verb, columns):
    terminal = Terminal(*verb, columns=columns)
    assert terminal.code() == (1 if verb[0] == "lag" else 0)
    lines = terminal.plain.splitlines()
    assert max(map(len, lines)) <= columns
    assert any(len(bars(line)) >= 12 for line in lines)
    words = " ".join(lines)
    assert "late" in words if verb[0] == "lag" else "failed" in words


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_refused_and_is_a_word_too(filled, environment):
    plain = Terminal("lag", "--plot", **environment)
    assert plain.code() == 1
    assert "\x1b" not in plain.text
    coloured = Terminal("lag", "--plot")
    coloured.code()
    assert "\x1b[33m5h of 3h late" in coloured.text


def test_an_output_that_has_no_blocks(filled):
    terminal = Terminal("lag", "--plot", PYTHONIOENCODING="ascii")
    terminal.code()
    assert terminal.text.isascii()
    assert "###" in terminal.plain


def test_the_history_has_its_oldest_first(filled, ctl):
    said = ctl("history", "--plot")
    assert said.code == 0
    assert [line.split()[2] for line in said.lines[:3]] == ["mail", "home", "home"]
    assert said.lines[0].endswith(" running")
    assert "how long they took: 30m at most" in said.out
    daemon_asked = filled.asked[-1]
    assert daemon_asked[1] == {"limit": "20"}


def test_one_that_failed_and_is_late_says_both(daemon, ctl):
    both = backup("mail", lag_seconds=5 * HOUR, late=True, last_result="failed", last_error=trouble())
    daemon.documents["GET /v1/status"] = status(both)
    daemon.documents["GET /v1/history"] = {"runs": []}
    assert ctl("lag", "--plot").lines[0].endswith("5h of 3h failed and late")


def test_no_runs_at_all(daemon, ctl):
    daemon.documents["GET /v1/history"] = {"runs": []}
    said = ctl("history", "--plot")
    assert (said.code, said.out) == (0, "")
    assert "no runs" in said.err


def test_what_makes_snapshots_only_has_no_lag(daemon, ctl):
    alone = backup("alone", vault=None, lag_seconds=None)
    daemon.documents["GET /v1/status"] = status(backup(), alone)
    said = ctl("lag")
    assert "alone" not in said.out
    assert "home" in said.out
    said = ctl("lag", "alone")
    assert said.code == 2
    assert "it has no vault" in said.err
