"""A real Ceph cluster in the guest: one monitor, OSDs whose disks are files in memory, and S3 by RGW if wanted.

A client finds it as it would find any other, by ``/etc/ceph``. Its daemons are children of the test.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path("/var/lib/ceph-lab")
ETC = Path("/etc/ceph")
ADMIN = ETC / "ceph.client.admin.keyring"
HERE = "127.0.0.1"
MON_PORT = 6789
RGW_PORT = 7480
META, DATA = "rbd_meta", "data"
"""The pools: both replicated once."""
CODED = "coded"
"""The third pool where there are OSDs enough for it: erasure-coded, two parts of data and one of parity."""
OSDS_FOR_CODED = 3

UP_DEADLINE = 240.0
"""Seconds for a daemon to come up, and for a tool to answer; alone on its CPU it takes five, a busy one many more."""
TAIL = 15

CONF = """\
[global]
fsid = {fsid}
mon host = v1:{address}:{port}
public addr = {address}
ms bind msgr2 = false
auth allow insecure global id reclaim = false
mon allow pool size one = true
mon warn on pool no redundancy = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = {pgs}
rgw rados pool pg num min = {pgs}
osd crush chooseleaf type = 0
run dir = {folder}
log file = {folder}/$name.log
log to stderr = false
err to stderr = false
mon data = {folder}/mon
osd data = {folder}/osd.$id
bluestore block size = {size}
# The default is where the program was started, plus a relative path (18.2.7 of Debian 13).
osd class dir = {classes}
erasure code dir = {codes}
# A dead client is given up sooner than after 30 s.
osd client watch timeout = 10
# Nobody else is there to be waited for, and the disk's speed need not be measured before it is used.
paxos propose interval = 0.05
paxos min wait = 0.01
osd mclock skip benchmark = true
"""


@dataclass(frozen=True)
class S3:
    """What an S3 client must know."""

    endpoint: str
    access_key: str
    secret_key: str

    def bucket(self, name: str) -> Any:
        """A bucket, as S3 itself tells of it: boto3's, which need not be there yet."""
        import boto3  # here: a benchmark's ``requests`` may be in the way of the library of that name

        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        return boto3.resource("s3", endpoint_url=self.endpoint, region_name="default", **keys).Bucket(name)


@dataclass
class Cluster:
    """A cluster that runs."""

    fsid: str = field(default_factory=lambda: str(uuid.uuid4()))
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    users: dict[str, S3] = field(default_factory=dict)
    address: str = HERE

    def client(self, name: str, **caps: str) -> Path:
        """The keyring of a client ``name`` that may do only what ``caps`` say, by service."""
        words = [word for pair in caps.items() for word in pair]
        path = FOLDER / f"client.{name}.keyring"
        path.write_text(ask("auth get-or-create", entity=f"client.{name}", caps=words))
        return path

    def start(self, name: str, *argv: str) -> None:
        """Start a daemon, which stays in the foreground and says nothing."""
        with (FOLDER / f"{name}.out").open("wb") as out:
            self.daemons[name] = subprocess.Popen(argv, cwd="/", stdout=out, stderr=out)

    def wait(self, name: str, up: Callable[[], bool]) -> None:
        """Wait until a daemon is up; fails with its last words."""
        give_up = time.monotonic() + UP_DEADLINE
        while not up():
            code = self.daemons[name].poll()
            if code is not None or time.monotonic() > give_up:
                how = "is not up" if code is None else f"ended with status {code}"
                raise AssertionError(f"ceph's {name} {how}:\n{last_words(name)}")
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """End a daemon at once, as a power cut does."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def start_mon(self) -> None:
        """Start the monitor again, with all that it knew."""
        self.start("mon.a", "ceph-mon", "-f", "-i", "a")
        self.wait("mon.a", monitor_answers)

    def stop_mon(self) -> None:
        """Kill the monitor: who is connected can go on, nobody new can come."""
        self.kill("mon.a")

    def start_osd(self, number: int = 0) -> None:
        """Start an OSD on what its disk holds."""
        before = self._osd_epoch(number)
        self.start(f"osd.{number}", "ceph-osd", "-f", "-i", str(number))
        self.wait(f"osd.{number}", lambda: self._osd_epoch(number) > before)

    def _osd_epoch(self, number: int) -> int:
        """The map's epoch since which an OSD is up. Killed, it counts as up until another boot tells better."""
        osds = osd_map()["osds"]
        return max((int(osd["up_from"]) for osd in osds if osd["osd"] == number), default=0)

    def stop_osd(self) -> None:
        """Kill the OSD: every request waits."""
        self.kill("osd.0")

    def start_rgw(self) -> None:
        """Start S3, with tcp_nodelay: without it each small answer waits 40 ms."""
        keyring = self.client("rgw", mon="allow rw", osd="allow rwx")
        front = f"beast endpoint={self.address}:{RGW_PORT} tcp_nodelay=1"
        argv = ("radosgw", "-f", "-n", "client.rgw", "--keyring", str(keyring), "--rgw-frontends", front)
        self.start("client.rgw", *argv)
        self.wait("client.rgw", lambda: succeeds("curl", "-sf", "-m", "20", self.endpoint))

    @property
    def endpoint(self) -> str:
        """Where S3 listens."""
        return f"http://{self.address}:{RGW_PORT}"

    def s3(self, user: str = "lab") -> S3:
        """A user of RGW's, made if there is none of that name."""
        if user not in self.users:
            told = tool("radosgw-admin", "user", "create", "--uid", user, "--display-name", user)
            (keys,) = json.loads(told)["keys"]
            self.users[user] = S3(self.endpoint, keys["access_key"], keys["secret_key"])
        return self.users[user]

    def stop(self) -> None:
        """End every daemon and remove every trace; a device still mapped can then never be unmapped."""
        for name in list(self.daemons):
            self.kill(name)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.rmtree(ETC, ignore_errors=True)


