"""A vault's storage that does not answer: the kernel and OpenZFS complain, and zvault tells whose it is."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from world import World, ctl, eventually, journal, metrics, ok, sh, status

LAB = {"mem": "4G", "timeout": 1750, "in_order": True}

PARAMETERS = Path("/sys/module/zfs/parameters")
IMPATIENT = {"zfs_deadman_ziotime_ms": 2000, "zfs_deadman_checktime_ms": 500, "zio_slow_io_ms": 1500}
USUAL = {name: (PARAMETERS / name).read_text() for name in IMPATIENT}
SERVER = "zvault-device@*"


class Patient(World):
    """A server may stand still for as long as a busy guest needs to see all that comes of it."""

    def config_text(self) -> str:
        return super().config_text().replace('timeout = "20s"', 'timeout = "150s"')


@pytest.fixture(scope="module")
def vault() -> Iterator[World]:
    """A vault that is up, and a kernel that calls a task hung after seconds."""
    it = Patient()
    it.clean()
    it.source()
    it.start()
    ok("vault", "up", "cold")
    for kind in ("hung_task", "txg_sync", "deadman", "delay"):
        assert count(kind) == 0
    # Not before: on a busy machine what made all this might have taken so long, too.
    sh("sysctl", "-qw", "kernel.hung_task_timeout_secs=2", "kernel.hung_task_check_interval_secs=1")
    yield it
    it.clean()


@pytest.fixture(autouse=True)
def impatient(vault: World) -> Iterator[None]:
    """An OpenZFS that waits for seconds; not when the vault comes up: zvault would shorten its device's timeout."""
    set_parameters(IMPATIENT)
    yield
    set_parameters(USUAL)


def set_parameters(values: Mapping[str, object]) -> None:
    for name, value in values.items():
        (PARAMETERS / name).write_text(str(value))


@contextmanager
def paused() -> Iterator[subprocess.Popen[bytes]]:
    """The server takes requests and answers none, and somebody waits for one."""
    sh("systemctl", "kill", "--signal=STOP", SERVER)
    try:
        yield subprocess.Popen(["zfs", "set", "org.zvault.test:x=y", "cold"])
    finally:
        sh("systemctl", "kill", "--signal=CONT", SERVER)


def count(kind: str, vault: str = "cold") -> float:
    return metrics()[f'zvault_stalls_total{{kind="{kind}",vault="{vault}"}}']


def told_by_openzfs(kind: str) -> int:
    """How many events of a class there are of the vault's pool."""
    words = sh("zpool", "events", "-H", "cold").split()
    return words.count(f"ereport.fs.zfs.{kind}")


def test_whose_storage_it_is_that_stands_still(vault: World):
    warnings = ""
    with paused() as waits:
        for kind in ("hung_task", "txg_sync", "deadman"):
            eventually(f"{kind} to be counted", lambda kind=kind: count(kind))
            # Of each kind the last is told: others may come to hang later.
            warnings += " ".join(status()["daemon"]["warnings"])
        assert ctl("status").code == 1
    assert waits.wait(240) == 0
    eventually("the slow request to be counted", lambda: count("delay"))
    assert f"vault cold: zfs (process {waits.pid}) has hung in OpenZFS for more than" in warnings
    assert "vault cold: transaction group" in warnings
    assert re.search(r"vault cold: a request to nbd\d has been in flight", warnings)
    for kind, words in {
        "hung_task": rf"vault cold: zfs \(process {waits.pid}\) has hung in OpenZFS",
        "txg_sync": "has been syncing for",
        "deadman": r"a request to nbd\d has been in flight",
        "delay": r"a request to nbd\d took",
    }.items():
        assert re.search(words, journal("VAULT=cold", f"STALL={kind}"))
    assert journal("STALL=deadman").count("\n") == 1, "one line, however many signs there are"


