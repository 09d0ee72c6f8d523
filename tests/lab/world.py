"""What a lab test of the whole tool works with: a source pool full of files, a configuration, the daemon, zvaultctl.

Everything is the real thing in the guest; these are only short words for it.
"""

from __future__ import annotations

import calendar
import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import started_ctl
from snapshot_mounts import mounted

CONFIG = Path("/etc/zvault/zvault.toml")
METRICS = "127.0.0.1:9712"
DISK = Path("/var/lib/zvault-lab")


def sh(*argv: str, timeout: float = 240, check: bool = True) -> str:
    """What a program prints on stdout; with ``check`` it must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def shell(command: str, *, timeout: float = 240, check: bool = True) -> str:
    """The same for a line of shell, without the spaces around."""
    return sh("sh", "-c", command, timeout=timeout, check=check).strip()


def eventually(
    what: str | Callable[[], object],
    look: Callable[[], Any],
    *,
    seconds: float = 120,
    every: float | None = None,
) -> Any:
    """Wait until ``look`` gives something true, and return it. ``what`` may be a function: then it is told at the end.

    It looks ``every`` so many seconds; if left out, five times a second at first, and less often what takes long: a
    look may cost the daemon a tenth of a second. It looks once more when the time is over: a busy host may have kept
    all of it from looking.
    """
    began = time.monotonic()
    end = began + seconds
    while True:
        last = time.monotonic() >= end
        if found := look():
            return found
        if last:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(every or min(1.0, max(0.2, (time.monotonic() - began) / 20)))


def snapshots(dataset: str) -> list[str]:
    """The snapnames of a dataset, oldest first."""
    out = sh("zfs", "list", "-Hp", "-t", "snapshot", "-o", "name", "-s", "createtxg", "-d", "1", dataset)
    return [line.partition("@")[2] for line in out.splitlines()]


def release_all(dataset: str) -> None:
    """Release whatever holds a snapshot of a dataset, or of one below it."""
    listing = sh("zfs", "list", "-Hr", "-t", "snapshot", "-o", "name,userrefs", dataset)
    held = [line.split("\t")[0] for line in listing.splitlines() if not line.endswith("\t0")]
    for line in sh("zfs", "holds", "-H", *held).splitlines() if held else ():
        name, tag, *_ = line.split("\t")
        sh("zfs", "release", tag, name)


def destroy_held(dataset: str) -> None:
    """Destroy a dataset with all below it, whoever holds its snapshots."""
    release_all(dataset)
    sh("zfs", "destroy", "-r", dataset)


def get(name: str, prop: str) -> str:
    """One exact property of a dataset or snapshot."""
    return sh("zfs", "get", "-Hpo", "value", prop, name).strip()


def named_at(snapname: str) -> int:
    """When a snapshot was made by its name, as zvault counts ages; the kernel's ``creation`` is no earlier."""
    return calendar.timegm(time.strptime(snapname.rpartition("_")[2], "%Y-%m-%dT%H:%M:%SZ"))


def make_tank(size: str) -> None:
    """A pool ``tank`` on a file, which takes room only as it is written to."""
    DISK.mkdir(exist_ok=True)
    image = str(DISK / "tank.img")
    sh("truncate", "-s", size, image)
    sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=off", "tank", image)


