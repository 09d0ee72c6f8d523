"""A vault on a storage that behaves by a script of faults, and what becomes of zvault, the vault and the host by it."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ceph
import world
from fault_script import TIMEOUT, Outcome, Script, format_script
from faulty_nbd import FaultyStorage
from faulty_rbd import FaultyImage, slow_disk
from world import DISK, ctl, eventually, ok, sh, snapshots, status

PORT = 10811

WELL_WITHIN = 150.0
"""Seconds after the storage is sound again within which zvault is well, or says what to do: its pauses between two
tries grow to two minutes.
"""
COMMAND_DEADLINE = 400.0

STUCK_AFTER = 10.0
"""Seconds for which a child is in D that counts as stuck, on storage that is sound."""

ADVISED = re.compile(r"'((?:zvaultctl|zpool|zfs|nbd-client) [^']+)'")
"""A command in what zvault tells to do."""

PROBE_INTERVAL = 1.0

ENDED_BY_HAND = {"damaged", "older"}
"""States of a vault that nothing but what a person does ends: no longer than this is waited for them."""

HAND_AFTER = 20.0
"""Seconds for which that alone is told until it counts."""

OVER = {"stalled", "drift", "unproven"}
"""Conditions that tell of what is over, or may have been: they do not say that the vault is not well now."""


class HostProbe:
    """Asks for the host's other pool all the time: how long the slowest answer took."""

    def __init__(self) -> None:
        self.slowest = 0.0
        self.asked = 0
        self._stop = threading.Event()

    def __enter__(self) -> HostProbe:
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(PROBE_INTERVAL):
            began = time.monotonic()
            # It may hang in the kernel with all the others; that is seen as long as it does, and not only afterwards.
            asked = subprocess.Popen(["zpool", "list", "-Ho", "health", "tank"], stdout=subprocess.DEVNULL)
            while asked.poll() is None and not self._stop.is_set():
                self.slowest = max(self.slowest, time.monotonic() - began)
                time.sleep(0.05)
            with contextlib.suppress(FileNotFoundError):
                next(Path("/tank/home").rglob("file*")).read_bytes()
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.asked += 1


