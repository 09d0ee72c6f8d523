"""What bounds a vault: set-ups in which it is known by construction, and the doctor has to find it."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle, permutations
from pathlib import Path

import pytest
import world
from doctor_world import (
    DIRTY,
    FAST,
    LEAST,
    MERGE,
    MOST,
    RATE,
    THROTTLE,
    Sick,
    backup,
    bound,
    put,
    settle,
    sick_vault,  # noqa: F401
)
from world import DISK, ctl, eventually, journal, make_tank, metrics, noise, ok, sh, status

LAB = {"mem": "4G", "timeout": 1500}
SMALL = {MERGE: 128 << 10, LEAST: 2, MOST: 10, THROTTLE: 1}
"""OpenZFS's defaults: two requests of 128 KiB at a time."""
ONE = {MERGE: 1 << 20, LEAST: 1, MOST: 1, THROTTLE: 0}
GOOD = {MERGE: 4 << 20, LEAST: 4, MOST: 4, THROTTLE: 0}
FILES = 3000
CLONES = 64
"""Files of 64 MiB, 4 GiB in all: to make that small with gzip-9 in the time of all looks would take 200 MB/s."""


@pytest.mark.timeout(600)
def test_what_bounds_a_vault_is_found(it: Sick):
    it.source()
    it.backup_extra = 'limit = "2M"'
    it.start()
    bound("nothing", 1)
    put(FAST)
    it.begin()
    settle()
    eventually("it is bound by its limit", limit_is_told)

    put(SMALL)
    it.limited("10G")
    settle(4)
    verdict = bound("request-size")["verdict"]
    assert verdict["knob"]["name"] == MERGE

    put(ONE)
    settle()
    verdict = bound("queue-depth")["verdict"]
    assert (verdict["knob"]["name"], verdict["knob"]["now"]) == (MOST, "1")

    put(GOOD)
    RATE.write_text("80M")
    settle(3)
    bound("device")

    # OpenZFS reserves 24 times the bytes, which the vault has not: only that ends groups now.
    put({DIRTY: 512 << 20})
    RATE.write_text("100G")
    settle()
    seen = bound("txg-sync")
    assert seen["verdict"]["knob"]["name"] == "size", seen["waits"]

    it.over()
    verdict = bound("nothing", 1)["verdict"]
    assert "its last run, of backup tank, moved" in verdict["sentence"]
    world.nothing_left()


def limit_is_told() -> bool:
    """Whether the doctor says so in words: two seconds of a busy machine may show another bound."""
    page = ok("doctor", "cold", "--seconds", "2").out
    print(page)
    return "bound by: limit" in page


SOURCE_RATE = Path("/run/source.rate")


@contextmanager
def slow_pool(mib: int) -> Iterator[int]:
    """A pool ``slow`` of noise that is not in memory, on a device as fast as SOURCE_RATE says; its server's process."""
    DISK.mkdir(exist_ok=True)
    rate, socket, image = SOURCE_RATE, DISK / "slow.sock", DISK / "slow.img"
    rate.write_text("100G")
    sh("truncate", "-s", "1G", str(image))
    argv = ["nbdkit", "-f", "-U", str(socket), "--filter=rate", "file", str(image), f"rate-file={rate}"]
    server = subprocess.Popen([*argv, "burstiness=0.1"])
    try:
        eventually("the source's device", socket.exists, every=0.05)
        sh("modprobe", "nbd")
        # udev opens each device that the module makes, and keeps it busy for a moment.
        client = ("nbd-client", "-unix", str(socket), "/dev/nbd3", "-timeout", "60")
        eventually("a connection", lambda: subprocess.run(client, capture_output=True).returncode == 0)
        sh("zpool", "create", "-O", "compression=off", "-O", "mountpoint=/slow", "slow", "/dev/nbd3")
        noise(Path("/slow/noise"), mib)
        sh("zpool", "export", "slow")
        sh("zpool", "import", "-d", "/dev/nbd3", "slow")
        yield server.pid
    finally:
        rate.write_text("100G")
        sh("systemctl", "stop", "zvaultd")  # or a stream that a failure left under way keeps the pool
        sh("zpool", "export", "slow", check=False)
        sh("nbd-client", "-d", "/dev/nbd3", check=False)
        server.terminate()
        server.wait()


