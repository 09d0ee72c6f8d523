"""Storage that vanishes below a vault: whatever is under way, for seconds or minutes, and comes back.

Each fault meets a receive, a scrub or a teardown. Meanwhile the daemon answers at once and tells what is wrong; when
the storage is back everything goes on by itself, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ceph
import pytest
import world
from test_rbd import mappings
from watcher import Watcher
from world import DISK, answer, ask, ctl, eventually, main_pid, ok, sh

LAB = {"mem": "4G", "timeout": 3600}

ALL = bool(os.environ.get("ZVAULT_ALL"))
OUTAGES = [2.0, 150.0] if ALL else [2.0]
"""Seconds that the storage stays away after all who look have been told."""

PROMPT = 5.0
"""Seconds within which whoever asks has an answer: the daemon's patience is half of it, the rest is a busy guest."""

TIMEOUT = 3
PORT = 10809

Fault = Callable[[], AbstractContextManager[None]]


@dataclass
class Storage:
    """What is below the vault: its table in the configuration, and the ways in which it can vanish."""

    name: str
    table: str
    faults: dict[str, Fault]


@contextmanager
def cut(port: int, *sides: str) -> Iterator[None]:
    """Let no packet to (``dport``) or from (``sport``) a port through; neither end is told."""
    sh("nft", "add", "table", "inet", "cut")
    sh("nft", "add", "chain", "inet", "cut", "c", "{ type filter hook input priority 0; }")
    for side in sides:
        sh("nft", "add", "rule", "inet", "cut", "c", "tcp", side, str(port), "drop")
    try:
        yield
    finally:
        sh("nft", "delete", "table", "inet", "cut")


def listens() -> bool:
    """Whether the server takes connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), timeout=1):
        return True
    return False


class Server:
    """An NBD server of somebody else's, whose disk can be made read-only."""

    def __init__(self) -> None:
        self.read_only = DISK / "read-only"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve the disk as it is."""
        filters = ["--filter=error", "--filter=delay"]
        settings = [f"error-file={self.read_only}", "error-pwrite-rate=100%", "error=EPERM", "rdelay=5ms"]
        argv = ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(PORT), *filters, "file", str(DISK / "cold.img")]
        self.process = subprocess.Popen([*argv, *settings], stderr=subprocess.DEVNULL)
        eventually("the server", listens, seconds=10)

    def stop(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Killed, and started anew."""
        self.stop()
        yield
        self.start()

    @contextmanager
    def unwritable(self) -> Iterator[None]:
        """It refuses writes, as a server does whose disk has become read-only."""
        self.read_only.touch()
        yield
        self.read_only.unlink()


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    with ceph.cluster() as it:
        yield it


@contextmanager
def nbd() -> Iterator[Storage]:
    """A server on the network."""
    sh("truncate", "-s", "1G", str(DISK / "cold.img"))
    server = Server()
    server.start()
    faults = {
        "killed": server.away,
        "cut": lambda: cut(PORT, "dport", "sport"),
        "requests cut": lambda: cut(PORT, "dport"),
        "answers cut": lambda: cut(PORT, "sport"),
        "read-only": server.unwritable,
    }
    try:
        yield Storage("nbd", f'nbd = "tcp:127.0.0.1:{PORT}"', faults)
    finally:
        server.stop()


@contextmanager
def rbd(it: ceph.Cluster) -> Iterator[Storage]:
    """An image in a Ceph cluster of one OSD."""

    @contextmanager
    def stopped() -> Iterator[None]:
        it.stop_osd()
        yield
        it.start_osd()

    @contextmanager
    def paused() -> Iterator[None]:
        it.ceph("osd", "set", "pause")
        yield
        it.ceph("osd", "unset", "pause")

    osd = it.ceph("osd", "dump")["osds"][0]["public_addrs"]["addrvec"][0]["addr"]
    faults = {
        "osd stopped": stopped,
        "osd cut": lambda: cut(int(osd.rpartition(":")[2]), "dport", "sport"),
        "paused": paused,
    }
    table = 'rbd = "rbd_meta/cold"\nsize = "1G"\ndata_pool = "data"'
    try:
        yield Storage("rbd", table, faults)
    finally:
        for mapping in mappings():
            sh("rbd", "device", "unmap", "-o", "force", mapping["device"], check=False)
        sh("rbd", "rm", "rbd_meta/cold", check=False)


@dataclass
class Vault(world.World):
    """A few files, and a stream that takes some seconds, on storage of any kind."""

    storage: Storage = field(init=False)
    retries: int = 30
    backup_extra: str = 'retry_wait = "1s"\nlimit = "2M"'

    def source(self) -> None:
        world.make_tank("512M")
        sh("zfs", "create", "tank/home")
        world.fill(Path("/tank/home"), 1, count=10)

    def config_text(self) -> str:
        table = f'\n{self.storage.table}\ntimeout = "{TIMEOUT}s"\n'
        text = re.sub(
            r'\nnbd = .*?timeout = "20s"\n', lambda _: table, super().config_text(), flags=re.DOTALL
        )
        return text.replace('pool = "cold"', 'pool = "cold"\nprofile = "nbd-lan"')


