"""A small vault, how a run of it fails, and how the next one puts it right."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import world
from world import Done, World, answer, ask, ctl, eventually, get, ok, sh, snapshots

PROMPT = 15.0
"""Seconds within which whoever asks has an answer: the daemon's patience is 2.5 s of it, the rest is a busy guest."""
PROFILE = '\nprofile = "nbd-lan"'
"""It has mbuffer, which tells twice a second how far a stream is."""
UNIT = "zvault-device@cold-0.service"
DATASETS = ("tank", "tank/home", "tank/my files")


@dataclass
class Small(World):
    """A source of a few MB, for tests that are about the vault."""

    size: str = "512M"
    delay: str = ""

    def source(self) -> None:
        world.make_tank("512M")
        sh("zfs", "create", "tank/home")
        sh("zfs", "create", "tank/my files")
        world.fill(Path("/tank/home"), 1, count=6)
        world.fill(Path("/tank/my files"), 2, count=3)

    def long_stream(self) -> None:
        """Have the next run take half a minute, of which ``begin`` waits for the first bytes: it is not over when
        something is done to it, however slow the machine is at that.
        """
        world.noise(Path("/tank/home/noise"), 40)
        self.backup_extra, self.delay = 'limit = "1500K"', "filter=delay wdelay=20ms"
        self.vault_extra += PROFILE

    def at_full_speed(self) -> None:
        """Later runs, also those of a daemon that is still to come, have no limit."""
        self.backup_extra = ""
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture(name="tank")
def tank_for_test() -> Iterator[Small]:
    it = Small()
    it.clean()
    it.source()
    yield it
    it.clean()


def status() -> dict[str, Any]:
    told = answer(ask("GET", "/v1/status"))
    assert told is not None
    return told


def act(verb: str) -> dict[str, Any] | None:
    return answer(ask("POST", f"/v1/vaults/cold/{verb}"))


def last_run(backup: str = "tank") -> dict[str, Any]:
    told = answer(ask("GET", f"/v1/history?backup={backup}&limit=1"))
    assert told is not None
    return told["runs"][0]


def vault(name: str, image: Path, *more: str, pool: str | None = None, nbd: str = "") -> str:
    """A further vault and a backup of the tank into it, both of one name."""
    return f"""
[vault.{name}]
pool = "{pool or name}"
{more[0] if more else ""}
[[vault.{name}.device]]
nbd = "{nbd or f"nbdkit:file '{image}'"}"
size = "128M"
timeout = "20s"

[backup.{name}]
source = "tank/home"
vault = "{name}"
snapshot = {{ prefix = "{name}" }}
retries = 0
"""


def fails(backup: str, reason: str, *words: str, code: int = 1) -> Done:
    """Run a backup that fails, and see the fault told in zvaultctl, the journal, the metrics and the history."""
    sample = f'zvault_backup_failures_total{{backup="{backup}",reason="{reason}"}}'
    before = world.metrics().get(sample, 0)
    done = ctl("run", backup)
    print(done.out, done.err)
    assert done.code == code
    for word in words:
        assert word in done.err
    assert "next: " in done.err
    run = last_run(backup)
    assert run["result"] in {"failed", "partial"}
    assert run["error"]["reason"] == reason
    told = world.journal(f"BACKUP={backup}", f"RUN={run['id']}", f"REASON={reason}")
    assert run["error"]["what"] in told
    assert ". Next: " in told
    assert world.metrics()[sample] == before + 1
    return done


def converges(*datasets: str) -> None:
    """A run that is ok, after which both sides are the same, file by file, and the pool has no fault."""
    time.sleep(1.1)
    ok("run", "tank")
    ok("vault", "up", "cold")
    for dataset in datasets or DATASETS:
        snapname = snapshots(dataset)[-1]
        assert snapshots(f"cold/lab/{dataset}")[-1] == snapname
        assert get(f"{dataset}@{snapname}", "guid") == get(f"cold/lab/{dataset}@{snapname}", "guid")
        here = world.snapshot_hashes(f"{dataset}@{snapname}")
        assert here == world.snapshot_hashes(f"cold/lab/{dataset}@{snapname}")
        assert here or dataset == "tank"
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()


def make_ext4(image: Path) -> None:
    """As much of an ext4 file system as anything that looks for one reads: its superblock."""
    superblock = bytearray(1024)
    struct.pack_into("<H", superblock, 0x38, 0xEF53)
    struct.pack_into("<III", superblock, 0x5C, 0x4, 0x40, 0)
    superblock[0x68:0x78] = os.urandom(16)
    with image.open("r+b") as file:
        file.seek(1024)
        file.write(superblock)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def without(tool: str) -> Iterator[None]:
    """A program that is not installed."""
    found = shutil.which(tool)
    assert found is not None
    away = f"{found}.away"
    Path(found).rename(away)
    try:
        yield
    finally:
        Path(away).rename(found)


def server_pid() -> int:
    return int(sh("systemctl", "show", "-P", "MainPID", UNIT).strip())


def kill_server() -> float:
    os.kill(server_pid(), signal.SIGKILL)
    return time.monotonic()


def begin() -> None:
    """Start a run and wait until bytes flow, of 40 MiB."""
    ok("run", "--no-wait", "tank")
    eventually("bytes on their way", lambda: status()["backups"][0]["bytes_done"] > 8 << 20, every=0.05)


def ended() -> dict[str, Any] | None:
    run = last_run()
    return run if run["ended"] else None


def kill_on_the_way(verb: str, seconds: float) -> bool:
    """Kill the daemon some time after it was asked, start the next; whether the verb had been done before."""
    pid = world.main_pid()
    asked = ask("POST", f"/v1/vaults/cold/{verb}")
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    done = answer(asked) is not None
    eventually("systemd to notice", lambda: world.main_pid() != pid)
    sh("systemctl", "reset-failed", "zvaultd")  # or so many starts are too many
    sh("systemctl", "start", "zvaultd")
    return done


def exported() -> bool:
    """It is busy for as long as anybody asks it for anything, and the daemon does so now and then."""
    return subprocess.run(["zpool", "export", "cold"]).returncode == 0