@contextmanager
def by_turns(*servers: int, seconds: float = 2.5) -> Iterator[None]:
    """Of two devices' servers one pauses while the other works."""
    over = threading.Event()

    def tell(server: int, number: int) -> None:
        # A vault's goes with the run that needs it.
        with suppress(ProcessLookupError):
            os.kill(server, number)

    def turn() -> None:
        for pauses, works in cycle(permutations(servers)):
            tell(pauses, signal.SIGSTOP)
            tell(works, signal.SIGCONT)
            if over.wait(seconds):
                break
        tell(pauses, signal.SIGCONT)

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        yield
    finally:
        over.set()
        turning.join()


def server_of_vault() -> int:
    """The process that serves its device."""
    return int(sh("systemctl", "show", "-P", "MainPID", "zvault-device@cold-0"))


def test_a_source_that_is_read_slowly_and_a_buffer_that_is_too_small(it: Sick):
    it.delay = f"filter=rate rate-file={RATE} burstiness=0.1"
    it.own_profile("tight", '[stream]\nbuffer = "16M"\nblock = "1M"\n')
    it.source_name = "slow"
    with slow_pool(400) as source:
        put({**FAST, DIRTY: 16 << 20})
        it.start()
        SOURCE_RATE.write_text("48M")
        it.begin()
        settle()
        verdict = bound("source")["verdict"]
        assert "its disk nbd3 is busy" in verdict["sentence"]
        assert verdict["knob"]["name"] == "schedule"

        # In each turn the buffers are filled or emptied, and no more: the stream lasts, however fast the machine is.
        SOURCE_RATE.write_text("100G")
        with by_turns(source, server_of_vault()):
            settle(3)
            verdict = bound("buffer", 8)["verdict"]
        assert re.search(r"within seconds it was \d% and (9\d|100)% full", verdict["sentence"])
        assert (verdict["knob"]["now"], verdict["knob"]["value"]) == ("16M", '"64M"')
        it.over()


def test_processors_that_have_no_time_left(it: Sick):
    """What gzip has made small is sent as it was before, and made small again."""
    it.delay = ""
    it.backup_extra, it.size = "send = { compressed = false }", "8G"
    make_tank("8G")  # clones count as if each had its own blocks
    sh("zfs", "set", "compression=gzip-9", "tank")
    Path("/tank/0").write_bytes(2 * base64.b64encode(os.urandom(24 << 20)))
    sh("zpool", "sync", "tank")
    # Each is sent, and takes no room: so many that no processor is done with them before the doctor is.
    for number in range(1, CLONES):
        sh("cp", "--reflink=always", "/tank/0", f"/tank/{number}")
    it.start()
    put(FAST)
    it.begin()
    settle()
    seen = bound("processor", 4)
    assert "of their time is left" in seen["verdict"]["sentence"]
    assert seen["verdict"]["knob"]["name"] == "send"
    assert backup()["state"] == "running", "it was not looked at what was over"
    sh("systemctl", "stop", "zvaultd")  # or it goes on for minutes


def test_metadata_that_has_to_be_read_first(it: Sick):
    """Of each of many files one block of two is written anew: its dnode and its indirect block have to be read."""
    it.delay = "filter=delay wdelay=1ms rdelay=40ms"
    it.source(1)
    sh("zfs", "set", "recordsize=16K", "tank")
    for number in range(FILES):
        Path(f"/tank/{number}").write_bytes(os.urandom(32 << 10))
    put(FAST)
    it.start()
    ok("run", "tank")  # and the vault goes down: nothing of it is in memory
    for number in range(FILES):
        with Path(f"/tank/{number}").open("r+b") as file:
            file.write(os.urandom(16 << 10))
    it.begin()
    settle()
    seen = bound("reads")
    assert re.search(r"in flight / \d+ms x ", seen["verdict"]["sentence"])
    assert "special device" in seen["verdict"]["knob"]["name"]
    it.over()


