"""zvaultctl vault grow: asks for it, and tells what came of it."""

import json

from tests.unit.cli.api_documents import vault

ASKED = "POST /v1/vaults/cold/grow"


def test_it_is_asked_for_and_told(daemon, ctl):
    daemon.lines[ASKED] = [{"text": "pool cold has grown from 1G to 2G"}, {"answer": {"vault": vault()}}]
    said = ctl("vault", "grow", "cold")
    assert (said.code, said.err) == (0, "pool cold has grown from 1G to 2G\n")
    assert json.loads(ctl("vault", "grow", "cold", "-j").out)["vault"]["name"] == "cold"


def test_where_there_is_nothing_more_it_is_refused(daemon, ctl):
    told = {
        "reason": "refused",
        "what": "there is nothing to give to the pool 'cold'",
        "why": "",
        "next": "grow",
    }
    daemon.lines[ASKED] = [{"error": told}]
    said = ctl("vault", "grow", "cold")
    assert said.code == 2
    assert "there is nothing to give" in said.err
