"""zvaultctl vault accept-older: shows how old the vault is, and orders only what was shown."""

import pytest

from tests.unit.cli.api_documents import vault

WHY = "it is older than when it was last seen (2026-11-27 06:10): its store was put back"


def vaults(condition="put-back"):
    found = {
        "condition": condition,
        "level": "critical",
        "state": "older",
        "what": "x",
        "why": WHY,
        "next": "",
    }
    return {"vaults": [vault("warm"), vault() | {"verdict": vault()["verdict"] | {"findings": [found]}}]}


@pytest.fixture
def older(daemon):
    daemon.documents["GET /v1/vaults"] = vaults()
    daemon.documents["POST /v1/vaults/cold/accept-older"] = {"older": WHY}
    return daemon


def orders(daemon):
    return [body for asked, _, body in daemon.asked if asked.startswith("POST")]


def test_nothing_is_accepted_unasked(older, ctl):
    said = ctl("vault", "accept-older", "cold")
    assert (said.code, orders(older)) == (2, [])
    assert f"vault cold: {WHY}" in said.out
    assert "nothing was accepted" in said.err


def test_the_order_names_what_was_shown(older, ctl):
    said = ctl("vault", "accept-older", "cold", "--yes")
    assert (said.code, orders(older)) == (0, [{"older": WHY}])
    assert said.out.splitlines()[-1] == "vault cold: the next run goes on from what it has"
    assert '"accepted": true' in ctl("vault", "accept-older", "cold", "--yes", "-j").out


def test_a_vault_that_is_as_it_was_has_nothing_to_accept(older, ctl):
    older.documents["GET /v1/vaults"] = vaults("damaged")
    said = ctl("vault", "accept-older", "cold", "--yes")
    assert (said.code, orders(older)) == (0, [])
    assert "as new as when it was last seen" in said.out
    assert '"accepted": false' in ctl("vault", "accept-older", "cold", "--yes", "-j").out