def fill(path: Path, seed: int, count: int = 20, size: int = 200_000) -> None:
    """Write files of odd sizes with repeatable bytes that do not compress, some in folders with odd names."""
    for number in range(count):
        folder = path / ("plain" if number % 2 else "spaces and ünïcode")
        folder.mkdir(parents=True, exist_ok=True)
        block = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        length = size + number * 1111
        (folder / f"file {number} of {seed}").write_bytes(
            b"".join(hashlib.sha256(block + i.to_bytes(4, "big")).digest() for i in range(length // 32 + 1))[
                :length
            ]
        )


def noise(path: Path, mib: int) -> None:
    """A big file that does not compress."""
    with path.open("wb") as file:
        for _ in range(mib):
            file.write(os.urandom(1 << 20))


def tree_hashes(root: Path) -> dict[str, str]:
    """The hash of every file below a folder, by its path in it."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def snapshot_hashes(snapshot: str) -> dict[str, str]:
    """The hash of every file in a snapshot."""
    with mounted(snapshot) as root:
        return tree_hashes(root)


def tamper(dataset: str, snapname: str) -> None:
    """Somebody writes to a dataset of the vault, and makes a snapshot of it."""
    sh("zfs", "set", "readonly=off", dataset)
    sh("mount", "-t", "zfs", "-o", "zfsutil", dataset, "/mnt")
    Path("/mnt/written on the vault").write_text("precious")
    sh("umount", "/mnt")
    sh("zfs", "snapshot", f"{dataset}@{snapname}")
    sh("zfs", "set", "readonly=on", dataset)


@contextlib.contextmanager
def clock_put_right() -> Iterator[None]:
    """When this ends the wall clock is as it would be had nobody set it; the monotonic clock knows nothing of that."""
    real = time.time() - time.monotonic()
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, real + time.monotonic())


def pools() -> set[str]:
    """The pools that are imported, as the kernel's statistics have them: no program, and none that waits for a pool."""
    return {path.parent.name for path in Path("/proc/spl/kstat/zfs").glob("*/state")}


def inhibitors() -> str:
    """logind's list of locks with which zvault keeps the host awake."""
    out = sh("systemd-inhibit", "--list", "--no-legend", "--no-pager", "--mode=block")
    return "\n".join(line for line in out.splitlines() if line.startswith("zvault"))


def connected(number: int) -> bool:
    """Whether an NBD device has a connection."""
    return Path(f"/sys/block/nbd{number}/pid").exists()


def command_lines() -> str:
    """The command line of every process, words ended by NULs as /proc has them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end at any time.
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return "".join(found)


def metrics(address: str = METRICS) -> dict[str, float]:
    """A scrape, by the sample's name with its labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")
    }


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its output as a document."""
        return json.loads(self.out)


def ctl(*argv: str, timeout: float = 300) -> Done:
    """zvaultctl, as it was when the tests began: see started_ctl."""
    return Done(*started_ctl.run(argv, timeout))


def ok(*argv: str, timeout: float = 300) -> Done:
    """zvaultctl, which must succeed."""
    done = ctl(*argv, timeout=timeout)
    assert done.code == 0, f"zvaultctl {argv}: {done.code}\n{done.out}{done.err}"
    return done


def status() -> dict[str, Any]:
    """The daemon's whole state, from itself: who waits for something in it asks often."""
    told = answer(ask("GET", "/v1/status"))
    assert told is not None, "zvaultd does not tell its state"
    return told


