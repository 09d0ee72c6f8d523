"""zvaultctl holds: lists them, and releases only what it is asked to, twice."""

import json
from dataclasses import replace

import pytest

from zvault.core.address import Address
from zvault.ops.retention.holds import BaseProtection


def base_protection(name="tank@a", state="in use", guid="c01d", **changes):
    kind = "bookmark" if "#" in name else "hold"
    vault = "cold" if guid == "c01d" else None
    found = BaseProtection(kind, "tank", name, (1 << 64) - 1, 1_790_000_000, int(guid, 16), vault, state)
    return replace(found, reason=f"because {state}", **changes).document()


ORPHAN = base_protection("tank@b", "orphaned")
UNKNOWN = base_protection("tank#c", "unknown", "beef")


@pytest.fixture
def held(daemon):
    daemon.documents["GET /v1/holds"] = {"holds": [base_protection(), ORPHAN, UNKNOWN]}
    daemon.documents["POST /v1/holds/reap"] = {"holds": [ORPHAN]}
    return daemon


def posts(daemon):
    return [body for asked, _, body in daemon.asked if asked.startswith("POST")]


def test_they_are_listed_with_owner_and_reason(held, ctl):
    said = ctl("holds", "-o", "name,kind,vault,state,reason")
    assert said.code == 0
    assert said.lines == [
        "NAME    KIND      VAULT  STATE     REASON",
        "tank@a  hold      cold   in use    because in use",
        "tank@b  hold      cold   orphaned  because orphaned",
        "tank#c  bookmark  beef   unknown   because unknown",
        "1 in use, 1 orphaned, 1 unknown",
    ]
    assert posts(held) == []


def test_those_of_another_host_say_so(held, ctl):
    held.documents["GET /v1/holds"] = {
        "holds": [base_protection(), base_protection("tank@b", host=Address("filer1"))]
    }
    assert ctl("holds", "-H", "-o", "host,name").lines == ["-\ttank@a", "ssh://filer1\ttank@b"]


def test_nothing_to_reap_is_told_as_such(held, ctl):
    held.documents["GET /v1/holds"] = {"holds": [base_protection(), UNKNOWN]}
    assert "nothing to reap" in ctl("holds", "--reap").err
    held.documents["GET /v1/holds"] = {"holds": []}
    assert "no holds" in ctl("holds").err


def test_reaping_shows_orphans_and_wants_yes(held, ctl):
    said = ctl("holds", "--reap")
    assert said.code == 2
    assert "tank@b" in said.out
    assert "tank@a" not in said.out
    assert "tank#c" not in said.out
    assert "add --yes" in said.err
    assert posts(held) == []


def test_with_yes_the_daemon_decides_anew(held, ctl):
    said = ctl("holds", "--reap", "--yes")
    assert said.code == 0
    assert said.lines[-1] == "released: 1 hold"
    assert posts(held) == [{"vault_guid": None}]


def test_a_pool_can_be_named(held, ctl):
    held.documents["POST /v1/holds/reap"] = {"holds": [UNKNOWN]}
    assert ctl("holds", "--reap", "--yes", "--vault-guid", "0xBEEF").lines[-1] == "released: 1 bookmark"
    assert posts(held) == [{"vault_guid": "beef"}]


def test_nothing_to_reap_asks_for_nothing(held, ctl):
    held.documents["GET /v1/holds"] = {"holds": [base_protection(), UNKNOWN]}
    said = ctl("holds", "--reap", "--yes")
    assert (said.code, said.out, said.err) == (0, "", "nothing to reap\n")
    assert posts(held) == []


def test_for_scripts(held, ctl):
    assert ctl("holds", "-Hp", "-o", "name,state,guid,vault_guid").cells[0] == [
        "tank@a",
        "in use",
        "18446744073709551615",
        "c01d",
    ]
    assert json.loads(ctl("holds", "-j").out)["holds"][1] == ORPHAN
