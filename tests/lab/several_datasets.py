"""Several datasets sent at once: what is seen of their streams, and a stream that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import world
from mishaps_world import reader_of
from world import DISK, World, ctl, events, eventually, get, ok, sh, snapshots

MIB = 1 << 20
SMALL = ("tank/a", "tank/b", "tank/c")


@dataclass
class Several(World):
    """A source with one big dataset, some small ones, and one below another."""

    size: str = "2G"
    delay: str = ""
    vault_extra: str = "create = true\ntransfers = 3"

    def source(self) -> None:
        DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", "1G", str(DISK / "tank.img"))
        options = ("-O", "mountpoint=/tank", "-O", "compression=off")
        sh("zpool", "create", *options, "tank", str(DISK / "tank.img"))
        for name in ("big", "a", "b", "c", "a/child"):
            sh("zfs", "create", f"tank/{name}")
        self.write(4)
        world.noise(Path("/tank/big/noise"), 24)

    def write(self, mib: int) -> None:
        """Something new for each small dataset."""
        for name in (*SMALL, "tank/a/child"):
            world.noise(Path(f"/{name}/noise"), mib)

    def restart(self) -> None:
        self.configure()
        sh("systemctl", "restart", "zvaultd")


@pytest.fixture(name="tank")
def tank_for_test() -> Iterator[Several]:
    it = Several()
    it.clean()
    it.source()
    yield it
    it.clean()


def run(backup: str = "tank") -> tuple[int, list[dict[str, Any]]]:
    """Run a backup to its end: the exit status and every event but progress that came before others."""
    begun = ok("run", "--no-wait", "-j", backup).json()["run"]["id"]
    code = ctl("follow", begun).code
    return code, events(begun)


def seen(told: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in told if event["event"] in kinds]


def most_at_once(told: list[dict[str, Any]]) -> int:
    """How many streams were under way at once, at most."""
    now = most = 0
    for event in sorted(seen(told, "transfer-started", "transfer-finished"), key=lambda event: event["time"]):
        now += 1 if event["event"] == "transfer-started" else -1
        most = max(most, now)
    return most


def order(told: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["dataset"] for event in seen(told, kind)]


def same_everywhere(*datasets: str) -> None:
    """What the source and the vault have of the newest snapshot is the same, byte by byte."""
    ok("vault", "up", "cold")
    for dataset in datasets:
        copy = f"cold/lab/{dataset}"
        snapname = [snapname for snapname in snapshots(dataset) if snapname.startswith("zvault_")][-1]
        assert snapshots(copy)[-1] == snapname, dataset
        assert get(f"{copy}@{snapname}", "guid") == get(f"{dataset}@{snapname}", "guid")
        assert world.snapshot_hashes(f"{copy}@{snapname}") == world.snapshot_hashes(f"{dataset}@{snapname}")
    ok("vault", "down", "cold")


def sender(dataset: str) -> int | None:
    """The process of a dataset's zfs send, while there is one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if words[:2] == ["zfs", "send"] and any(word.startswith(f"{dataset}@") for word in words):
            return int(folder.name)
    return None


@contextmanager
def stopped(dataset: str) -> Iterator[None]:
    """Wait until a dataset is being sent, and stop that for as long as the block runs: its sender may then be of no use
    any more, as a write that waits for a full pipe fails by any signal."""
    with _standing(lambda: sender(dataset), f"{dataset} being sent"):
        yield


@contextmanager
def held_up(dataset: str) -> Iterator[None]:
    """The same, but by whoever reads what is sent: the stream goes on afterwards."""
    with _standing(lambda: reader_of(sender(dataset) or 0), f"who reads what is sent of {dataset}"):
        yield


@contextmanager
def _standing(process: Callable[[], int | None], what: str) -> Iterator[None]:
    pid = eventually(what, process, every=0.01)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def live() -> dict[str, Any]:
    """The backup's state, without the second that zvaultctl takes to start."""
    url = ("--unix-socket", "/run/zvault/zvaultd.sock", "http://zvaultd/v1/status")
    return json.loads(sh("curl", "-sS", *url))["backups"][0]


@contextmanager
def heard(run_id: str, dataset: str = "") -> Iterator[list[tuple[float, int]]]:
    """The run's progress as it is told while the block runs: (time, bytes of all its streams, or of a dataset's)."""
    samples: list[tuple[float, int]] = []
    url = ("--unix-socket", "/run/zvault/zvaultd.sock", f"http://zvaultd/v1/events?run={run_id}")
    told = subprocess.Popen(["curl", "-sSN", *url], stdout=subprocess.PIPE, text=True)

    def listen() -> None:
        assert told.stdout is not None
        for line in told.stdout:
            event = json.loads(line)
            if event["event"] == "progress" and dataset in {"", event["dataset"]}:
                samples.append((event["time"], event["bytes" if dataset else "run_bytes"]))

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        yield samples
    finally:
        told.kill()
        told.wait()
        listener.join()


def begun(mib: int, dataset: str = "") -> str:
    """Start a run and wait until so much of it, or of a dataset, has arrived; its id."""
    run_id: str = ok("run", "--no-wait", "-j", "tank").json()["run"]["id"]
    with heard(run_id, dataset) as samples:
        eventually("bytes to arrive", lambda: samples and samples[-1][1] > mib * MIB, every=0.02)
    return run_id
