"""Storage that can be taken away below a vault: NBD, RBD and S3; and the vaults on it."""

from __future__ import annotations

import contextlib
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
import s3_proxy
import world
from test_rbd import mappings
from test_s3_nbd import bucket
from watcher import Watcher
from world import DISK, answer, ask, ctl, eventually, ok, sh

PROMPT = 15.0
"""Seconds within which whoever asks has an answer: the daemon's patience is 2.5 s of it, the rest is a busy guest. Who
waits for the storage itself waits for 30 s (zpool.LOOK_DEADLINE), or for ever.
"""
PORT = 10809
Fault = Callable[[], AbstractContextManager[None]]


@dataclass
class Storage:
    """What is below the vault: its table in the configuration, and the ways in which it can vanish."""

    table: str
    faults: dict[str, Fault]
    timeout: int = 3
    files: int = 10
    noise: int = 12
    """MiB for a stream that takes some seconds."""


@contextmanager
def cut(port: int, *sides: str) -> Iterator[None]:
    """Let no packet to (``dport``) or from (``sport``) a port through; neither end is told."""
    rules = "".join(f"tcp {side} {port} drop; " for side in sides)
    # All at once: it is to hit the middle of something.
    sh("nft", f"table inet cut {{ chain c {{ type filter hook input priority 0; {rules}}}; }}")
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
    """An NBD server of somebody else's, whose disk can be made read-only, and takes ``wdelay`` for a write."""

    def __init__(self, wdelay: str = "0") -> None:
        self.wdelay = wdelay
        self.read_only = DISK / "read-only"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve the disk as it is."""
        filters = ["--filter=error", "--filter=delay"]
        settings = [f"error-file={self.read_only}", "error-pwrite-rate=100%", "error=EPERM"]
        settings += ["rdelay=5ms", f"wdelay={self.wdelay}"]
        argv = ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(PORT), *filters, "file", str(DISK / "cold.img")]
        self.process = subprocess.Popen([*argv, *settings], stderr=subprocess.DEVNULL)
        eventually("the server", listens)

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


@pytest.fixture(name="cluster", scope="module")
def cluster_with_s3() -> Iterator[ceph.Cluster]:
    with ceph.cluster(rgw=True) as it:
        yield it


@contextmanager
def nbd(server: Server | None = None) -> Iterator[Storage]:
    """A server on the network."""
    sh("truncate", "-s", "1G", str(DISK / "cold.img"))
    server = server or Server()
    server.start()
    faults = {
        "killed": server.away,
        "cut": lambda: cut(PORT, "dport", "sport"),
        "requests cut": lambda: cut(PORT, "dport"),
        "answers cut": lambda: cut(PORT, "sport"),
        "read-only": server.unwritable,
    }
    try:
        yield Storage(f'nbd = "tcp:127.0.0.1:{PORT}"', faults)
    finally:
        server.stop()


@contextmanager
def rbd(it: ceph.Cluster, more: str = "", timeout: int = 3) -> Iterator[Storage]:
    """An image in a Ceph cluster of one OSD; ``more`` is for its table."""

    @contextmanager
    def stopped() -> Iterator[None]:
        it.stop_osd()
        yield
        it.start_osd()

    @contextmanager
    def paused() -> Iterator[None]:
        ceph.ask("osd set", key="pause")
        yield
        ceph.ask("osd unset", key="pause")

    def port() -> int:
        """Where the OSD listens, which may be elsewhere each time that it starts."""
        (osd,) = ceph.osd_map()["osds"]
        return int(osd["public_addrs"]["addrvec"][0]["addr"].rpartition(":")[2])

    faults = {
        "osd stopped": stopped,
        "osd cut": lambda: cut(port(), "dport", "sport"),
        "paused": paused,
    }
    table = f'rbd = "rbd_meta/cold"\nsize = "1G"\ndata_pool = "data"{more}'
    try:
        yield Storage(table, faults, timeout)
    finally:
        for mapping in mappings():
            sh("rbd", "device", "unmap", "-o", "force", mapping["device"], check=False)
        sh("rbd", "rm", "rbd_meta/cold", check=False)


@contextmanager
def s3(it: ceph.Cluster) -> Iterator[Storage]:
    """A bucket behind a proxy that does as it is told. Little of everything: a write is 70 ms of this guest's CPU."""
    user = it.s3()
    bucket(user).create()
    secrets = Path("/etc/s3backer.pass")
    secrets.touch(mode=0o600)
    secrets.write_text(f"{user.access_key}:{user.secret_key}\n")
    with s3_proxy.Proxy(user.endpoint) as proxy:

        @contextmanager
        def full() -> Iterator[None]:
            with proxy.doing("slow"):
                time.sleep(3)
            with proxy.doing("full"):
                yield

        faults = {
            "unavailable": lambda: proxy.doing("unavailable"),
            "slow and full": full,
            "silent": lambda: proxy.doing("silent"),
        }
        settings = f"accessFile={secrets} baseURL={proxy.endpoint}/ maxRetryPause=2000 timeout=5"
        table = f'nbd = "s3backer:zvault/cold size=1G blockSize=128k {settings}"'
        try:
            yield Storage(table, faults, timeout=10, files=2, noise=1)
        finally:
            bucket(user).objects.all().delete()


