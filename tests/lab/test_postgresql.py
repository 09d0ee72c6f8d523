"""What docs/how-to/postgresql.md promises: a restored cluster starts, is whole, and has lost no commit."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import world
from world import DISK, World, eventually, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2250, "in_order": True}

(BIN,) = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:] or [Path("/nowhere")]
AS_POSTGRES = ("runuser", "-u", "postgres", "--")
SOCKETS = "/tmp"
BACKUPS = 4
RATE = 100
"""Transactions a second: some hundred for each backup."""


@dataclass
class Cluster:
    """A PostgreSQL, by its data directory and port."""

    data: Path
    port: int

    def tool(self, name: str, *argv: str, timeout: float = 300) -> str:
        """One of its programs, as the user postgres."""
        return sh(*AS_POSTGRES, str(BIN / name), *argv, timeout=timeout)

    @property
    def where(self) -> tuple[str, ...]:
        return ("-h", SOCKETS, "-p", str(self.port))

    def sql(self, text: str, database: str = "bench") -> str:
        return self.tool("psql", "-XAtq", *self.where, "-d", database, "-c", text).strip()

    def init(self, wal: Path | None = None) -> None:
        waldir = ["--waldir", str(wal)] if wal else []
        # With checksums a torn page cannot go unseen.
        self.tool("initdb", "-k", "-A", "trust", "--locale", "C.UTF-8", "-D", str(self.data), *waldir)

    def start(self) -> None:
        settings = {
            "unix_socket_directories": SOCKETS,
            "listen_addresses": "",
            "shared_buffers": "64MB",
            "min_wal_size": "32MB",
            "max_wal_size": "128MB",
        }
        options = " ".join([f"-p {self.port}", *(f"-c {key}='{value}'" for key, value in settings.items())])
        log = self.data / "start.log"
        self.tool("pg_ctl", "-w", "-t", "240", "-D", str(self.data), "-l", str(log), "-o", options, "start")

    def stop(self) -> None:
        sh(*AS_POSTGRES, str(BIN / "pg_ctl"), "-w", "-m", "fast", "-D", str(self.data), "stop", check=False)

    def log(self) -> str:
        return (self.data / "start.log").read_text()

    @contextmanager
    def load(self) -> Iterator[subprocess.Popen[str]]:
        """Pgbench writing from four clients meanwhile; unbounded it takes all of the CPU that the backups leave."""
        argv = [
            *AS_POSTGRES,
            str(BIN / "pgbench"),
            *self.where,
            "-n",
            "-c",
            "4",
            "-j",
            "2",
            "-T",
            "3000",
            f"--rate={RATE}",
            "bench",
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
            assert process.poll() is None, f"the load went on: {process.communicate()[0]}"
        finally:
            sh("pkill", "-INT", "-x", "pgbench", check=False)
            process.wait(120)


@pytest.fixture
def tank():
    it = World(source_name="tank/pg", delay="", keep="{}")
    it.clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "3G", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=lz4", "tank", str(DISK / "tank.img"))
    sh("zfs", "create", "tank/pg")
    it.size = "3G"
    yield it
    sh("pkill", "-INT", "-x", "postgres", check=False)
    eventually("PostgreSQL to end", lambda: not sh("pgrep", "-x", "postgres", check=False))
    it.clean()


def own(*names: str) -> None:
    for name in names:
        sh("zfs", "create", name)
        sh("chown", "postgres:", f"/{name}")
        sh("chmod", "700", f"/{name}")


def checked(cluster: Cluster, marker: int) -> dict[str, int]:
    """Recover a restored cluster and look at all there is to be looked at. Returns what was counted."""
    began = time.monotonic()
    cluster.start()
    started = time.monotonic() - began
    try:
        # Whole by structure: every heap against its toast, every index against its heap.
        deep = ("--heapallindexed", "--parent-check", "--rootdescend", "--checkunique")
        cluster.tool(
            "pg_amcheck", *cluster.where, "--install-missing", *deep, "-d", "bench", "-d", "postgres"
        )
        # Whole by contents: each transaction adds the same number to one row of three tables and a fourth.
        sums = [
            int(cluster.sql(f"SELECT coalesce(sum({column}), 0) FROM {table}"))
            for table, column in (
                ("pgbench_accounts", "abalance"),
                ("pgbench_tellers", "tbalance"),
                ("pgbench_branches", "bbalance"),
                ("pgbench_history", "delta"),
            )
        ]
        assert len(set(sums)) == 1, f"half of a transaction: {sums}"
        # Nothing that was committed before the snapshot is lost.
        assert int(cluster.sql("SELECT max(n) FROM marker")) == marker
        count = int(cluster.sql("SELECT count(*) FROM pgbench_history"))
        # It goes on from there.
        cluster.tool("pgbench", *cluster.where, "-n", "-c", "2", "-t", "50", "bench")
        assert int(cluster.sql("SELECT count(*) FROM pgbench_history")) == count + 100
    finally:
        cluster.stop()
    # Stopped now, so that every page's checksum can be read too.
    cluster.tool("pg_checksums", "--check", "-D", str(cluster.data))
    return {"transactions": count, "started_ms": int(started * 1000), "sum": sums[0]}


def fill(cluster: Cluster) -> None:
    cluster.sql("CREATE DATABASE bench", "postgres")
    cluster.tool("pgbench", *cluster.where, "-i", "-q", "-s", "3", "bench")
    cluster.sql("CREATE TABLE marker (n int)")


def back_up_under_load(cluster: Cluster, *, halfway: Callable[[], None] = lambda: None) -> list[str]:
    """Several backups while pgbench writes; each knows a commit that was told before it began."""

    def commits() -> int:
        return int(cluster.sql("SELECT count(*) FROM pgbench_history"))

    before = 0
    with cluster.load():
        for number in range(1, BACKUPS + 1):
            eventually("pgbench to go on", lambda before=before: commits() > before)
            before = commits()
            if number == BACKUPS // 2 + 1:
                halfway()
            cluster.sql(f"INSERT INTO marker VALUES ({number})")
            ok("run", "tank")
    return snapshots(world.sh("zfs", "list", "-Ho", "name", "-r", "tank/pg").split()[-1])


def test_one_atomic_snapshot_of_data_and_wal(tank):
    """Data and WAL on two datasets of one tree: crash consistent by itself; the hook only shortens the recovery."""
    own("tank/pg/data", "tank/pg/wal")
    live = Cluster(Path("/tank/pg/data/main"), 5433)
    live.init(Path("/tank/pg/wal/main"))
    live.start()
    fill(live)
    psql = [*AS_POSTGRES, "psql", *live.where, "-qc", "CHECKPOINT"]
    tank.backup_extra = f"snapshot = {{ hooks = {{ before = [{json.dumps(psql)}] }} }}"
    tank.start()

    def without_the_hook() -> None:
        tank.backup_extra = ""
        tank.configure()
        sh("systemctl", "reload", "zvaultd")

    snapnames = back_up_under_load(live, halfway=without_the_hook)
    assert len(snapnames) == BACKUPS
    assert world.journal("HOOK=before-snapshot").count("ended well") == BACKUPS // 2
    transactions = int(live.sql("SELECT count(*) FROM pgbench_history"))

    ok("vault", "up", "cold")
    seen = []
    for number, snapname in enumerate(snapnames, 1):
        sh("zfs", "create", f"tank/back-{number}")
        for part in ("data", "wal"):
            ok("restore", "tank", f"tank/pg/{part}@{snapname}", f"tank/back-{number}/{part}")
        restored = Cluster(Path(f"/tank/back-{number}/data/main"), 5440 + number)
        (restored.data / "postmaster.pid").unlink()
        wal = restored.data / "pg_wal"
        assert str(wal.readlink()) == "/tank/pg/wal/main", "as it was; that is the live one's"
        wal.unlink()
        wal.symlink_to(f"/tank/back-{number}/wal/main")
        (restored.data / "start.log").unlink()
        seen.append(checked(restored, number))
        size = world.get(f"tank/back-{number}", "used")
        redone = re.search(r"redo done at .*(elapsed: \S+ s)", restored.log())
        print(f"backup {number}: {int(size) >> 20} MiB, redo {redone and redone[1]}")
        assert "database system was not properly shut down; automatic recovery in progress" in restored.log()
        assert "redo done" in restored.log()
    print(f"live: {transactions} transactions; restored: {seen}")
    counts = [each["transactions"] for each in seen]
    assert counts == sorted(set(counts)), "each backup is later than the one before"
    assert counts[0] > 0
    live.stop()
    ok("vault", "down", "cold")


def test_a_base_backup_where_the_wal_lies_elsewhere(tank):
    """No one snapshot holds the cluster: pg_basebackup brings it to the dataset that is backed up."""
    own("tank/pg/base")
    sh("install", "-d", "-o", "postgres", "-m", "700", "/var/tmp/live", "/var/tmp/live-wal")
    live = Cluster(Path("/var/tmp/live/main"), 5433)
    live.init(Path("/var/tmp/live-wal/main"))
    live.start()
    fill(live)
    copy = (
        "rm -rf /tank/pg/base/main && "
        f"exec runuser -u postgres -- pg_basebackup -h {SOCKETS} -p 5433 -c fast -D /tank/pg/base/main"
    )
    hook = f'{{ run = {json.dumps(["sh", "-ec", copy])}, timeout = "10m" }}'
    tank.backup_extra = f"snapshot = {{ hooks = {{ before = [{hook}] }} }}"
    tank.start()
    snapnames = back_up_under_load(live)

    ok("vault", "up", "cold")
    seen = []
    for number in (1, BACKUPS):
        ok("restore", "tank", f"tank/pg/base@{snapnames[number - 1]}", f"tank/back-{number}")
        restored = Cluster(Path(f"/tank/back-{number}/main"), 5440 + number)
        seen.append(checked(restored, number))
        assert "starting backup recovery" in restored.log()
    print(f"restored: {seen}")
    live.stop()
    sh("rm", "-rf", "/var/tmp/live", "/var/tmp/live-wal")
    ok("vault", "down", "cold")
