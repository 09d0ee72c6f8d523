"""A vault's scrub and damage as they are told."""

from __future__ import annotations

import time

import pytest

from tests.unit.cli.api_documents import vault
from zvault.cli.health_text import find_state_word, is_storage_well, is_well
from zvault.cli.scrub_text import describe_scrub, describe_scrub_damage
from zvault.core.integrity.damage import DamagedFile
from zvault.ops.state.pool_health import PoolCondition, make_damage_document

SCRUB = PoolCondition(0.0).document()
T = 1 << 40


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "never"),
        ({"held": True}, "never; paused by hand"),
        (
            {
                "state": "scanning",
                "share": 0.43,
                "bytes_total": T,
                "rate": 80 * 2**20,
                "left_seconds": 8940.0,
            },
            "43% of 1T, 80M/s, 2h 29m to go",
        ),
        ({"state": "scanning", "share": 0.0, "bytes_total": T}, "0% of 1T"),
        (
            {"state": "paused", "share": 0.5, "bytes_total": T, "pausing": "backup tank runs"},
            "paused at 50% of 1T: backup tank runs",
        ),
        (
            {"state": "paused", "share": 0.5, "bytes_total": T, "held": True},
            "paused at 50% of 1T: by hand, until 'zvaultctl scrub' resumes it",
        ),
        ({"state": "resilver"}, "a resilver runs"),
    ],
)
def test_scrub(changes, told):
    assert describe_scrub(SCRUB | changes) == told


def test_how_long_ago():
    assert describe_scrub(SCRUB | {"last": time.time() - 3 * 86400}).startswith("the last one ended 3d")
    assert describe_scrub(None) == ""


def test_damage_is_listed():
    damages = [make_damage_document(DamagedFile("cold/a", "s", f"/f{n}")) for n in range(25)]
    lines = describe_scrub_damage(SCRUB | {"errors": 30, "files": 25, "damages": damages}).splitlines()
    assert lines[:2] == ["30 errors, 25 files", "cold/a@s:/f0"]
    assert lines[-1] == "and 5 more: -j shows all"
    assert len(lines) == 22
    nothing_there = describe_scrub_damage(SCRUB | {"errors": 2, "files": 0, "damages": []})
    assert nothing_there == "2 errors, in nothing that has a name: 'zvaultctl scrub' names what is damaged"
    assert describe_scrub_damage(SCRUB) == "" == describe_scrub_damage(None)


def test_a_damaged_vault_is_not_well():
    damaged = vault(state="down", health=None, scrub=SCRUB | {"errors": 1})
    assert not is_well(damaged)
    assert is_storage_well(damaged), "what brings it up or down did its work"
    assert find_state_word(damaged) == "damaged"
    assert find_state_word(vault(state="down", health=None, scrub=SCRUB)) == "ok"
    assert find_state_word(vault(state="down", health=None)) == "unknown"