@dataclass
class Vault(world.World):
    """A few files, and a stream that takes some seconds, on storage of any kind."""

    storage: Storage = field(init=False)
    retries: int = 30
    backup_extra: str = 'retry_wait = "1s"\nlimit = "2M"'

    def source(self) -> None:
        world.make_tank("512M")
        sh("zfs", "create", "tank/home")
        world.fill(Path("/tank/home"), 1, count=self.storage.files)

    def config_text(self) -> str:
        table = f'\n{self.storage.table}\ntimeout = "{self.storage.timeout}s"\n'
        text = re.sub(
            r'\nnbd = .*?timeout = "20s"\n', lambda _: table, super().config_text(), flags=re.DOTALL
        )
        return text.replace('pool = "cold"', 'pool = "cold"\nprofile = "nbd-lan"')


@contextmanager
def vault_on(storage: AbstractContextManager[Storage]) -> Iterator[Vault]:
    """A vault that is down, and was never up."""
    it = Vault()
    it.clean()
    DISK.mkdir()
    with storage as it.storage:
        try:
            it.source()
            it.start()
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
            storage = nbd() if kind == "nbd" else {"rbd": rbd, "s3": s3}[kind](self.cluster())
            self._vault = self._open.enter_context(vault_on(storage))
            self.kind, self.spoilt = kind, False
        return self._vault

    def cluster(self) -> ceph.Cluster:
        """The cluster, from when it is first needed; what is on it goes before it."""
        found = self.request.getfixturevalue("cluster")
        self.request.node.addfinalizer(self.clear)
        return found

    def clear(self) -> None:
        """Take it down."""
        self._open.close()
        self.kind = ""


@pytest.fixture(name="stage", scope="module")
def stage_of_module(request: pytest.FixtureRequest) -> Iterator[Stage]:
    it = Stage(request)
    yield it
    it.clear()


def last_run() -> dict[str, Any]:
    told = answer(ask("GET", "/v1/history?backup=tank&limit=1"))
    assert told is not None
    return told["runs"][0]


def backup() -> dict[str, Any]:
    told = answer(ask("GET", "/v1/status"))
    assert told is not None
    return told["backups"][0]


def begun() -> int:
    """How often a stream of tank/home was begun, and not resumed."""
    return len(re.findall("tank/home: (?:full|incremental) to", world.journal()))


def arrives() -> bool:
    """Whether ZFS has begun to receive it: what is in the pipes alone is nothing that could be gone on from."""
    exists = subprocess.run(["zfs", "list", "cold/lab/tank/home"], capture_output=True).returncode == 0
    return exists and backup()["bytes_done"] > 1 << 18


def receive(storage: Storage, fault: Fault, outage: float, watcher: Watcher) -> None:
    """A stream on its way stands still or breaks off; its run goes on when the storage is back, and sends nothing
    twice that has arrived.
    """
    before = begun()
    world.noise(Path(f"/tank/home/noise{time.monotonic_ns()}"), storage.noise)
    time.sleep(1.1)
    ok("run", "--no-wait", "tank")
    eventually("bytes on the vault", arrives, every=0.05)
    with fault():
        eventually("it to be told", watcher.told)
        time.sleep(outage)
    ended = 240 + outage
    run = eventually("the run to end", lambda: (run := last_run())["ended"] and run, seconds=ended, every=1)
    if run["result"] != "ok" or begun() != before + 1:
        raise AssertionError(f"{run}\n{world.journal()}")


def scrub(storage: Storage, fault: Fault, outage: float, watcher: Watcher) -> None:
    """A vault that was brought up by hand is suspended, and goes on by itself."""
    ok("vault", "up", "cold")
    sh("zpool", "scrub", "cold")
    with fault():
        touch = subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
        eventually("it to be told", watcher.told)
        time.sleep(outage)
    eventually("it to go on by itself", watcher.well, seconds=180 + outage)
    assert touch.wait(120) == 0
    # One that was repaired within the five seconds between two looks was never told to be ill.
    eventually(
        "the journal",
        lambda: re.search("pool cold goes on|vault cold is well again", world.journal("VAULT=cold")),
    )
    ok("vault", "down", "cold")


def teardown(storage: Storage, fault: Fault, outage: float, watcher: Watcher) -> None:
    """A teardown ends and says what is left; when the storage is back it is done by itself."""
    ok("vault", "up", "cold")
    with fault():
        touch = subprocess.Popen(["zfs", "set", "org.zvault.test:x=z", "cold"])
        began = time.monotonic()
        down = ctl("vault", "down", "cold")
        print(f"vault down gave up after {time.monotonic() - began:.1f} s:", down.err)
        assert down.code == 1
        assert time.monotonic() - began < 120
        assert "left as it is: the pool cold" in " ".join(down.err.split())
        eventually("it to be told", watcher.told)
        time.sleep(outage)
    eventually("it to go down by itself", watcher.down, seconds=180 + outage)
    assert touch.wait(120) == 0
