"""zvaultctl notify: whom zvaultd tells, and how a test went."""

import json

import pytest


def target(name="phone", **changes):
    found = {
        "name": name,
        "way": "apprise",
        "severity": "warning",
        "backups": [],
        "state": "ok",
        "waiting": 0,
        "next_try": None,
        "open": 0,
        "last_success": None,
        "last_failure": None,
        "last_error": "",
        "given_up": 0,
    }
    return found | changes


BAD = target(
    "mail", way="mail", state="failing", waiting=2, last_error="it answered 550: no\x1b[2J", given_up=1
)
ERROR = {"reason": "tool-failed", "what": "it was not sent", "why": "Connection refused", "next": ""}


@pytest.fixture
def told(daemon):
    daemon.documents["GET /v1/notify"] = {"targets": [target(), BAD]}
    results = [
        {"target": "phone", "way": "apprise", "result": "sent", "error": None},
        {"target": "kuma", "way": "uptime_kuma", "result": "skipped", "error": None},
        {"target": "mail", "way": "mail", "result": "failed", "error": ERROR},
    ]
    daemon.documents["POST /v1/notify/test"] = {"results": results}
    return daemon


@pytest.mark.parametrize("verb", [["notify"], ["notify", "show"]])
def test_the_targets_and_what_failed(told, ctl, verb):
    said = ctl(*verb)
    assert said.code == 1
    assert [" ".join(line.split()) for line in said.lines] == [
        "NAME WAY SEVERITY STATE WAITING SUCCESS FAILURE",
        "phone apprise warning ok 0 - -",
        "mail mail warning failing 2 - -",
        "it answered 550: no [2J",
        "given up since the last success: 1",
    ]


def test_for_scripts(told, ctl):
    told.documents["GET /v1/notify"] = {"targets": [target(backups=["a", "b"])]}
    assert ctl("notify", "show", "-H", "-o", "name,backups,error").lines == ["phone\ta,b\t-"]
    assert json.loads(ctl("notify", "show", "-j").out)["targets"] == [target(backups=["a", "b"])]
    assert ctl("notify").code == 0


def test_nobody_is_told(told, ctl):
    told.documents["GET /v1/notify"] = {"targets": []}
    said = ctl("notify")
    assert (said.code, said.out) == (0, "")
    assert "no [notify.NAME]" in said.err


def test_a_test_says_how_it_went(told, ctl):
    said = ctl("notify", "test")
    assert said.code == 1
    assert said.lines == [
        "phone (apprise): sent",
        "kuma (uptime_kuma): not tested, it would take it for a success: 'zvaultctl notify test kuma' does",
        "mail (mail): it was not sent: Connection refused",
    ]
    assert [body for asked, _, body in told.asked if asked.startswith("POST")] == [{}]


def test_a_test_of_one(told, ctl):
    told.documents["POST /v1/notify/test"] = {"results": []}
    assert ctl("notify", "test", "phone").code == 0
    assert told.asked[-1][2] == {"target": "phone"}
    told.refuse("POST /v1/notify/test", 404, reason="not-found", what="there is no notification 'x'")
    said = ctl("notify", "test", "x")
    assert said.code == 2
    assert "there is no notification 'x'" in said.err
