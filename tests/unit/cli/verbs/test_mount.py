"""zvaultctl mount: what it asks for, what it says, and that Ctrl-C has it unmounted."""

from __future__ import annotations

import pytest

from tests.unit.cli.api_documents import backup, status, vault

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


def test_of_several_vaults_the_best_is_taken_or_the_one_that_is_named(mounting, ctl):
    several = {"reason": "several-vaults", "what": "backup 'home' has several vaults", "why": "", "next": ""}
    mounting.lines = _Turns(mounting.lines, [{"error": several}])
    mounting.documents["GET /v1/status"] = status(
        backup("home@cold", vault="cold", lag_seconds=60.0),
        backup("home@shelf", vault="shelf", lag_seconds=9.0),
        vaults=[vault("cold"), vault("shelf") | {"state": "down", "away": True}],
    )
    said = ctl("mount", "home", "/mnt/x")
    assert (said.code, said.lines[-1]) == (0, "/mnt/x is unmounted: its time is over")
    assert said.err.startswith("vault cold is taken")
    assert mounting.asked[-1][2]["backup"] == "home@cold"
    assert ctl("mount", "home", "/mnt/x", "--vault", "shelf").err == ""
    assert mounting.asked[-1][2]["backup"] == "home@shelf"


class _Turns(dict):
    """The lines of each answer, of which the first is another; each is read twice, to be checked and to be sent."""

    def __init__(self, lines, first) -> None:
        super().__init__(lines)
        self.first = [first, first]

    def __getitem__(self, asked):
        return self.first.pop() if self.first else super().__getitem__(asked)
