"""zvaultctl mount: what it asks for, what it says, and that Ctrl-C has it unmounted."""

from __future__ import annotations

import pytest

DONE = {"folder": "/mnt/x", "dataset": "cold/a", "snapshot": "cold/a@s", "ended": "its time is over"}


@pytest.fixture
def mounting(daemon):
    daemon.lines["POST /v1/mount"] = [{"text": "cold/a@s is mounted"}, {"text": ""}, {"answer": DONE}]
    return daemon


def test_what_it_asks_for_and_says(mounting, ctl):
    times = ("--at", "1970-01-01T00:00:09.0Z", "--vault-at", "1970-01-01T00:00:19.0Z")
    said = ctl("mount", "home", "tank/my files", "/mnt/x", "--timeout", "30m", *times)
    assert said.code == 0
    assert said.lines == ["cold/a@s is mounted", "/mnt/x is unmounted: its time is over"]
    assert mounting.asked[-1][2] == {
        "backup": "home",
        "dataset": "tank/my files",
        "folder": "/mnt/x",
        "at": 9.0,
        "seconds": 1800.0,
        "vault_at": 19.0,
    }


def test_a_folder_alone_is_absolute(mounting, ctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ctl("mount", "home", "here/../there", "-q").out == ""
    assert mounting.asked[-1][2]["folder"] == f"{tmp_path}/there"
    assert mounting.asked[-1][2]["dataset"] is None


def test_the_document(mounting, ctl):
    said = ctl("mount", "home", "/mnt/x", "-j")
    assert '"snapshot": "cold/a@s"' in said.out
    assert said.err == "cold/a@s is mounted\n"


@pytest.mark.parametrize("words", [("a", "b", "c"), ()])
def test_wrong_usage(mounting, ctl, words):
    assert ctl("mount", "home", *words).code == 2


def test_no_duration(mounting, ctl):
    assert ctl("mount", "home", "/mnt/x", "--timeout", "soon").code == 2


@pytest.mark.parametrize(("reason", "code"), [("refused", 2), ("tool-failed", 1)])
def test_what_fails(mounting, ctl, reason, code):
    error = {"reason": reason, "what": "nothing is mounted", "why": "it is not empty", "next": "name another"}
    mounting.lines["POST /v1/mount"] = [{"error": error}]
    said = ctl("mount", "home", "/mnt/x")
    assert said.code == code
    assert "it is not empty" in said.err
