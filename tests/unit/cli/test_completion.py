"""What a shell is told that may follow."""

import pytest

from tests.unit.cli.api_documents import backup, status, vault

SHELL = {"_ZVAULTCTL_COMPLETE": "complete_bash"}


@pytest.fixture
def follows(daemon, ctl, monkeypatch):
    daemon.documents["GET /v1/status"] = status(backup("tank"), backup("tapes"), vaults=[vault("cold")])

    def asked(words: str) -> list[str]:
        monkeypatch.setenv("_ZVAULTCTL_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return ctl().lines

    return asked


def test_verbs(follows):
    assert follows("zvaultctl res") == ["restore"]
    assert "begin-anew" in follows("zvaultctl vault ")


def test_names_of_backups_and_vaults(follows):
    assert follows("zvaultctl run ta") == ["tank", "tapes"]
    assert follows("zvaultctl run tap") == ["tapes"]
    assert follows("zvaultctl vault up ") == ["cold"]
    assert follows("zvaultctl status ") == ["tank", "tapes", "cold"]


def test_datasets_and_their_snapshots(follows, daemon):
    daemon.unchecked = True
    daemon.documents["GET /v1/list"] = {
        "datasets": [{"dataset": "tank"}, {"dataset": "tank/home"}],
        "snapshots": [{"dataset": "tank/home", "snapname": "a"}, {"dataset": "tank", "snapname": "a"}],
    }
    assert follows("zvaultctl restore tank tank/h") == ["tank/home"]
    assert follows("zvaultctl restore tank tank/home@") == ["tank/home@a"]
    assert daemon.asked[-1][1] == {"backup": "tank", "snapshots": "1"}


def test_no_daemon_is_no_error(follows, monkeypatch):
    monkeypatch.setenv("ZVAULT_SOCKET", "/nowhere")
    assert follows("zvaultctl run ") == [""]
