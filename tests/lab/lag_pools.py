"""A source, its vaults and the daemon, and what an independent reader says of the lag.

The reader asks ``zfs list`` for the GUIDs of both sides, and nothing of zvault. While a vault is away it has what the
reader saw on it last: nobody can have changed that.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quick_tick
import world
from crash_world import DROP_IN
from world import DISK, World, eventually, sh, shell

VAULTS = ("cold", "usb", "tape")
TOLERANCE = 2.0
"""Seconds by which two readings of one lag may differ: snapshots are named for the second."""

Reader = dict[str, list[tuple[str, int]]]
"""By dataset its snapshots' GUIDs, and when each was made by its name; oldest first."""


def read(root: str) -> Reader:
    """The snapshots below a dataset that have a name of zvault's, in the order in which the pool got them."""
    kinds, columns = "filesystem,snapshot", "name,guid"
    listed = sh("zfs", "list", "-Hpr", "-t", kinds, "-o", columns, "-s", "createtxg", root, check=False)
    found: Reader = {}
    for name, guid in (line.split("\t") for line in listed.splitlines()):
        dataset, at, snapname = name.partition("@")
        mine = found.setdefault(dataset, [])
        if at and snapname.startswith("zvault_"):
            mine.append((guid, world.named_at(snapname)))
    return found


def imported(pool: str) -> bool:
    return shell(f"zpool list -Ho name {pool}", check=False) == pool


def ask(method: str, path: str) -> Any:
    """What the daemon answers; None where it does not, or refuses."""
    try:
        return world.answer(world.ask(method, path))
    except OSError:
        return None


@dataclass
class Backup:
    """A backup as it is configured now: into which vault, and where there."""

    vault: str
    into: str = "lab"
    on_conflict: str = "stop"

    @property
    def place(self) -> str:
        return f"{self.vault}/{self.into}/tank"


@dataclass
class Shelf:
    """The pools that one vault has had, by the number of their image, and what each had when it was last seen."""

    number: int = 0
    had: dict[int, Reader] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    """Pools from which somebody took what zvault knows to be there."""

    unseen: set[int] = field(default_factory=set)
    """The same, and the daemon that has done so is no more: whoever did not see it cannot know."""


