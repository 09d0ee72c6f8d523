"""mbuffer as a vault's profile has it, and what is told of how full it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import world
from world import World, events, eventually, noise, ok, snapshot_hashes, snapshots

LAB = {"mem": "3G", "timeout": 700}

PROFILE = """
[stream]
buffer = "16M"
block = "1M"
start = 50
"""


@pytest.fixture
def tank():
    found = World(size="512M", source_name="tank/big")
    found.clean()
    found.source()
    noise(Path("/tank/big/more"), 70)
    # So slow that it takes 20 s, and that no machine sends slower: then the buffer would not be full.
    found.delay = "filter=rate rate=40M"
    found.vault_extra = 'create = true\nprofile = "tight"'
    folder = Path("/etc/zvault/profiles")
    folder.mkdir(parents=True)
    (folder / "tight.toml").write_text(PROFILE)
    yield found
    found.clean()


def test_it_is_filled_before_it_passes_on_and_the_progress_shows_its_marks(tank):
    tank.start()
    run_id = ok("run", "--no-wait", "-j", "tank").json()["run"]["id"]

    def running() -> str:
        found = subprocess.run(["pgrep", "-a", "mbuffer"], capture_output=True, text=True)
        return found.stdout

    argv = eventually("mbuffer", running, every=0.05)
    assert "-s 1048576 -m 16384k -P 50" in argv
    marks = []

    def over() -> bool:
        found = events(run_id)
        marks.extend(event["buffer"] for event in found if event["event"] == "progress" and event["buffer"])
        return any(event["event"] == "run-finished" for event in found)

    eventually("the end", over, seconds=240, every=0.3)
    print(marks)
    assert any(high >= 50 for _, high in marks)
    assert all(0 <= low <= high <= 100 for low, high in marks)
    (newest,) = snapshots("tank/big")
    ok("vault", "up", "cold")
    assert snapshot_hashes(f"cold/lab/tank/big@{newest}") == snapshot_hashes(f"tank/big@{newest}")
    ok("vault", "down", "cold")
    world.nothing_left()