def test_a_pool_that_is_suspended(it: Sick):
    it.source(60)
    put(FAST)
    it.start()
    RATE.write_text("16M")
    it.begin()
    (unit,) = re.findall(r"zvault-device@\S+", sh("systemctl", "list-units", "--plain", "zvault-device@*"))
    sh("systemctl", "mask", "--runtime", unit)  # so that zvault does not repair it at once
    try:
        sh("systemctl", "kill", "-s", "KILL", unit)
        found = eventually("the verdict", lambda: suspended(ctl("doctor", "cold", "--seconds", "1")))
        print(found.out)
        assert found.code == 1
        assert "zvault resumes the pool by itself" in found.out
    finally:
        sh("systemctl", "unmask", "--runtime", unit)
    RATE.write_text("100G")
    # Each try that failed meanwhile has made it wait longer until the next.
    eventually("zvault repairs it", lambda: health("cold") in {"ONLINE", ""}, seconds=240)
    it.over()


def health(pool: str) -> str:
    """As zpool-list(8) tells it; nothing where it is not imported."""
    return sh("zpool", "list", "-Ho", "health", pool, check=False).strip()


def suspended(said: world.Done) -> world.Done | None:
    """What the doctor said, if it is that."""
    return said if "bound by: suspended" in said.out else None


def test_without_a_daemon(it: Sick):
    """A receive that nobody but the kernel knows of."""
    it.source(200)
    it.start()
    ok("vault", "up", "cold")
    sh("systemctl", "stop", "zvaultd")
    sh("zfs", "snapshot", "tank@now")
    put(SMALL)
    receive = subprocess.Popen("zfs send tank@now | zfs receive -u cold/tank", shell=True)
    settle(3)
    seen = bound("request-size")
    assert seen["streams"] == []
    put(FAST)
    assert receive.wait(240) == 0


PROFILE = """
[queue]
max_sectors_kb = 32768
[pool]
ashift = 12
failmode = "continue"
[dataset]
mountpoint = "none"
[module]
zfs_vdev_aggregation_limit_non_rotating = "4M"
zfs_vdev_async_write_min_active = 4
zfs_vdev_async_write_max_active = 4
zio_dva_throttle_enabled = false
"""
REQUEST, SYNC, DRIFT = (
    'zvault_vault_request_bytes{vault="cold"}',
    'zvault_vault_txg_sync_seconds{vault="cold"}',
    'zvault_vault_drift_total{reason="request-size",vault="cold"}',
)


def test_writes_that_drift_are_told_of_once(it: Sick):
    it.source()
    it.own_profile("wide", PROFILE)
    it.start()
    # Under way for longer than the looks take that see it, however fast the machine is.
    RATE.write_text("60M")
    it.begin()
    run = backup()["run"]
    seen = eventually("looks at its writes", lambda: (m := metrics()) and REQUEST in m and SYNC in m and m)
    print({name: value for name, value in seen.items() if name.startswith("zvault_vault_")})
    assert seen[REQUEST] > 2 << 20
    assert 0 < seen['zvault_vault_write_wait_seconds{vault="cold"}'] < 60
    assert 0 < seen[SYNC] < 20
    assert seen[DRIFT] == 0
    assert status()["daemon"]["warnings"] == []

    put({MERGE: 128 << 10})  # as somebody does who tunes for another pool
    told = eventually("it is told", lambda: (m := metrics())[DRIFT] == 1 and m)
    assert told[REQUEST] < 1 << 20
    (warning,) = [one for one in status()["daemon"]["warnings"] if "zvaultctl doctor" in one]
    assert "although up to 4M may be merged" in warning
    assert journal("PRIORITY=4", f"RUN={run}").count("may be merged") == 1
    it.over()
    assert metrics()[DRIFT] == 1
    eventually("nothing goes in any more", lambda: REQUEST not in metrics())
    (ended,) = json.loads(ok("history", "-j").out)["runs"]
    assert ended["warning"] == warning
    assert warning in ok("doctor", "-j", "cold", "--seconds", "1").json()["verdict"]["why"]
    world.nothing_left()
