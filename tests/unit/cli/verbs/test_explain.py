"""zvaultctl explain: what it shows, what its exit status says, and what becomes of hostile names."""

from __future__ import annotations

import pytest

from tests.unit.cli.api_documents import NOW
from tests.unit.cli.test_terminal import Terminal

NAME = "tank/home@zvault_2026-11-21T09:00:00Z"


def one(topic, state, why="", next="", level="ok", side=None):
    return {"topic": topic, "side": side, "state": state, "why": why, "next": next, "level": level}


def account(*reasons, **changes):
    return {
        "backup": "home",
        "source": "tank/home",
        "vault": "cold",
        "dataset": "tank/home",
        "vault_dataset": "cold/host/tank/home",
        "takes": True,
        "vault_seen": True,
        "vault_seen_at": NOW,
        "reasons": list(reasons),
    } | changes


def found(*accounts, name=NAME, uncovered=""):
    return {"name": name, "at": NOW, "uncovered": uncovered, "accounts": list(accounts)}


@pytest.fixture
def told(daemon, ctl):
    def call(document, *arguments):
        daemon.documents[f"GET /v1/explain/{document['name']}"] = document
        return ctl("explain", document["name"], *arguments)

    return call


def test_what_it_shows(told):
    held = one("held", "yes", "zvault holds it: the newest of cold/host/tank/home", side="vault")
    said = told(found(account(one("sent", "there", "the vault has it"), held)))
    assert said.code == 0
    assert said.lines == [
        NAME,
        "",
        "backup home: tank/home into vault cold (tank/home -> cold/host/tank/home)",
        "         sent: there: the vault has it",
        "  held, vault: yes: zvault holds it: the newest of cold/host/tank/home",
    ]


def test_the_document(told):
    document = found(account(one("lag", "2h", level="warning")))
    said = told(document, "-j")
    assert said.code == 1
    assert '"command": "zvaultctl explain"' in said.out


@pytest.mark.parametrize(
    ("levels", "uncovered", "code"),
    [
        ([], "", 0),
        (["ok"], "", 0),
        (["ok", "unknown"], "", 3),
        (["unknown", "warning"], "", 1),
        (["critical"], "", 1),
        (["ok"], "it lies in no backup's source: tank/home", 1),
    ],
)
def test_the_exit_status(told, levels, uncovered, code):
    document = found(account(*(one("lag", "x", level=level) for level in levels)), uncovered=uncovered)
    said = told(document)
    assert said.code == code
    assert (f"nothing backs it up: {uncovered}" in said.out) == bool(uncovered)


def test_what_to_do_and_that_the_vault_is_down(told):
    down = one("sent", "unknown", "vault cold is down", "'zvaultctl plan home' brings it up", "unknown")
    said = told(found(account(down, vault_seen=False, vault_seen_at=None)))
    assert said.code == 3
    assert "into vault cold, which is down (" in said.out
    assert said.lines[-1] == "        next: 'zvaultctl plan home' brings it up"


def test_what_it_is_told_cannot_steer_the_terminal(told):
    said = told(found(account(one("held", "yes", "held by \x1b]0;x\x07 mine"))))
    assert "\x1b" not in said.out


def test_a_name_that_nobody_knows(daemon, ctl):
    daemon.refuse("GET /v1/explain/pond", 404, reason="not-found", what="there is no dataset 'pond'")
    said = ctl("explain", "pond")
    assert said.code == 2
    assert "there is no dataset 'pond'" in said.err


def test_a_terminal_of_20_columns(daemon):
    long = one("kept", "kept", "the base of the next incremental", "wait for it", side="source")
    daemon.documents["GET /v1/explain/tank"] = found(account(long), name="tank")
    terminal = Terminal("explain", "tank", columns=20)
    assert terminal.code() == 0
    assert "the base of" in " ".join(terminal.plain.split())
