"""A server that stands still when a run has sent everything and its vault's export has begun, and goes on later.

OpenZFS 2.3 may not come out of that export without a reboot, so this is the last that happens in its guest. What was
sent was sent: the run is ok. What became of the vault is the vault's state, and a warning of the run.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import world
from world import World, answer, ask, ctl, eventually, ok, service, sh, status

from zvault.zfs.pool.exports import ExportWatch

LAB = {"mem": "4G", "timeout": 1200}

STOPPED = 60
"""Seconds: longer than the device's timeout."""


@pytest.fixture
def tank() -> World:
    """On a server that takes a while for each write, so that an export takes some seconds."""
    it = World(delay="filter=delay wdelay=300ms")
    it.clean()
    it.source()
    it.start()
    ok("run", "tank")
    return it


def server() -> int:
    """The process that serves the vault's device; 0 while there is none."""
    units = sh("systemctl", "list-units", "--plain", "--no-legend", "zvault-device@*").split()[:1]
    return int(sh("systemctl", "show", "-P", "MainPID", units[0]).strip()) if units else 0


def last_run() -> dict[str, Any]:
    told = answer(ask("GET", "/v1/history?backup=tank&limit=1"))
    assert told is not None
    return told["runs"][0]


def test_what_was_sent_was_sent(tank: World):
    world.fill(Path("/tank/home"), 7, count=2)
    time.sleep(1.1)
    ok("run", "--no-wait", "tank")
    pid = eventually("the vault's server", server)
    eventually("the export", lambda: ExportWatch(Path("/proc")).find_exporter("cold"), every=0.01)
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        run = eventually("the run to end", lambda: (run := last_run())["ended"] and run, seconds=240, every=1)
        print(f"the run ended {time.monotonic() - began:.0f} s after the server stood still")
        time.sleep(max(0.0, began + STOPPED - time.monotonic()))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert run["result"] == "ok", run
    told = world.journal(f"RUN={run['id']}")
    assert "vault cold could not be taken down" in told
    # It either comes out of it, or says what it is in and what helps.
    vault = eventually(
        status, lambda: (now := status()["vaults"][0])["state"] in {"down", "gone", "partial"} and now
    )
    up = ctl("vault", "up", "cold", timeout=200)
    print(vault["state"], vault["error"], up.code, up.err)
    if up.code:
        assert ExportWatch(Path("/proc")).find_exporter("cold"), up.err
        assert "is being exported" in up.err
        assert "only a reboot helps" in " ".join(up.err.split())
    assert service("ActiveState") == "active"