@contextmanager
def vault_on(storage: AbstractContextManager[Storage]) -> Iterator[Vault]:
    """A vault that has had its first backup, and is down."""
    it = Vault()
    it.clean()
    DISK.mkdir()
    with storage as it.storage:
        try:
            it.source()
            it.start()
            ok("run", "tank")
            yield it
        finally:
            it.clean()


@dataclass
class Stage:
    """One set-up at a time, which serves the tests in a row that want the same storage, until one fails."""

    request: pytest.FixtureRequest
    kind: str = ""
    spoilt: bool = False
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def vault(self, kind: str) -> Vault:
        """The vault on some kind of storage."""
        if kind != self.kind or self.spoilt:
            self.clear()
            storage = nbd() if kind == "nbd" else rbd(self.cluster())
            self._vault = self._open.enter_context(vault_on(storage))
            self.kind, self.spoilt = kind, False
        return self._vault

    def cluster(self) -> ceph.Cluster:
        """The cluster, from when it is first needed."""
        return self.request.getfixturevalue("cluster")

    def clear(self) -> None:
        """Take it down."""
        self._open.close()
        self.kind = ""


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    it = Stage(request)
    yield it
    it.clear()


def last_run() -> dict[str, Any]:
    told = answer(ask("GET", "/v1/history?backup=tank&limit=1"))
    assert told is not None
    return told["runs"][0]


def receive(fault: Fault, outage: float, watcher: Watcher) -> None:
    """A stream on its way breaks off; its run tries again until the storage is back, and resumes."""
    world.noise(Path(f"/tank/home/noise{time.monotonic_ns()}"), 12)
    time.sleep(1.1)
    ok("run", "--no-wait", "tank")
    eventually("bytes on their way", lambda: world.status()["backups"][0]["bytes_done"] > 1 << 18)
    with fault():
        eventually("it to be told", watcher.told, seconds=30)
        time.sleep(outage)
    run = eventually("the run to end", lambda: (run := last_run())["ended"] and run, seconds=90, every=1)
    assert run["result"] == "ok", run
    assert "interrupted receive" in world.journal() or "resume to" in world.journal()


def scrub(fault: Fault, outage: float, watcher: Watcher) -> None:
    """A vault that was brought up by hand is suspended, and goes on by itself."""
    ok("vault", "up", "cold")
    sh("zpool", "scrub", "cold")
    with fault():
        touch = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
        eventually("it to be told", watcher.told, seconds=30)
        time.sleep(outage)
    eventually("it to go on by itself", watcher.well, seconds=60)
    assert touch.wait(30) == 0
    assert "vault cold is well again" in world.journal("VAULT=cold")
    ok("vault", "down", "cold")


def teardown(fault: Fault, outage: float, watcher: Watcher) -> None:
    """A teardown ends and says what is left; when the storage is back it is done by itself."""
    ok("vault", "up", "cold")
    with fault():
        touch = subprocess.Popen(["zfs", "set", "org.zvault.test:x=z", "cold"])
        began = time.monotonic()
        down = ctl("vault", "down", "cold")
        print(f"vault down gave up after {time.monotonic() - began:.1f} s:", down.err)
        assert down.code == 1
        assert time.monotonic() - began < 60
        assert "left as it is: the pool cold" in " ".join(down.err.split())
        eventually("it to be told", watcher.told, seconds=30)
        time.sleep(outage)
    eventually("it to go down by itself", watcher.down, seconds=60)
    assert touch.wait(30) == 0


FAULTS = {
    "nbd": ("killed", "cut", "requests cut", "answers cut", "read-only"),
    "rbd": ("osd stopped", "osd cut", "paused"),
}
OPERATIONS = {"receive": receive, "scrub": scrub, "teardown": teardown}
CASES = [
    ("nbd", "killed", "receive"),
    ("nbd", "cut", "teardown"),
    ("nbd", "read-only", "scrub"),
    ("rbd", "osd stopped", "receive"),
    ("rbd", "osd cut", "teardown"),
]
"""What always runs: every kind of fault, and every operation. With ZVAULT_ALL it is all with all, and for minutes."""
if ALL:
    CASES = [
        (name, fault, verb) for name, faults in FAULTS.items() for fault in faults for verb in OPERATIONS
    ]


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize(("storage", "fault", "operation"), CASES)
def test_storage_that_vanishes(stage: Stage, storage: str, fault: str, operation: str, outage: float):
    it = stage.vault(storage).storage
    stage.spoilt = True
    pid = main_pid()
    with Watcher() as watcher:
        eventually("a first look", lambda: watcher.vault and watcher.samples, seconds=20)
        OPERATIONS[operation](it.faults[fault], outage, watcher)
    print("the slowest answers:", watcher.worst)
    assert not watcher.failed
    assert max(watcher.worst.values()) < PROMPT, watcher.worst
    assert main_pid() == pid, "the daemon did not survive it"
    unharmed()
    stage.spoilt = False


def unharmed() -> None:
    """Everything is there, byte by byte, and the pool has no fault."""
    ok("vault", "up", "cold")
    tag = world.snapshots("tank/home")[-1]
    assert world.snapshots("cold/lab/tank/home")[-1] == tag
    here = world.snapshot_hashes(f"tank/home@{tag}")
    assert here
    assert world.snapshot_hashes(f"cold/lab/tank/home@{tag}") == here
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")
