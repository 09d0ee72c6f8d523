"""A vault's scrub and damage as they are told."""

from __future__ import annotations

import time

import pytest

from zvault.cli.scrub_told import damage_told, scrub_told
from zvault.cli.verdict import storage_well, vault_health, vault_well

SCRUB = {
    "seen": 0.0,
    "state": "none",
    "started": None,
    "ended": None,
    "last": None,
    "share": None,
    "bytes_done": 0,
    "bytes_total": 0,
    "rate": None,
    "left_seconds": None,
    "found": 0,
    "held": False,
    "pausing": "",
    "errors": 0,
    "files": 0,
    "damages": [],
}
T = 1 << 40


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "there was none yet"),
        ({"held": True}, "there was none yet; put off by hand"),
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
            "paused at 50% of 1T: until it is wanted again",
        ),
        ({"state": "resilver"}, "a device is being rebuilt"),
    ],
)
def test_scrub(changes, told):
    assert scrub_told(SCRUB | changes) == told


def test_how_long_ago():
    assert scrub_told(SCRUB | {"last": time.time() - 3 * 86400}).startswith("the last one ended 3d")
    assert scrub_told(None) == ""


def test_damage_is_listed():
    damages = [{"dataset": "cold/a", "snapshot": "s", "file": f"/f{n}"} for n in range(25)]
    lines = damage_told(SCRUB | {"errors": 30, "files": 25, "damages": damages}).splitlines()
    assert lines[:2] == ["30 errors, 25 files", "cold/a@s:/f0"]
    assert lines[-1] == "and 5 more: -j shows all"
    assert len(lines) == 22
    assert damage_told(SCRUB) == "" == damage_told(None)


def test_a_damaged_vault_is_not_well():
    vault = {"state": "down", "health": None, "error": None, "scrub": SCRUB | {"errors": 1}}
    assert not vault_well(vault)
    assert storage_well(vault), "what brings it up or down did its work"
    assert vault_health(vault) == "damaged"
    assert vault_health({**vault, "scrub": SCRUB}) == vault_health({**vault, "scrub": None}) == "ok"