@contextmanager
def cluster(
    *,
    size: int = 4 << 30,
    pgs: int = 4,
    rgw: bool = False,
    disks: Sequence[Path | None] = (None,),
    address: str = HERE,
) -> Iterator[Cluster]:
    """A cluster with an OSD for each of ``disks``; None is ``size`` bytes of the guest's memory, taken when written.

    ``address`` is where it listens: another guest reaches it only by the wire's.
    """
    it = Cluster(address=address)
    try:
        make_monitor(it, size, pgs)
        for number, disk in enumerate(disks):
            make_osd(it, number, disk)
        for pool in (META, DATA):
            ask("osd pool create", pool=pool)
            ask("osd pool application enable", pool=pool, app="rbd")
        if len(disks) >= OSDS_FOR_CODED:
            make_coded_pool()
        if rgw:
            it.start_rgw()
        yield it
    finally:
        it.stop()


def make_monitor(it: Cluster, size: int, pgs: int) -> None:
    """The configuration, the administrator's key, and a monitor that answers."""
    for folder in (ETC, FOLDER / "mon"):
        folder.mkdir(parents=True, exist_ok=True)
    (library,) = Path("/usr/lib").glob("*/rados-classes")
    codes = library.parent / "ceph" / "erasure-code"
    text = CONF.format(
        fsid=it.fsid,
        address=it.address,
        port=MON_PORT,
        folder=FOLDER,
        size=size,
        pgs=pgs,
        classes=library,
        codes=codes,
    )
    (ETC / "ceph.conf").write_text(text)
    allow = [word for service in ("mon", "osd", "mgr", "mds") for word in ("--cap", service, "allow *")]
    tool("ceph-authtool", "--create-keyring", str(ADMIN), "--gen-key", "-n", "mon.", *allow[:3])
    tool("ceph-authtool", str(ADMIN), "--gen-key", "-n", "client.admin", *allow)
    tool(
        "monmaptool",
        "--create",
        "--fsid",
        it.fsid,
        "--addv",
        "a",
        f"[v1:{it.address}:{MON_PORT}]",
        str(FOLDER / "monmap"),
    )
    tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(FOLDER / "monmap"), "--keyring", str(ADMIN))
    it.start_mon()


def make_osd(it: Cluster, number: int, disk: Path | None) -> None:
    """An OSD's disk, and the OSD."""
    name, folder = str(uuid.uuid4()), FOLDER / f"osd.{number}"
    folder.mkdir()
    if disk is not None:
        (folder / "block").symlink_to(disk)
    ask("osd new", uuid=name)
    caps = ("mon", "allow profile osd", "osd", "allow *", "mgr", "allow profile osd")
    (folder / "keyring").write_text(ask("auth get-or-create", entity=f"osd.{number}", caps=caps))
    tool("ceph-osd", "--mkfs", "-i", str(number), "--osd-uuid", name, "--no-mon-config")
    it.start_osd(number)


def make_coded_pool() -> None:
    """An erasure-coded pool that images can have their data in."""
    parts = ("k=2", "m=1", "crush-failure-domain=osd")
    ask("osd erasure-code-profile set", name=CODED, profile=parts)
    ask("osd pool create", pool=CODED, pool_type="erasure", erasure_code_profile=CODED)
    ask("osd pool set", pool=CODED, var="allow_ec_overwrites", val="true")
    ask("osd pool application enable", pool=CODED, app="rbd")


def ask(prefix: str, *, timeout: float = 120, **words: object) -> str:
    """What the monitor answers to a command of ``ceph``, whose start would cost more than all else here.

    ``words`` are named as ``ceph`` itself sends them: MonCommands.h. Raises rados.Error where it cannot be reached.
    """
    import rados  # here: only a guest has it

    patience = {"client_mount_timeout": str(timeout), "rados_mon_op_timeout": str(timeout)}
    client = rados.Rados(conffile=str(ETC / "ceph.conf"), name="client.admin", conf=patience)
    try:
        client.connect()
        code, out, why = client.mon_command(json.dumps({"prefix": prefix, **words}), b"")
    finally:
        client.shutdown()
    assert code == 0, f"{prefix} {words}: {code} {why}"
    return out.decode()


def osd_map() -> dict[str, Any]:
    """What the monitor knows of each OSD."""
    return dict(json.loads(ask("osd dump", format="json")))


def monitor_answers() -> bool:
    """Whether the monitor is up."""
    import rados

    try:
        ask("mon stat", timeout=20)
    except rados.Error:
        return False
    return True


def tool(*argv: str) -> str:
    """What a tool prints; it must succeed."""
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=UP_DEADLINE)
    assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def succeeds(*argv: str) -> bool:
    """Whether a tool succeeds."""
    return subprocess.run(argv, cwd="/", capture_output=True, timeout=UP_DEADLINE).returncode == 0


def last_words(name: str) -> str:
    """The end of what a daemon wrote."""
    lines: list[str] = []
    for path in (FOLDER / f"{name}.out", FOLDER / f"{name}.log"):
        if path.exists():
            lines += path.read_text(errors="replace").splitlines()[-TAIL:]
    return "\n".join(lines)
