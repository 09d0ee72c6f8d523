"""A backup on a machine that has zvault: a pool, a vault, a run in the middle of its stream, a comparison."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from machine import Machine, MachineError

CONFIG = "/etc/zvault/zvault.toml"
TEXT = """\
[vault.cold]
pool = "cold"
create = true

[[vault.cold.device]]
nbd = "nbdkit:file /srv/cold.img"
size = "1G"
timeout = "30s"

[backup.tank]
source = "tank"
vault = "cold"
into = "{{dataset}}"
keep = {{ source = {{ last = 3 }}, vault = {{ last = 7 }} }}
retry_wait = "5s"
limit = "{limit}"
"""
SLOW, SLOW_EMULATED, FAST = "1M", "128K", "64M"
"""Limits of a stream: one that is still on its way when a command has looked, and one that ends."""
BEGUN = 1 << 20
"""Bytes after which a stream is in its middle."""
ASK = """\
import socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect("/run/zvault/zvaultd.sock")
asked.sendall(f"GET {sys.argv[1]} HTTP/1.0\\r\\n\\r\\n".encode())
print(asked.makefile().read().split("\\n\\n", 1)[1])
"""
"""zvaultctl takes a second to start, ten where the CPU is emulated: too long for what is asked again and again."""


def configure(machine: Machine, limit: str) -> None:
    """Write the configuration with that limit, and have a daemon that runs take it up: it counts for streams, too."""
    machine.put(CONFIG, TEXT.format(limit=limit))
    machine.run("systemctl reload-or-restart zvaultd", seconds=300)


def make_source(machine: Machine) -> None:
    """A pool on a file, as in the tutorial."""
    machine.run("mkdir -p /srv && truncate -s 1G /srv/tank.img")
    machine.run("zpool create -O mountpoint=/tank tank /srv/tank.img && zfs create tank/home")
    machine.run("cp -a /etc /tank/home/etc")


def read_backup(machine: Machine) -> dict[str, Any]:
    """How the backup stands."""
    return dict(ask(machine, "/v1/status")["backups"][0])


def ask(machine: Machine, path: str) -> dict[str, Any]:
    """What zvaultd's API answers to that."""
    machine.run(
        f"test -e /run/ask || printf %s {base64.b64encode(ASK.encode()).decode()} | base64 -d >/run/ask"
    )
    return dict(json.loads(machine.run(f"python3 -IS /run/ask {path}")))


def list_runs(machine: Machine) -> list[dict[str, Any]]:
    """The runs in the daemon's history, the newest first."""
    return list(ask(machine, "/v1/history")["runs"])


def begin_run(machine: Machine, mib: int) -> str:
    """Start a run that has so much to send, slowly, and return its id once it is in the middle of that."""
    configure(machine, SLOW if machine.kvm else SLOW_EMULATED)
    machine.run(f"head -c {mib}M /dev/urandom >/tank/home/noise; sync", seconds=300)
    machine.run("zvaultctl run tank --no-wait")
    end = time.monotonic() + 120 * machine.patience
    while (one := read_backup(machine))["state"] != "running" or (one["bytes_done"] or 0) < BEGUN:
        if time.monotonic() > end:
            raise MachineError(f"the run does not send: {one}\n{machine.run('journalctl -u zvaultd -n 40')}")
    return str(one["run"])


def wait_for_idle(machine: Machine, seconds: float = 240) -> dict[str, Any]:
    """Wait until no run is under way; the result is the newest run."""
    end = time.monotonic() + seconds * machine.patience
    while (one := read_backup(machine))["state"] != "idle":
        if time.monotonic() > end:
            raise MachineError(f"the run does not end: {one}\n{machine.run('journalctl -u zvaultd -n 60')}")
        time.sleep(2)
    return list_runs(machine)[0]


def finish(machine: Machine) -> dict[str, Any]:
    """Let what is under way end, run once more, which must succeed, and return that run."""
    configure(machine, FAST)
    wait_for_idle(machine)
    machine.run("zvaultctl run tank", seconds=300)
    return list_runs(machine)[0]


def compare(machine: Machine) -> None:
    """Compare every file of the newest snapshot with the vault's, and have both pools scrubbed. Raises MachineError."""
    newest = machine.run("zfs list -Ho name -t snapshot -s createtxg -d 1 tank/home | tail -n 1").partition(
        "@"
    )[2]
    hashes = "find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
    ours = machine.run(f"cd /tank/home/.zfs/snapshot/{newest} && {hashes}", seconds=300)
    machine.run("zvaultctl vault up cold", seconds=300)
    machine.run(f"mount -t zfs cold/tank/home@{newest} /mnt")
    theirs = machine.run(f"cd /mnt && {hashes}", seconds=300)
    machine.run("cd / && umount /mnt")
    machine.run("zpool scrub -w tank cold", seconds=300)
    told = machine.run("zpool status tank cold")
    assert told.count("No known data errors") == 2, told
    machine.run("zvaultctl vault down cold", seconds=300)
    assert ours == theirs


def read_boot(machine: Machine) -> str:
    """The name of this boot: another one after a crash as after a reboot."""
    return machine.run("cat /proc/sys/kernel/random/boot_id")
