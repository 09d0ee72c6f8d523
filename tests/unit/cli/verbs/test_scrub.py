"""A vault's scrub and damage as they are told."""

from __future__ import annotations

import time

import pytest

from tests.unit.cli.api_documents import vault
from zvault.cli.health_text import state_of, storage_well, well
from zvault.cli.scrub_text import damage_told, scrub_told
from zvault.core.integrity.damage import Damage
from zvault.ops.state.pool_health import Condition, damage_document

SCRUB = Condition(0.0).document()
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
    assert scrub_told(SCRUB | changes) == told


def test_how_long_ago():
    assert scrub_told(SCRUB | {"last": time.time() - 3 * 86400}).startswith("the last one ended 3d")
    assert scrub_told(None) == ""


def test_damage_is_listed():
    damages = [damage_document(Damage("cold/a", "s", f"/f{n}")) for n in range(25)]
    lines = damage_told(SCRUB | {"errors": 30, "files": 25, "damages": damages}).splitlines()
    assert lines[:2] == ["30 errors, 25 files", "cold/a@s:/f0"]
    assert lines[-1] == "and 5 more: -j shows all"
    assert len(lines) == 22
    nothing_there = damage_told(SCRUB | {"errors": 2, "files": 0, "damages": []})
    assert nothing_there == "2 errors, in nothing that has a name: 'zvaultctl heal' says what helps"
    assert damage_told(SCRUB) == "" == damage_told(None)


def test_a_damaged_vault_is_not_well():
    damaged = vault(state="down", health=None, scrub=SCRUB | {"errors": 1})
    assert not well(damaged)
    assert storage_well(damaged), "what brings it up or down did its work"
    assert state_of(damaged) == "damaged"
    assert state_of(vault(state="down", health=None, scrub=SCRUB)) == "ok"
    assert state_of(vault(state="down", health=None)) == "unknown"