def find_stuck() -> set[tuple[int, str]]:
    """Processes of zvaultd's in D: their ids, and command lines."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (folder / "stat").read_text().rpartition(") ")[2][:1]
            if state == "D" and "zvaultd.service" in (folder / "cgroup").read_text():
                words = (folder / "cmdline").read_text().replace("\0", " ").strip()
                found.add((int(folder.name), words))
    return found


def find_stuck_for_good() -> tuple[str, ...]:
    """Those that are in D now and STUCK_AFTER seconds later."""
    before = find_stuck()
    if not before:
        return ()
    time.sleep(STUCK_AFTER)
    return tuple(sorted(words for _, words in before & find_stuck()))


def describe_trouble() -> str:
    """What status says of the vault, with what to do; empty while it is well."""
    vault = status()["vaults"][0]
    told = []
    for finding in vault["verdict"]["findings"]:
        if finding["condition"] in OVER:
            continue
        told.append(f"{finding['condition']}: {finding['why']} -> {finding['next']}")
    if error := vault["error"]:
        told.append(f"{error['what']}: {error['why']} -> {error['next']}")
    if vault["state"] not in {"up", "down"} or vault["health"] not in {None, "ONLINE"}:
        told.append(f"{vault['state']}, {vault['health']} -> ")
    return "\n".join(told)


def needs_other_care() -> bool:
    """Whether the vault has a trouble that may end by itself, as far as its state tells."""
    vault = status()["vaults"][0]
    found = {one["state"] for one in vault["verdict"]["findings"] if one["condition"] not in OVER}
    return bool(found - ENDED_BY_HAND) or vault["error"] is not None


def is_unproven() -> bool:
    """Whether status says that the storage may have lost what it had confirmed."""
    findings = status()["vaults"][0]["verdict"]["findings"]
    return any(finding["condition"] == "unproven" for finding in findings)


def follow_advice(advice: str) -> bool:
    """Do what is told, as a person would; False where that is to reboot, which a guest does not outlive."""
    if "reboot this host" in advice:
        return False
    done = set()
    for command in ADVISED.findall(advice):
        words = shlex.split(command)
        if (
            command in done
            or words[:2] == ["zpool", "status"]
            or words[:3] == ["zvaultctl", "vault", "status"]
        ):
            continue
        done.add(command)
        if words[0] != "zvaultctl":
            print("as advised:", command, sh(*words, check=False))
            continue
        result = ctl(*words[1:], timeout=COMMAND_DEADLINE)
        if result.code == 2 and "--yes" in result.err:
            result = ctl(*words[1:], "--yes", timeout=COMMAND_DEADLINE)
        print("as advised:", command, result.code, result.out, result.err)
    return True


@dataclass
class Scripted(world.World):
    """A vault on the server, and what has been acknowledged of its backup."""

    retries: int = 5
    backup_extra: str = 'retry_wait = "1s"\nlimit = "2M"'
    keep: str = "{ source = { last = 3 }, vault = { last = 9 } }"
    table: str = f'nbd = "tcp:127.0.0.1:{PORT}"\nconnections = 2'
    storage: FaultyStorage | FaultyImage = field(init=False)
    acknowledged: dict[str, dict[str, str]] = field(default_factory=dict)
    """By snapname, the hashes of what a run that was ok has copied."""
    number: int = 0

    def source(self) -> None:
        """A pool with little in it."""
        world.make_tank("512M")
        sh("zfs", "create", "tank/home")
        world.fill(Path("/tank/home"), 1, count=4)

    def config_text(self) -> str:
        """The usual one, with the device on the storage."""
        table = f'\n{self.table}\ntimeout = "{TIMEOUT:g}s"\n'
        text = re.sub(
            r'\nnbd = .*?timeout = "20s"\n', lambda _: table, super().config_text(), flags=re.DOTALL
        )
        return text.replace('pool = "cold"', 'pool = "cold"\nprofile = "nbd-lan"')

    def change(self) -> None:
        """Something for the next run to send, of two seconds."""
        self.number += 1
        world.noise(Path("/tank/home/noise"), 4)
        (Path("/tank/home") / f"change {self.number}").write_text(f"{self.number}")
        time.sleep(1.1)

    def acknowledge(self) -> None:
        """Note what a run that was ok has copied: the newest snapshot of the source."""
        snapname = snapshots("tank/home")[-1]
        self.acknowledged[snapname] = world.snapshot_hashes(f"tank/home@{snapname}")

    def last_run(self) -> dict[str, Any]:
        """The newest run of the backup."""
        told = world.answer(world.ask("GET", "/v1/history?backup=tank&limit=1"))
        assert told is not None
        return dict(told["runs"][0])

    def begin(self, operation: str) -> subprocess.Popen[str] | None:
        """Begin what the script has zvault do."""
        if operation == "run":
            self.change()
            ok("run", "--no-wait", "tank")
            return None
        if operation == "restore":
            return self.spawn("restore", "tank", "tank/home", f"tank/back{self.number}")
        ok("vault", "up", "cold")
        if operation == "scrub":
            return self.spawn("scrub", "cold")
        sh("zfs", "set", f"org.zvault.test:x={self.number}", "cold")
        return self.spawn("vault", "down", "cold")

    def spawn(self, *argv: str) -> subprocess.Popen[str]:
        """zvaultctl, which may end at any time and in any way."""
        return subprocess.Popen(
            ["zvaultctl", *argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def live_through(self, script: Script) -> Outcome:
        """Have the storage do all that, and see what comes of it."""
        print(f"script: {format_script(script)}", flush=True)
        daemon = world.main_pid()
        with HostProbe() as probe:
            running = self.begin(script.operation)
            self.storage.command(f"script {format_script(script)}")
            time.sleep(script.end + 0.2)  # what befalls the disk at that moment has befallen it
            print("the storage is sound:", self.storage.command("sound"), flush=True)
            well, advice = self.wait_until_well(running)
            lost = self.check_restored(running, script)
            stuck = find_stuck_for_good()
            well_after = None
            if not well and advice and follow_advice(advice):
                well_after, _ = self.wait_until_well(None)
            reboots = "reboot this host" in advice
            if not reboots:
                lost += self.settle(advice)
        died = world.main_pid() != daemon
        return Outcome(well, advice, well_after, tuple(lost), probe.slowest, stuck, daemon_died=died)

    def wait_until_well(self, running: subprocess.Popen[str] | None) -> tuple[bool, str]:
        """Whether the vault is well and what was begun has ended, in bounded time; and what is told if it is not."""
        began = since = time.monotonic()
        while True:
            ended = (running is None or running.poll() is not None) and bool(self.last_run()["ended"])
            trouble = describe_trouble()
            if ended and not trouble:
                return True, ""
            now = time.monotonic()
            if not ended or needs_other_care():
                since = now
            if now > began + WELL_WITHIN or now > since + HAND_AFTER:
                return False, trouble
            time.sleep(1)

    def check_restored(self, running: subprocess.Popen[str] | None, script: Script) -> list[str]:
        """What was restored without an error, and is not what was backed up."""
        if running is None or running.poll() is None:
            return []
        said = running.communicate()[0]
        print(f"{script.operation} ended with {running.returncode}: {said}", flush=True)
        back = Path(f"/tank/back{self.number}")
        wrong = []
        if script.operation == "restore" and running.returncode == 0:
            wrong = (
                [] if world.tree_hashes(back) in self.acknowledged.values() else [f"{back} after 'restore'"]
            )
        sh("zfs", "destroy", "-r", str(back).lstrip("/"), check=False)
        return wrong

    def settle(self, advice: str) -> list[str]:
        """One more run, which must be ok once what it says was done; what of all that was acknowledged is not there."""
        if self.last_run()["result"] == "ok":
            self.acknowledge()
        doubted = is_unproven()
        self.change()
        told = advice
        for _ in range(3):
            done = ctl("run", "tank", timeout=COMMAND_DEADLINE)
            if done.code == 0:
                break
            print("run:", done.out, done.err)
            told += done.err
            if not follow_advice(" ".join(done.err.split())):
                return ["the run says: reboot"]
        else:
            return [f"a run that is ok, with what it said done: {done.err}"]
        self.acknowledge()
        ok("vault", "up", "cold")
        lost = self.find_lost(told, doubted)
        ok("vault", "down", "cold")
        world.nothing_left()
        return lost

    def find_lost(self, told: str, doubted: bool) -> list[str]:
        """Acknowledged snapshots that are not on the vault as they were. It was told that they are gone if it was put
        back; what is damaged was ``doubted`` before a scrub has found it, and is healed.
        """
        lost = []
        sh("zpool", "scrub", "-w", "cold")
        healthy = sh("zpool", "status", "cold")
        if "errors: No known data errors" not in healthy:
            print(healthy)
            lost += [] if doubted else ["damage that nothing told of"]
            eventually("damage to be told", lambda: "damaged" in describe_trouble(), seconds=60)
            follow_advice("'zvaultctl heal cold'")
            sh("zpool", "scrub", "-w", "cold")
        there = snapshots("cold/lab/tank/home")
        for snapname, hashes in list(self.acknowledged.items()):
            if snapname not in there:
                if "put back" not in told and snapname in snapshots("tank/home"):
                    lost.append(f"{snapname} is not there")
                continue
            try:
                same = world.snapshot_hashes(f"cold/lab/tank/home@{snapname}") == hashes
            except OSError as error:
                lost.append(f"{snapname}: {error}")
                continue
            lost += [] if same else [f"{snapname} differs"]
        for snapname in list(self.acknowledged)[:-2]:
            del self.acknowledged[snapname]
        return lost


@contextmanager
def nbd_vault() -> Iterator[Scripted]:
    """A vault on an NBD server, which a first run has gone to, down."""
    it = Scripted()
    it.clean()
    it.source()
    sh("truncate", "-s", "512M", str(DISK / "cold.img"))
    with FaultyStorage(DISK / "cold.img", PORT) as it.storage:
        yield from begin_backup(it)


IMAGE = "rbd_meta/cold"


@contextmanager
def rbd_vault() -> Iterator[Scripted]:
    """A vault on an RBD image, mapped by krbd, which a first run has gone to, down."""
    it = Scripted(table=f'rbd = "{IMAGE}"\nsize = "1G"\ndata_pool = "data"')
    it.clean()
    it.source()
    with slow_disk() as disk, ceph.cluster(disks=[disk]) as cluster:
        it.storage = FaultyImage(cluster, IMAGE)
        yield from begin_backup(it)


def begin_backup(it: Scripted) -> Iterator[Scripted]:
    """The vault, from its first run until all is taken down."""
    try:
        it.start()
        ok("run", "tank")
        it.acknowledge()
        yield it
    finally:
        it.storage.command("sound")
        it.clean()
