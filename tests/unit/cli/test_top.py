"""zvaultctl top: what a frame shows on a screen of any size, and the program itself in a real terminal."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.cli.api_documents import (
    FIGURES,
    backup,
    device,
    event,
    finished,
    run_events,
    status,
    store,
    transfer,
    trouble,
    vault,
)
from tests.unit.cli.test_terminal import Terminal
from tests.unit.cli.verbs.test_doctor import document as doctor
from zvault.cli.plot import ASCII_INK
from zvault.cli.top.frame import TOP_SORTS, draw_top_frame
from zvault.cli.top.state import StoreRates, TopState

NOW = 1_790_000_000.0


def running(name="home", **changes):
    fields = {"state": "running", "run": "42", "bytes_done": 1 << 29, "bytes_total": 1 << 30}
    return backup(name, **fields | changes)


def put(count, **changes):
    return {
        "requests": count,
        "errors": 0,
        "bytes": count << 20,
        "seconds": count / 10,
        "buckets": [],
    } | changes


def stored(count, **changes):
    return vault(devices=[device(store=store(requests={"put": put(count, **changes)}))])


def told(state, columns=200, rows=None, sort="name"):
    return [line.text for line in draw_top_frame(state, columns, rows, sort, ASCII_INK, NOW)]


def busy() -> TopState:
    """Two backups, one of which sends two datasets; a vault that is watched."""
    state = TopState()
    late = backup("mail", lag_seconds=50000.0, last_result="failed", last_error=trouble())
    state.look(status(running(), late), NOW - 2)
    for one in transfer("tank/home", 0)[:2]:
        state.hear(one)
    state.hear(
        event(
            "transfer-started",
            dataset="tank/big",
            kind="full",
            to="b",
            bytes=None,
            reason="x",
            **{"from": None},
        )
    )
    state.doctors["cold"] = doctor()
    state.stores["cold"] = StoreRates(12.5, 0.0, 1e6, 0.034)
    return state


def row(lines, name):
    (found,) = [line for line in lines if line.split()[:1] == [name]]
    return found.split()


def test_a_wide_frame_shows_all():
    lines = told(busy())
    assert lines[0].endswith("q quit  s sort: name")
    assert row(lines, "home")[:4] == ["home", "running", "50%", "ok"]
    assert "100M/s" in row(lines, "home")
    assert row(lines, "mail")[1:3] == ["idle", "late"]
    stream = row(lines, "tank/home")
    assert [stream[1].count("#"), *stream[2:4], stream[-1]] == [15, "50%", "100M/s", "3-97%"]
    assert row(lines, "tank/big")[1] == "?" * 30, "of a stream without a size it is not known how far it is"
    cold = " ".join(row(lines, "cold"))
    assert "12.5/s" in cold
    assert "34ms" in cold
    assert doctor()["verdict"]["bound"] in cold


def test_what_is_sorted():
    def names(sort):
        lines = told(busy(), sort=sort)
        return [line.split()[0] for line in lines if line.split()[:1] in (["home"], ["mail"])]

    assert [names(sort) for sort in TOP_SORTS] == [
        ["home", "mail"],
        ["mail", "home"],
        ["mail", "home"],
        ["home", "mail"],
    ]


@given(st.integers(1, 200), st.none() | st.integers(2, 60), st.sampled_from(TOP_SORTS))
def test_no_screen_is_too_small(columns, rows, sort):
    lines = told(BUSY, columns, rows, sort)
    assert max(map(len, lines)) <= columns
    assert rows is None or len(lines) <= rows


BUSY = busy()


def test_twenty_columns_have_names_and_states():
    lines = told(busy(), 20)
    assert row(lines, "home") == ["home", "running", "50%"]
    assert row(lines, "mail")[1] == "idle"
    assert any(line.split()[:1] == ["...nk/big"[-8:]] or "big" in line for line in lines)
    assert "mail late" in " ".join(lines)


def test_a_stream_ends_with_its_dataset_and_with_its_run():
    state = busy()
    for one in transfer("tank/home", 0):
        state.hear(one)
    assert [one.dataset for one in state.streams.values()] == ["tank/big"]
    state.hear(finished())
    assert state.streams == {}
    state = busy()
    state.look(status(backup()), NOW)
    assert state.streams == {}, "a run that is over has no streams, whether its end was heard or not"
    assert "no streams" in told(state)


def test_what_happened_is_told_once_and_cannot_steer_the_terminal():
    state = busy()
    for one in run_events(middle=[event("warning", text="odd \x1b[31m things")]):
        state.hear(one)
    lines = told(state)
    assert "home: warning: odd  [31m things" in lines
    assert lines[-1] == "home ok: 2G in 20s (100M/s)"


def test_requests_of_a_store_are_counted_between_two_looks():
    state = TopState()
    for at, count in ((0, 100), (2, 120), (2.5, 121)):
        state.look(status(backup(), vaults=[stored(count)]), NOW + at)
    assert state.stores["cold"] == StoreRates(10.0, 0.0, 10 * (1 << 20), 0.1)
    state.look(status(backup(), vaults=[stored(3)]), NOW + 5)
    assert state.stores["cold"].requests == 10.0, "a server that was started anew counts anew"
    state.look(status(backup(), vaults=[vault(state="down")]), NOW + 9)
    assert state.stores == {}
    assert FIGURES["mode"] == "writeback"


def test_a_vault_has_its_cost_and_whether_that_is_all():
    cost = {"cost": 7.351, "forecast": None, "currency": "$"}
    for more, shown in (
        ({"cost": cost}, "$7.35"),
        ({"cost": cost, "uncounted": ["cold-1 (s3backer)"]}, "$7.35+"),
        ({"uncounted": ["cold-1 (s3backer)"]}, "not counted"),
        ({}, "-"),
    ):
        state = TopState()
        state.look(status(backup(), vaults=[vault() | more]), NOW)
        head, line = next(pair for pair in pairwise(told(state)) if pair[0].startswith("VAULT"))
        assert line[: head.index("COST") + 4].split("  ")[-1].strip() == shown, line


def test_what_is_old_says_so():
    state = busy()
    state.trouble = "zvaultd is not running: there is no socket"
    lines = told(state)
    assert lines[1].startswith("not known since 2s: zvaultd is not running")
    assert lines[2] == "", "what was well then need not be so now"
    assert draw_top_frame(busy(), 80, None, "name", ASCII_INK, NOW + 60)[1].text.startswith("as of 1m 2s ago")


# In a terminal


@pytest.fixture
def live(daemon):
    """A run that sends a dataset, and does not end."""
    daemon.documents["GET /v1/status"] = status(running())
    daemon.documents["GET /v1/doctor/cold"] = doctor()
    daemon.events[""] = transfer("tank/home", 0)[:2]
    daemon.hang_events = True
    # top asks again as soon as it is answered: at once, both ends would do nothing else.
    daemon.takes_its_time = True
    return daemon


def press(terminal, keys):
    os.write(terminal.fd, keys.encode())


def test_in_a_terminal_it_is_live_until_q(live):
    terminal = Terminal("top", columns=100)
    terminal.read_until(r"tank/home .*100M/s")
    assert "\x1b[?1049h" in terminal.text
    press(terminal, "s")
    terminal.read_until("sort: health")
    live.documents["GET /v1/status"] = status(running(bytes_done=900 << 20))
    terminal.read_until("running 87%")
    press(terminal, "q")
    assert terminal.code() == 0
    assert terminal.text.rindex("\x1b[?1049l") > terminal.text.rindex("running")
    assert terminal.text.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in terminal.text[-40:]


@pytest.mark.parametrize("columns", [20, 40, 200])
def test_at_any_width(live, columns):
    terminal = Terminal("top", columns=columns)
    terminal.read_until(r"running 50%")
    press(terminal, "q")
    assert terminal.code() == 0


def test_ctrl_c_quits_as_q_does(live):
    live.documents["GET /v1/status"] = status(running("mail", last_result="failed", last_error=trouble()))
    terminal = Terminal("top")
    terminal.read_until("1 backup needs attention|needs attention")
    press(terminal, "\x03")
    assert terminal.code() == 1
    assert "Traceback" not in terminal.text


def test_a_signal_leaves_the_terminal_as_it_was(live):
    terminal = Terminal("top")
    terminal.read_until("running 50%")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.code() == 128 + signal.SIGTERM
    assert "\x1b[?1049l" in terminal.text
    assert "Traceback" not in terminal.text


def test_colour_can_be_refused(live):
    live.documents["GET /v1/status"] = status(running("mail", lag_seconds=50000.0))
    terminal = Terminal("top", NO_COLOR="1")
    terminal.read_until("late")
    press(terminal, "q")
    assert terminal.code() == 1
    assert "\x1b[31m" not in terminal.text
    coloured = Terminal("top")
    coloured.read_until("late")
    press(coloured, "q")
    coloured.code()
    assert "\x1b[31m" in coloured.text


def test_a_daemon_that_goes_away_is_told_and_found_again(live):
    terminal = Terminal("top", columns=60)
    terminal.read_until("running 50%")
    before = live.documents["GET /v1/status"]
    live.refuse("GET /v1/status", 503, reason="failed", what="zvaultd is stopping")
    terminal.read_until("not known since .*: zvaultd is stopping")
    live.documents["GET /v1/status"] = before
    terminal.text = ""
    terminal.read_until("all is well")
    press(terminal, "q")
    assert terminal.code() == 0


def test_without_a_terminal_it_prints_one_frame_and_says_so(live, ctl):
    began = time.monotonic()
    said = ctl("top")
    assert said.code == 0
    assert "\x1b" not in said.out
    assert row(said.lines, "home")[:3] == ["home", "running", "50%"]
    assert row(said.lines, "tank/home")[0] == "tank/home"
    assert said.err == "no terminal: this is one frame; 'zvaultctl status -H' is for scripts\n"
    assert time.monotonic() - began < 30


def test_a_dumb_terminal_gets_one_frame(live):
    terminal = Terminal("top", TERM="dumb")
    assert terminal.code() == 0
    assert "\x1b" not in terminal.text
    assert "this is one frame" in terminal.text


def test_no_daemon(tmp_path, monkeypatch, ctl):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "none"))
    said = ctl("top")
    assert said.code == 2
    assert "zvaultd is not running" in said.err
