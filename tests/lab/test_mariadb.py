"""What docs/how-to/mariadb.md promises: a server restored from a snapshot under a lock is whole, MyISAM tables too."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from world import DISK, World, ctl, eventually, get, journal, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 1200, "in_order": True}

AS_MYSQL = ("runuser", "-u", "mysql", "--")
RUN = Path("/run/lab-mariadb")
LOCKS = {
    "flush": "FLUSH TABLES WITH READ LOCK;",
    "stages": "BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT;",
}
"""As docs/how-to/mariadb.md has them."""

ROWS = 3000
"""Rows of a table without transactions: one statement writes all of them, and takes some time."""


@dataclass
class Server:
    """A MariaDB, by its data directory."""

    data: Path
    name: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> str:
        return str(RUN / f"{self.name}.sock")

    def init(self) -> None:
        argv = ("mariadb-install-db", "--no-defaults", "--basedir=/usr", f"--datadir={self.data}")
        sh(*AS_MYSQL, *argv, "--auth-root-authentication-method=normal", "--skip-test-db")

    def start(self) -> None:
        settings = (
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--pid-file={RUN / self.name}.pid",
            f"--log-error={self.log}",
            "--skip-networking",
            "--innodb-buffer-pool-size=32M",
            "--innodb-log-file-size=8M",
        )
        self.process = subprocess.Popen([*AS_MYSQL, "/usr/sbin/mariadbd", "--no-defaults", *settings])
        eventually(lambda: f"{self.name} answers:\n{self.said()}", self.answers)

    @property
    def log(self) -> Path:
        return RUN / f"{self.name}.log"

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        return subprocess.run([*self.client, "-e", "SELECT 1"], capture_output=True).returncode == 0

    @property
    def client(self) -> list[str]:
        return ["mariadb", "--no-defaults", "-u", "root", f"--socket={self.socket}", "-N", "-B"]

    def sql(self, text: str) -> str:
        return sh(*self.client, "-e", text).strip()

    def stop(self) -> None:
        if self.process is not None:
            sh(*self.client, "-e", "SHUTDOWN", check=False)
            self.process.wait(120)


@contextmanager
def load(server: Server) -> Iterator[subprocess.Popen[str]]:
    """Transfers between accounts in InnoDB, each with its line in a journal; and a MyISAM table written all over."""
    transfer = (
        "BEGIN; UPDATE shop.account SET n = n - 1 WHERE id = 1; UPDATE shop.account SET n = n + 1 WHERE id = 2;"
        "INSERT INTO shop.journal (n) VALUES (1); COMMIT;"
    )
    both = f"while :; do echo '{transfer} UPDATE shop.plain SET n = n + 1;'; done"
    process = subprocess.Popen(
        ["sh", "-c", f"{both} | exec {' '.join(server.client)}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
        assert process.poll() is None, f"the load went on: {process.communicate()[0]}"
    finally:
        sh("kill", "--", f"-{process.pid}", check=False)
        process.wait(60)


@pytest.fixture(scope="module")
def live() -> Iterator[Server]:
    sh("useradd", "--system", "mysql", check=False)
    sh("install", "-d", "-o", "mysql", str(RUN))
    it = World(source_name="tank/db", delay="", keep="{}", size="2G")
    it.clean()
    DISK.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", str(DISK / "tank.img"))
    sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=lz4", "tank", str(DISK / "tank.img"))
    sh("zfs", "create", "tank/db")
    sh("chown", "mysql:", "/tank/db")
    server = Server(Path("/tank/db/main"), "live")
    server.init()
    server.start()
    server.sql(
        "CREATE DATABASE shop;"
        "CREATE TABLE shop.account (id INT PRIMARY KEY, n INT) ENGINE=InnoDB;"
        "INSERT INTO shop.account VALUES (1, 0), (2, 0);"
        "CREATE TABLE shop.journal (id INT PRIMARY KEY AUTO_INCREMENT, n INT) ENGINE=InnoDB;"
        "CREATE TABLE shop.marker (n INT) ENGINE=InnoDB;"
        "CREATE TABLE shop.plain (id INT PRIMARY KEY, n INT, KEY (n)) ENGINE=MyISAM;"
        f"USE shop; INSERT INTO plain SELECT seq, 0 FROM seq_1_to_{ROWS};"
    )
    it.start()
    ok("vault", "up", "cold")
    yield server
    server.stop()
    it.clean()


def hold_by(lock: str, server: Server) -> None:
    """The program of docs/how-to/mariadb.md, and the hook that has it."""
    program = Path("/usr/local/sbin/hold-mariadb")
    program.write_text(
        "#!/bin/sh\n"
        f"{{ echo \"{lock} SELECT 'ready';\"; exec sleep infinity; }} |\n"
        f"    {{ mariadb --socket={server.socket} --batch --skip-column-names --unbuffered; kill 0; }}\n"
    )
    program.chmod(0o755)
    it = World(source_name="tank/db", delay="", keep="{}", size="2G")
    it.backup_extra = (
        f'snapshot = {{ hooks = {{ before = [{{ run = ["{program}"], hold = true, timeout = "2m" }}] }} }}'
    )
    it.configure()
    sh("systemctl", "reload", "zvaultd")


def commits(server: Server) -> int:
    return int(server.sql("SELECT COUNT(*) FROM shop.journal"))


@pytest.mark.parametrize(("marker", "lock"), list(enumerate(LOCKS.values(), 1)), ids=list(LOCKS))
def test_what_is_restored_from_a_snapshot_under_a_lock_is_whole(live: Server, marker: int, lock: str) -> None:
    hold_by(lock, live)
    with load(live):
        before = commits(live)
        eventually("the load to go on", lambda: commits(live) > before)
        live.sql(f"INSERT INTO shop.marker VALUES ({marker})")
        ok("run", "tank")
        after = commits(live)
        eventually("the lock to be gone", lambda: commits(live) > after)
    assert "did not hold" not in journal("HOOK=before-snapshot")

    snapname = snapshots("tank/db")[-1]
    back = f"tank/back-{marker}"
    ok("restore", "tank", f"tank/db@{snapname}", back)
    began = time.monotonic()
    restored = Server(Path(f"/{back}/main"), f"back-{marker}")
    restored.start()
    try:
        # A MyISAM table that was open for writing, or half-written, is told here.
        checked = restored.sql("CHECK TABLE shop.plain, shop.account, shop.journal, shop.marker EXTENDED")
        assert [line.split("\t")[2:] for line in checked.splitlines()] == [["status", "OK"]] * 4, checked
        assert restored.sql("SELECT COUNT(*), COUNT(DISTINCT n) FROM shop.plain") == f"{ROWS}\t1"
        # No transaction is there by half, and none that was told before the snapshot is lost.
        count = commits(restored)
        assert restored.sql("SELECT n FROM shop.account ORDER BY id").split() == [str(-count), str(count)]
        assert restored.sql("SELECT MAX(n) FROM shop.marker") == str(marker)
        assert before < count <= after
        restored.sql("INSERT INTO shop.journal (n) VALUES (2)")
    finally:
        restored.stop()
    print(
        f"{lock} {count} of {after} transactions; {get(back, 'used')} bytes; {time.monotonic() - began:.1f} s"
    )


def test_a_lock_that_is_not_to_be_had_makes_no_snapshot(live: Server) -> None:
    """It is told at once, with what the client said, and nothing of the program is left."""
    hold_by("SELECT no_such_column;", live)
    before = snapshots("tank/db")
    done = ctl("run", "tank")
    assert done.code == 1
    assert "no_such_column" in done.out + done.err
    assert snapshots("tank/db") == before
    # What was killed takes a moment to end.
    eventually("nothing of it is left", lambda: not sh("pgrep", "-fx", "sleep infinity", check=False))
    live.sql("INSERT INTO shop.marker VALUES (0); DELETE FROM shop.marker WHERE n = 0")
