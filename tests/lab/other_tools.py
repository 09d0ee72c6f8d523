"""bzfs and zfs-autobackup as they are, zrepl and znapzend by what they did: backups that other tools make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from world import (
    DISK,
    World,
    destroy_held,
    get,
    noise,
    sh,
    shell,
    snapshots,
)

CONF = Path("/etc/zvault/zvault.toml")
SOURCE = "tank/data"
TREE = ("", "/home", "/home/my mail")


@pytest.fixture(name="pools", scope="module")
def pools_for_test() -> Iterator[None]:
    """Three pools and the daemon, for all tests."""
    it = World()
    it.clean()
    DISK.mkdir(exist_ok=True)
    for pool in ("tank", "cold", "attic"):
        sh("truncate", "-s", "512M", str(DISK / f"{pool}.img"))
        sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(DISK / f"{pool}.img"))
    CONF.parent.mkdir(mode=0o755, exist_ok=True)
    configure("")
    yield
    it.clean()


@pytest.fixture(name="data")
def data_for_test(pools: None) -> Iterator[None]:
    """A source of three datasets; pools for what becomes of it."""
    for path in TREE:
        sh("zfs", "create", SOURCE + path)
        noise(Path(f"/{SOURCE}{path}/noise"), 8)
    yield
    configure("")
    for pool in ("tank", "cold", "attic"):
        for name in sh("zfs", "list", "-Ho", "name", "-d1", pool).splitlines()[1:]:
            destroy_held(name)


def configure(text: str) -> None:
    CONF.write_text('[daemon]\nhost = "lab"\n' + text)
    sh("systemctl", "restart", "zvaultd")


def python(script: str, *words: str) -> None:
    sh("env", "PYTHONPATH=/share/peers", "python3", "-c", f"import sys; {script}", *words)


@dataclass
class Tool:
    """Another tool: what it is set up by, a run of it, where its replica is, and how its snapshots' names begin."""

    replica: str
    prefix: str
    runs: int = 0

    def set_up(self) -> None:
        """Once."""

    def run(self) -> None:
        """Snapshot and replicate."""
        raise NotImplementedError


@dataclass
class Bzfs(Tool):
    """As its documentation has it, but for the names, which are given to it."""

    replica: str = "cold/mirror/data"
    prefix: str = "daily_"

    def set_up(self) -> None:
        sh("zfs", "create", "cold/mirror")

    def run(self) -> None:
        self.runs += 1
        sh("zfs", "snapshot", "-r", f"{SOURCE}@daily_2026-11-{self.runs:02}")
        words = ("--recursive", "--quiet", "--pv-program=-", "--ps-program=-")
        python("from bzfs_main.bzfs import main; sys.exit(main())", *words, SOURCE, self.replica)


@dataclass
class Autobackup(Tool):
    """zfs-autobackup, by its property, with its holds."""

    replica: str = "cold/mirror/tank/data"
    prefix: str = "lab-"

    def set_up(self) -> None:
        sh("zfs", "create", "-p", "-o", "mountpoint=none", "cold/mirror/tank")
        sh("zfs", "set", "autobackup:lab=true", SOURCE)

    def run(self) -> None:
        self.runs += 1
        # It refuses two snapshots of one name, which has whole seconds.
        words = ("--snapshot-format", f"{{}}-202611{self.runs:02}000000", "--set-properties=readonly=on")
        python("from zfs_autobackup.ZfsAutobackup import cli; sys.exit(cli())", *words, "lab", "cold/mirror")


def newest_common(source: str, target: str) -> str:
    """By GUID, as a snapname of the source."""
    there = {get(f"{target}@{one}", "guid") for one in snapshots(target)}
    return [one for one in snapshots(source) if get(f"{source}@{one}", "guid") in there][-1]


