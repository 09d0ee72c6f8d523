"""An export that loses its device under way. OpenZFS 2.3 does not get out of it without a reboot, so this is the last
that happens in its guest: whoever asked is told soon, and the daemon goes on.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import world
from vanishing_storage import PORT, PROMPT, Server, Vault, cut, nbd
from watcher import Watcher
from world import DISK, ctl, eventually, main_pid, ok

from zvault.zfs.pool.exports import ExportWatch

LAB = {"mem": "4G", "timeout": 2000, "in_order": True}


SERVER = Server(wdelay="300ms")
"""Its disk takes a while for each write, so that an export takes some seconds."""


@pytest.fixture(scope="module")
def vault() -> Iterator[Vault]:
    DISK.mkdir(exist_ok=True)
    with nbd(SERVER) as storage:
        # TCP goes on after a cut only as much later as that was long, and a busy guest is slow to end one.
        storage.timeout = 15
        it = Vault()
        it.storage = storage
        it.source()
        it.start()
        ok("run", "tank")
        yield it


@contextmanager
def cut_in_export() -> Iterator[subprocess.Popen[str]]:
    """``vault down``, with its device cut off from its export on for as long as the block runs."""
    ok("vault", "up", "cold")
    down = subprocess.Popen(["zvaultctl", "vault", "down", "cold"], stderr=subprocess.PIPE, text=True)
    eventually("the export", lambda: ExportWatch(Path("/proc")).find_exporter("cold"), every=0.01)
    # It is not over before the device is cut off, which takes a while.
    assert SERVER.process is not None
    SERVER.process.send_signal(signal.SIGSTOP)
    with cut(PORT, "dport", "sport"):
        SERVER.process.send_signal(signal.SIGCONT)
        yield down


def lost() -> bool:
    """What is told may be some seconds old where the guest is busy."""
    vault = world.status()["vaults"][0]
    return (vault["state"], vault["health"]) == ("gone", "SUSPENDED")


def test_a_device_that_is_back_in_time(vault: Vault):
    """Nothing is lost or told: the export only takes longer."""
    with cut_in_export() as down:
        time.sleep(1)
    assert down.wait(240) == 0
    world.nothing_left()


def test_a_device_that_is_not(vault: Vault):
    pid = main_pid()
    with Watcher() as watcher, cut_in_export() as down:
        began = time.monotonic()
        _, said = down.communicate(timeout=240)
        print(f"vault down gave up after {time.monotonic() - began:.1f} s:", said)
        assert down.returncode == 1
        assert "left as it is: the pool cold (suspended)" in " ".join(said.split())
        eventually("it to be told", watcher.told)
    up = ctl("vault", "up", "cold")
    print(up.err)
    assert "only a reboot helps" in " ".join(up.err.split())
    eventually("status to show it", lost)
    assert not watcher.failed
    assert max(watcher.worst.values()) < PROMPT, watcher.worst
    assert main_pid() == pid, "the daemon did not survive it"
