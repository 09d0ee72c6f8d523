"""zvaultctl vault open and close: what they ask for, and what they say."""

from __future__ import annotations

import json

import pytest

PAST = {
    "pool": "cold_zvault-at-19700101T000009Z",
    "taken": 9.0,
    "epoch": 1,
    "checkpoint": 2,
    "opened": True,
    "pinned": True,
    "user": "zvaultctl vault open",
}


@pytest.fixture
def past(daemon):
    daemon.lines["POST /v1/vaults/cold/past/open"] = [{"text": "opening"}, {"answer": {"past": PAST}}]
    daemon.lines["POST /v1/vaults/cold/past/close"] = [{"text": "exported"}, {"answer": {"closed": [PAST]}}]
    return daemon


def test_open(past, ctl):
    said = ctl("vault", "open", "cold", "--at", "1970-01-01T00:00:19.0Z")
    assert said.code == 0
    assert past.asked[-1] == ("POST /v1/vaults/cold/past/open", {"follow": "1"}, {"at": 19.0})
    assert "is open: pool cold_zvault-at-19700101T000009Z" in said.out
    assert said.err.startswith("opening\n")
    assert "zvaultctl vault close cold" in said.err


def test_close(past, ctl):
    said = ctl("vault", "close", "cold")
    assert said.code == 0
    assert past.asked[-1][2] == {}
    assert said.out.endswith("is closed\n")
    ctl("vault", "close", "cold", "--at", "1970-01-01T00:00:19.0Z")
    assert past.asked[-1][2] == {"at": 19.0}


def test_quiet_and_as_documents(past, ctl):
    quiet = ctl("vault", "open", "cold", "--at", "1s ago", "-q")
    assert (quiet.out, quiet.err) == ("", "")
    assert json.loads(ctl("vault", "open", "cold", "--at", "1s ago", "-j").out)["past"] == PAST
    assert json.loads(ctl("vault", "close", "cold", "-j").out)["closed"] == [PAST]


def test_wrong_usage(past, ctl):
    assert ctl("vault", "open", "cold").code == 2
    assert ctl("vault", "open", "cold", "--at", "then").code == 2