def test_what_was_told_is_not_told_again_by_the_next_daemon(vault: World):
    set_parameters(USUAL)
    assert told_by_openzfs("deadman")
    eventually("all to be counted", lambda: count("deadman") == told_by_openzfs("deadman"))
    before = told_by_openzfs("deadman")
    sh("systemctl", "restart", "zvaultd")
    set_parameters(IMPATIENT)
    with paused() as waits:
        # Events come in order: with this one, all that were before it have been heard.
        eventually("a new one to be counted", lambda: count("deadman"))
    assert waits.wait(240) == 0
    assert told_by_openzfs("deadman") > before
    eventually(
        "all new ones to be counted, and no others",
        lambda: count("deadman") == told_by_openzfs("deadman") - before,
    )


def test_another_pools_storage_is_not_the_vaults(vault: World):
    """An error of the source's pool is not told of the vault, and none of the vault's is lost meanwhile."""
    before = count("io") + count("checksum") + count("data")
    assert before == 0
    sh("sync")
    image = Path("/var/lib/zvault-lab/tank.img")
    with Path("/tank/big/noise").open("rb") as noise:
        pieces = [noise.read(1 << 20)[:4096] for _ in range(8)]
    # It is busy for as long as anybody asks it for anything, and the daemon does so now and then.
    export = ["zpool", "export", "tank"]
    eventually("nobody to look at the pool", lambda: subprocess.run(export).returncode == 0)
    # Of a file, whose blocks lie there as they are: without its metadata the pool could not be imported any more.
    with image.open("r+b") as disk:
        content = disk.read()
        places = [content.find(piece) for piece in pieces]
        assert min(places) > 0
        for place in places:
            disk.seek(place)
            disk.write(bytes(64))
    del content
    sh("zpool", "import", "-d", str(image.parent), "tank")
    sh("zpool", "scrub", "-w", "tank")
    words = sh("zpool", "events", "-H", "tank")
    assert "ereport.fs.zfs.checksum" in words
    deadmen = count("deadman")
    with paused() as waits:
        eventually("a later event of the vault's", lambda: count("deadman") > deadmen)
    assert waits.wait(240) == 0
    assert count("checksum") == count("checksum", "") == 0


def hanging(*others: subprocess.Popen[bytes]) -> Counter[str]:
    """How many programs of ZFS sleep in the kernel, by the last word of their command line; without ``others``."""
    found: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        # A process may end at any time.
        with suppress(OSError):
            told = (process / "stat").read_text()
            name, state = told[told.index("(") + 1 : told.rindex(")")], told[told.rindex(")") + 2]
            if (
                name in {"zpool", "zfs"}
                and state == "D"
                and int(process.name) not in {one.pid for one in others}
            ):
                found[(process / "cmdline").read_text().split("\0")[-2]] += 1
    return found


def test_no_pile_of_looks_hangs_behind_a_pool_that_stands_still(vault: World):
    """Who opens a pool's devices anew holds what every look at any pool needs, until they answer."""
    set_parameters(USUAL)
    piles: list[Counter[str]] = []
    with paused() as waits:
        reopening = subprocess.Popen(["zpool", "reopen", "cold"])

        def told() -> bool:
            piles.append(hanging(waits, reopening))
            return "has not answered since" in str(status()["vaults"])

        eventually("whoever looks is told since when nobody has had an answer", told)
        for _ in range(3):
            # Each of these would have begun another look.
            assert ctl("vault", "status", "cold").code != 0
            piles.append(hanging(waits, reopening))
    assert max(pile["cold"] for pile in piles) == 1, piles
    assert max(pile.total() for pile in piles) <= 3, piles
    assert (waits.wait(240), reopening.wait(240)) == (0, 0)
    eventually("it to be well", lambda: status()["vaults"][0]["health"] == "ONLINE")
    assert not hanging()


def test_a_pool_that_is_suspended_counts_and_goes_on(vault: World):
    set_parameters(USUAL)
    assert count("suspended") == 0
    sh("systemctl", "kill", "--signal=KILL", SERVER)
    waits = subprocess.Popen(["zfs", "set", "org.zvault.test:x=z", "cold"])
    eventually("the suspension to be counted", lambda: count("suspended"))
    assert "vault cold: its pool has suspended its I/O" in journal("VAULT=cold", "STALL=suspended")
    eventually("the errors before it to be counted", lambda: count("io") or count("probe_failure"))
    assert waits.wait(240) == 0, "zvault brings it back by itself"
    eventually("it to be well", lambda: status()["vaults"][0]["health"] == "ONLINE")