def ask(method: str, path: str) -> socket.socket:
    """Ask the daemon as zvaultctl does, but without the second that takes to start."""
    asked = socket.socket(socket.AF_UNIX)
    asked.settimeout(120)
    asked.connect("/run/zvault/zvaultd.sock")
    asked.sendall(f"{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
    return asked


def answer(asked: socket.socket) -> dict[str, Any] | None:
    """What it answers, None where the connection breaks off or it refuses."""
    with asked, contextlib.suppress(ConnectionError):
        head, _, body = asked.makefile("rb").read().partition(b"\r\n\r\n")
        return json.loads(body) if b" 200 OK" in head else None
    return None


def events(run: str) -> list[dict[str, Any]]:
    """Every event of a run that has ended, as the API tells them."""
    out = sh(
        "curl", "-sS", "--unix-socket", "/run/zvault/zvaultd.sock", f"http://zvaultd/v1/events?run={run}"
    )
    return [json.loads(line) for line in out.splitlines()]


def journal(*fields: str) -> str:
    """What the daemon wrote, or what carries the fields given; all that was said until now is in it."""
    # Of a process that has ended already when its line is read, journald knows no unit.
    match = fields or ("_SYSTEMD_UNIT=zvaultd.service", "+", "SYSLOG_IDENTIFIER=zvaultd")
    sh("journalctl", "--sync")
    return sh("journalctl", "-q", "-o", "cat", "--no-pager", *match)


def service(prop: str) -> str:
    """What systemd says of the daemon's unit."""
    return sh("systemctl", "show", "-P", prop, "zvaultd").strip()


def main_pid() -> int:
    """The daemon's process."""
    return int(service("MainPID"))


def restarted(before: int) -> None:
    """Wait until systemd has put another daemon in the place of that process, and it is ready."""
    eventually(
        "the next daemon is ready",
        lambda: main_pid() not in {0, before} and service("ActiveState") == "active",
        seconds=240,
    )


@dataclass
class World:
    """A guest with a source pool, a vault to be, and a daemon under systemd."""

    size: str = "1G"
    delay: str = "filter=delay wdelay=2ms"
    vault_extra: str = "create = true"
    backup_extra: str = ""
    retries: int = 0
    keep: str = "{ source = { last = 2 }, vault = { last = 3 } }"
    extra: str = ""
    source_name: str = "tank"
    exclude: str = '["tank/scratch"]'
    image: Path = field(default=DISK / "vault disk.img")

    def source(self) -> None:
        """A pool ``tank`` with the trees the issue asks for: 128K and 1M records, a volume, a name with a space."""
        make_tank("1G")
        sh("zfs", "create", "tank/home")
        sh("zfs", "create", "tank/my files")
        sh("zfs", "create", "-o", "recordsize=1M", "tank/big")
        sh("zfs", "create", "tank/scratch")
        sh("zfs", "create", "-V", "16M", "-o", "compression=off", "tank/vol")
        fill(Path("/tank/home"), 1)
        fill(Path("/tank/my files"), 2, count=5)
        noise(Path("/tank/big/noise"), 24)
        self.write_volume(1)

    def write_volume(self, seed: int) -> None:
        """Fill the volume with repeatable bytes."""
        eventually("the volume's device", lambda: Path("/dev/zvol/tank/vol").exists())
        data = hashlib.shake_256(str(seed).encode()).digest(4 << 20)
        with Path("/dev/zvol/tank/vol").open("r+b") as device:
            device.write(data)

    def config_text(self) -> str:
        """The configuration."""
        return f"""
[daemon]
metrics = "{METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
{self.vault_extra}
[[vault.cold.device]]
nbd = "nbdkit:file '{self.image}' {self.delay}"
size = "{self.size}"
timeout = "20s"

[backup.tank]
source = "{self.source_name}"
exclude = {self.exclude if self.source_name == "tank" else "[]"}
vault = "cold"
keep = {self.keep}
retries = {self.retries}
{self.backup_extra}
{self.extra}
"""

    def configure(self) -> None:
        """Write it where the daemon looks."""
        CONFIG.parent.mkdir(exist_ok=True)
        CONFIG.write_text(self.config_text())

    def start(self) -> None:
        """Configure and start the daemon."""
        self.configure()
        sh("systemctl", "start", "zvaultd")

    def clean(self) -> None:
        """Take everything down again, whatever state it is in."""
        sh("systemctl", "stop", "zvaultd", check=False)
        if "cold" in pools():
            sh("zpool", "clear", "cold", check=False)
            exported = sh("sh", "-c", "zpool export -f cold 2>&1", check=False)
            # Without its storage a pool that is in use would hang in the kernel, and the guest with it.
            assert "busy" not in exported, f"{exported}\n{sh('ps', 'axf')}\n{sh('cat', '/proc/mounts')}"
        # Before its server is stopped: that waits for its client, and systemd half a minute for it.
        for number in range(4):
            if connected(number):
                sh("nbd-client", "-d", f"/dev/nbd{number}", check=False)
        listed = sh("systemctl", "list-units", "--all", "--plain", *SERVERS)
        for unit in re.findall(r"zvault-(?:device|blockstore)@\S+", listed):
            sh("systemctl", "stop", unit, check=False)
        for pool in sorted(pools()):
            sh("zpool", "destroy", "-f", pool, check=False)
        sh("systemctl", "reset-failed", check=False)
        sh("rm", "-rf", str(DISK), "/run/zvault", "/var/lib/zvault", "/etc/zvault")


@contextlib.contextmanager
def let_root_in_by_ssh() -> Iterator[None]:
    """This host is another one by ssh, too, ``root@localhost``: its root lets itself in."""
    folder = Path("/root/.ssh")
    folder.mkdir(mode=0o700, exist_ok=True)
    shell("ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 </dev/null; ssh-keygen -A")
    shell("install -m 600 /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys; systemctl start ssh")
    shell("(printf 'localhost '; cat /etc/ssh/ssh_host_ed25519_key.pub) >/root/.ssh/known_hosts")
    try:
        yield
    finally:
        shell("systemctl stop ssh; rm -rf /root/.ssh", check=False)


SERVERS = ("zvault-device@*", "zvault-blockstore@*")
"""Units of servers of devices."""


def leases() -> list[str]:
    """The leases of what zvault has changed on this host; files that begin with a dot are not (yet) any."""
    found = Path("/run/zvault/lease").rglob("*")
    return sorted(str(path) for path in found if path.is_file() and not path.name.startswith("."))


def left() -> dict[str, object]:
    """What is on this host of a vault's use, by kind; programs are asked once the files tell of nothing any more."""
    found = {
        "pools": [name for name in pools() if name == "cold"],
        "connected": [f"nbd{n}" for n in range(8) if connected(n)],
        "leases": leases(),
    }
    if not any(found.values()):
        found |= {
            "inhibitors": inhibitors().splitlines(),
            "units": sh("systemctl", "list-units", "--plain", "--no-legend", *SERVERS).splitlines(),
        }
    return {kind: things for kind, things in found.items() if things}


def nothing_left(*, seconds: float = 120) -> None:
    """The vault is down and no trace of its use remains on the host; logind hears a little later of a lock's end."""
    eventually(lambda: f"nothing is left of the vault: {left()}", lambda: not left(), seconds=seconds)