@dataclass
class Zrepl(Tool):
    """A stand-in for a push job "push" of the client "lab" into a sink "sink", as zrepl 0.7.0 did by hand.

    Its sender keeps the last common snapshot by a bookmark, the replication cursor, and what is on its way by a step
    hold; the receiver holds what it received last, in the name of its own job. Datasets between the sink's root and a
    replica are placeholders. The base is the newest common snapshot by GUID, whoever made it, and every one after it is
    a step of its own. Both lists of its keep rules name its own snapshots: it destroys all others that nobody holds.
    """

    replica: str = "cold/sink/lab/tank/data"
    prefix: str = "zrepl_"
    last: dict[str, str] = field(default_factory=dict)

    def set_up(self) -> None:
        sh("zfs", "create", "-o", "mountpoint=none", "cold/sink")
        for name in ("cold/sink/lab", "cold/sink/lab/tank"):
            sh("zfs", "create", "-o", "mountpoint=none", "-o", "zrepl:placeholder=on", name)

    def run(self) -> None:
        self.runs += 1
        new = f"zrepl_202611{self.runs:02}_000000_000"
        sh("zfs", "snapshot", "-r", f"{SOURCE}@{new}")
        for path in TREE:
            source, target = SOURCE + path, self.replica + path
            if self.runs == 1:
                self._send(source, target, "", new)
                continue
            there = snapshots(source)
            steps = there[there.index(newest_common(source, target)) :]
            for base, step in pairwise(steps):
                self._send(source, target, base, step)
        for path in TREE:
            self._prune(SOURCE + path)
            self._prune(self.replica + path)

    def _send(self, source: str, target: str, base: str, new: str) -> None:
        sh("zfs", "hold", "zrepl_STEP_J_push", f"{source}@{new}")
        words = f"-i '@{base}'" if base else ""
        shell(f"zfs send {words} '{source}@{new}' | zfs receive -s -u '{target}'")
        guid = int(get(f"{source}@{new}", "guid"))
        mark = f"zrepl_CURSOR_G_{guid:016x}_J_push"
        sh("zfs", "bookmark", f"{source}@{new}", f"{source}#{mark}")
        sh("zfs", "hold", "zrepl_last_received_J_sink", f"{target}@{new}")
        if source in self.last:
            old, old_mark = self.last[source].split()
            sh("zfs", "destroy", f"{source}#{old_mark}")
            sh("zfs", "release", "zrepl_last_received_J_sink", f"{target}@{old}")
        self.last[source] = f"{new} {mark}"
        sh("zfs", "release", "zrepl_STEP_J_push", f"{source}@{new}")

    def _prune(self, dataset: str) -> None:
        for snapshot in snapshots(dataset):
            if not snapshot.startswith(self.prefix) and get(f"{dataset}@{snapshot}", "userrefs") == "0":
                sh("zfs", "destroy", f"{dataset}@{snapshot}")


@dataclass
class Znapzend(Tool):
    """A stand-in for a plan as znapzendzetup(1) writes it, into properties of the source: znapzend after 0.23.6.

    It makes no hold and no bookmark. The base is the newest snapshot whose name both sides have, whoever made it. It
    sends with ``-I`` from there, others' snapshots with it and no properties, and receives with ``-F`` and without
    ``-u``, so that the replica is mounted. Each snapshot that was sent says so on the source.
    """

    replica: str = "cold/mirror/data"
    prefix: str = "2026-"

    def set_up(self) -> None:
        sh("zfs", "create", "cold/mirror")
        for name, value in {
            "src_plan": "1hours=>1days",
            "dst_a": self.replica,
            "dst_a_plan": "1weeks=>1days",
            "dst_a_mbuffer": "off",
            "tsformat": "%Y-%m-%d-%H%M%S",
            "recursive": "on",
            "enabled": "on",
            "mbuffer": "off",
            "pre_znap_cmd": "off",
            "post_znap_cmd": "off",
            "zend_delay": "0",
        }.items():
            sh("zfs", "set", f"org.znapzend:{name}={value}", SOURCE)

    def run(self) -> None:
        self.runs += 1
        new = f"2026-11-{self.runs:02}-000000"
        sh("zfs", "snapshot", "-r", f"{SOURCE}@{new}")
        for path in TREE:
            source, target = SOURCE + path, self.replica + path
            words = f"-I '@{newest_common(source, target)}'" if self.runs > 1 else ""
            shell(f"zfs send {words} '{source}@{new}' | zfs receive -F '{target}'")
            for said in (f"dst_a={target}", "dst_a_synced=1"):
                sh("zfs", "set", f"org.znapzend:{said}", f"{source}@{new}")


def holds(*datasets: str) -> set[str]:
    """The tags of all holds."""
    found = set()
    for dataset in datasets:
        names = sh("zfs", "list", "-Hrt", "snapshot", "-o", "name", dataset).splitlines()
        found |= {line.split("\t")[1] for line in sh("zfs", "holds", "-H", *names).splitlines()}
    return found
