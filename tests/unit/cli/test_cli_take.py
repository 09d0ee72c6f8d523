"""zvaultctl vault take: shows who has it, and orders only what was shown."""

import pytest
from api_documents import vault

TAKEOVER = {
    "vault": "cold",
    "pool": "cold",
    "holders": ["filer1 (10.0.0.7)", None],
    "devices": [
        {
            "device": "cold-0",
            "spec": "rbd:p/i",
            "holder": "filer1 (10.0.0.7)",
            "state": "has it open",
            "by_hand": None,
            "steps": [
                {"what": "shut it out of the cluster", "command": "ceph osd blocklist add 10.0.0.7:0/1"}
            ],
        },
        {
            "device": "cold-1",
            "spec": "tcp:nas",
            "holder": None,
            "state": "not known",
            "by_hand": "an NBD server knows no lock",
            "steps": [],
        },
    ],
    "command": "zpool import -f cold",
}


@pytest.fixture
def held(daemon):
    daemon.documents["GET /v1/vaults/cold/takeover"] = {"takeover": TAKEOVER}
    daemon.documents["POST /v1/vaults/cold/take"] = {"vault": vault()}
    return daemon


def orders(daemon):
    return [body for asked, _, body in daemon.asked if asked.startswith("POST")]


@pytest.mark.parametrize(("arguments", "code"), [(["-n"], 0), ([], 2)])
def test_it_is_shown_and_nobody_is_shut_out_unasked(held, ctl, arguments, code):
    said = ctl("vault", "take", "cold", *arguments)
    assert said.code == code
    for shown in (
        "held by filer1 (10.0.0.7): has it open",
        "blocklist add",
        "knows no lock",
        "import -f cold",
    ):
        assert shown in said.out
    assert orders(held) == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_order_names_whom_it_is_about(held, ctl, by_hand):
    said = ctl("vault", "take", "cold", "--yes", *(["--fenced-by-hand"] if by_hand else []))
    assert said.code == 0
    assert "vault cold is taken over and up" in said.out
    assert orders(held) == [{"holders": TAKEOVER["holders"], "fenced_by_hand": by_hand}]


def test_a_refusal_is_told(held, ctl):
    held.refuse(
        "POST /v1/vaults/cold/take", 403, reason="refused", what="it has changed hands", why="", next=""
    )
    said = ctl("vault", "take", "cold", "--yes")
    assert said.code == 2
    assert "it has changed hands" in said.err