class Pools(World):
    """A source with two backups, three vaults, and the daemon."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        self.backups = {"b": Backup("cold", on_conflict="new-dataset"), "c": Backup("usb")}
        self.shelves = {name: Shelf() for name in VAULTS}
        self.names = 3
        self.known = self.unknown = 0

    # The world

    def source(self) -> None:
        world.make_tank("1G")
        for number in range(self.names):
            sh("zfs", "create", f"tank/d{number}")
        for name in VAULTS:
            self.attach(name, new=True)
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        server = f"ExecStart=\nExecStart={quick_tick.SERVER} lags\nRestart=no\n"
        DROP_IN.write_text(f"[Unit]\nStartLimitIntervalSec=0\n[Service]\n{server}")
        sh("systemctl", "daemon-reload")

    def clean(self) -> None:
        super().clean()
        sh("losetup", "--detach-all", check=False)
        DROP_IN.unlink(missing_ok=True)
        sh("systemctl", "daemon-reload")

    def config_text(self) -> str:
        head = f'[daemon]\nmetrics = "{world.METRICS}"\nhost = "lab"\ntimezone = "UTC"\n'
        for name in VAULTS:
            head += f'[vault.{name}]\npool = "{name}"\nup = "always"\nscrub = {{ every = "off" }}\n'
        for name, one in self.backups.items():
            head += (
                f'[backup.{name}]\nsource = "tank"\nvault = "{one.vault}"\ninto = "{one.into}/{{dataset}}"\n'
                f'retries = 0\nlimit = "3M"\nverify = {{ every = "off" }}\nkeep = {self.keep}\n'
                f'on_conflict = "{one.on_conflict}"\n'
            )
        return head

    def disk(self, vault: str) -> Path:
        return DISK / f"{vault}-{self.shelves[vault].number}.img"

    def attach(self, vault: str, *, new: bool = False) -> None:
        """Have a vault's disk here; a ``new`` one gets a pool."""
        image = self.disk(vault)
        sh("truncate", "-s", "256M", str(image))
        device = sh("losetup", "--find", "--show", str(image)).strip()
        if new:
            sh("zpool", "create", "-O", f"mountpoint=/{vault}", "-O", "compression=off", vault, device)

    def loop(self, vault: str) -> str:
        return sh("losetup", "--noheadings", "-O", "NAME", "--associated", str(self.disk(vault))).strip()

    def up(self, vault: str) -> None:
        """Have a vault's disk here and its pool imported, by zvault, or else by hand."""
        if not self.loop(vault):
            self.attach(vault)
        if not imported(vault):
            ask("POST", f"/v1/vaults/{vault}/up")
        if not imported(vault):
            sh("zpool", "import", "-N", vault, check=False)
        eventually(f"{vault} to be imported", lambda: imported(vault))

    def down(self, vault: str) -> None:
        """Take a vault's disk away, as it is."""
        if not self.loop(vault):
            return

        def exported() -> bool:
            shell(f"zpool export {vault}", check=False)
            return not imported(vault)

        self.read(vault)
        eventually(f"{vault} to be exported", exported)
        sh("losetup", "--detach", self.loop(vault))
        eventually("the disk to be gone", lambda: not imported(vault) and not self.loop(vault))

    def read(self, vault: str) -> None:
        """See what a vault's pool has now, if it is here."""
        if imported(vault):
            shelf = self.shelves[vault]
            shelf.had[shelf.number] = read(vault)

    # The daemon

    def idle(self) -> None:
        """Wait until nothing runs."""

        def looks() -> bool:
            status = ask("GET", "/v1/status")
            return status is not None and all(one["state"] == "idle" for one in status["backups"])

        eventually(lambda: f"nothing to run\n{world.journal()[-3000:]}", looks, every=0.1)

    def begin(self, backup: str) -> str:
        """Start a run, as soon as none is under way."""
        begun = eventually("a run to begin", lambda: ask("POST", f"/v1/run/{backup}"), every=0.1)
        return str(begun["run"])

    def ended(self, run: str) -> dict[str, Any]:
        """A run that has ended."""
        return eventually(
            lambda: f"run {run} to end\n{world.journal()[-3000:]}",
            lambda: next(
                (
                    one
                    for one in (ask("GET", "/v1/history?limit=9") or {"runs": []})["runs"]
                    if one["id"] == run and one["ended"]
                ),
                None,
            ),
            every=0.1,
        )

    def write(self) -> None:
        """New data in some datasets: about a second of a run."""
        for name in self.datasets(some=True):
            world.noise(Path("/") / name / "file", 1)

    def datasets(self, *, some: bool = False) -> list[str]:
        """The datasets of the source but its root; or some of them by chance."""
        found = sh("zfs", "list", "-Hro", "name", "tank").split()[1:]
        return [name for name in found if self.chance.random() < 0.6] if some else found

    def forgets(self) -> None:
        """A daemon starts that has not seen what was done to a vault."""
        for shelf in self.shelves.values():
            shelf.unseen |= shelf.changed

    def start_again(self) -> None:
        """Start the daemon, which is dead, and wait for what it makes up for."""
        self.forgets()
        sh("systemctl", "start", "zvaultd")
        self.idle()

    def kill(self) -> None:
        """Kill the daemon, and wait for the end of all that it has started."""
        os.kill(world.main_pid(), signal.SIGKILL)
        eventually("its end", lambda: world.service("ActiveState") == "failed")
        busy = r"pgrep -x 'zfs|mbuffer' || true"
        eventually("the end of its streams", lambda: not shell(busy))

    # What is told, and what is so

    def wrong(self, exact: str | None = None) -> list[str]:
        """Each lag that is told to be better than it is; of the backup ``exact`` also each that is not as it is.

        Notes how many are known.
        """
        began = time.time()
        told = [*self.listed(), *self.scraped()]
        status = ask("GET", "/v1/status") or {"backups": []}
        self.known = sum(lag is not None for _, _, _, lag, _ in told)
        self.unknown = len(told) - self.known
        truths = {name: self.truth(one) for name, one in self.backups.items() if not self.unknowable(one)}
        found = []
        for by, backup, dataset, lag, pending in told:
            if backup not in truths or dataset not in truths[backup]:
                continue
            newest, lacking = truths[backup][dataset]
            so = None if newest is None else began - newest
            better = lag is not None and (so is None or lag < so - TOLERANCE)
            worse = so is not None and (lag is None or lag > so + TOLERANCE + time.time() - began)
            if better or (worse and backup == exact):
                found.append(f"{by}: {backup} {dataset} lags by {lag}, truly by {so}")
            if (pending is not None and pending < lacking) or (pending != lacking and backup == exact):
                found.append(f"{by}: {backup} {dataset} lacks {pending}, truly {lacking}")
        for one in status["backups"]:
            lag = one["lag_seconds"]
            newests = [newest for newest, _ in truths.get(one["name"], {}).values()]
            if lag is not None and any(new is None or lag < began - new - TOLERANCE for new in newests):
                found.append(f"status: {one['name']} lags by {lag}, truly since {newests} at {began}")
        return found

    def truth(self, backup: Backup) -> dict[str, tuple[int | None, int]]:
        """By dataset when the newest snapshot was made that its vault has for it, and how many newer ones there are."""
        self.read(backup.vault)
        shelf = self.shelves[backup.vault]
        had = shelf.had.get(shelf.number, {})
        there = {
            guid
            for name, snapshots in had.items()
            if f"{name}/".startswith(f"{backup.place}/")
            for guid, _ in snapshots
        }
        found: dict[str, tuple[int | None, int]] = {}
        for name, snapshots in read("tank").items():
            newest = max((at for at, (guid, _) in enumerate(snapshots) if guid in there), default=None)
            if newest is None:
                found[name] = None, len(snapshots)
            else:
                found[name] = snapshots[newest][1], len(snapshots) - 1 - newest
        return found

    def unknowable(self, backup: Backup) -> bool:
        """Whether its vault was changed, is away, and the daemon of now saw neither."""
        shelf = self.shelves[backup.vault]
        if imported(backup.vault):
            shelf.unseen.discard(shelf.number)
        return shelf.number in shelf.unseen

    def listed(self) -> list[tuple[str, str, str, float | None, int | None]]:
        """As both sides are read anew."""
        rows = (ask("GET", "/v1/list") or {"datasets": []})["datasets"]
        return [("list", row["backup"], row["dataset"], row["lag_seconds"], row["pending"]) for row in rows]

    def scraped(self) -> list[tuple[str, str, str, float | None, int | None]]:
        """As the daemon keeps it."""
        samples = world.metrics()
        found = []
        for backup in self.backups:
            for dataset in ["tank", *self.datasets()]:
                labels = f'{{backup="{backup}",dataset="{dataset}"}}'
                lag = samples.get(f"zvault_backup_lag_seconds{labels}")
                pending = samples.get(f"zvault_backup_pending_snapshots{labels}")
                found.append(("metrics", backup, dataset, lag, None if pending is None else int(pending)))
        return found
