"""What befalls a source, its vaults and the daemon, step by step."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from crash_world import points
from lag_pools import Pools
from world import sh


class History(Pools):
    """The steps that may be taken, by chance."""

    def take(self, step: str) -> tuple[str, str]:
        """One step; of which backup it was, and what came of it in a word."""
        backup = self.chance.choice(sorted(self.backups))
        vault = self.backups[backup].vault
        acts: dict[str, Callable[[], str | None]] = {
            "run": lambda: self.run(backup),
            "run, a stream is killed": lambda: self.cut(backup),
            "run, the daemon is killed": lambda: self.crash(backup),
            "run, the daemon is killed and the vault goes away": lambda: self.crash(backup, away=True),
            "restart": self.restart,
            "the state is lost": self.lose_state,
            "the vault goes away": lambda: self.down(vault),
            "the vault comes back": lambda: self.up(vault),
            "rename": self.rename,
            "create": self.create,
            "replace": self.replace,
            "prune the source": self.prune_source,
            "prune the vault": lambda: self.prune_vault(vault),
            "the vault goes back": lambda: self.roll_back(vault),
            "another pool": lambda: self.swap(vault),
            "another vault": self.other_vault,
            "another place": lambda: self.other_place(backup),
            "the clock is set": self.set_clock,
        }
        return backup, acts[step]() or ""

    def run(self, backup: str) -> str:
        self.write()
        run = self.ended(self.begin(backup))
        if run["result"] == "ok":
            shelf = self.shelves[self.backups[backup].vault]
            shelf.changed.discard(shelf.number)
            shelf.unseen.discard(shelf.number)
        return str(run["result"])

    def cut(self, backup: str) -> str:
        self.write()
        run = self.begin(backup)
        victim, end = self.chance.choice(("send", "receive")), time.monotonic() + 3
        time.sleep(self.chance.random())
        while time.monotonic() < end and subprocess.run(["pkill", "-9", "-f", f"^zfs {victim} "]).returncode:
            time.sleep(0.02)
        return f"{victim}: {self.ended(run)['result']}"

    def crash(self, backup: str, *, away: bool = False) -> None:
        self.write()
        self.begin(backup)
        time.sleep(self.chance.random() * 3)
        self.kill()
        if away:
            self.down(self.backups[backup].vault)
        self.start_again()

    def restart(self) -> None:
        sh("systemctl", "stop", "zvaultd")
        self.start_again()

    def lose_state(self) -> None:
        sh("systemctl", "stop", "zvaultd")
        sh("rm", "-rf", "/var/lib/zvault")
        self.start_again()

    def new_name(self) -> str:
        self.names += 1
        return f"tank/d{self.names}"

    def rename(self) -> str:
        old, new = self.chance.choice(self.datasets()), self.new_name()
        sh("zfs", "rename", old, new)
        return f"{old} to {new}"

    def create(self) -> str:
        name = self.new_name()
        sh("zfs", "create", name)
        return name

    def replace(self) -> str:
        name = self.chance.choice(self.datasets())
        for one in points(name).values():
            for guid, tags in one.holds.items():
                for tag in tags:
                    sh("zfs", "release", tag, f"{name}@{one.snapshots[guid]}")
        sh("zfs", "destroy", "-r", name)
        sh("zfs", "create", name)
        return name

    def prune_source(self) -> None:
        for name, one in points("tank").items():
            for guid, snapname in list(one.snapshots.items())[:-1]:
                if not one.holds.get(guid):
                    sh("zfs", "destroy", f"{name}@{snapname}")

    def prune_vault(self, vault: str) -> None:
        self.up(vault)
        for name, one in points(vault).items():
            for snapname in list(one.snapshots.values())[:-1]:
                sh("zfs", "destroy", f"{name}@{snapname}")

    def roll_back(self, vault: str) -> None:
        self.up(vault)
        shelf = self.shelves[vault]
        shelf.changed.add(shelf.number)
        back = self.chance.randrange(1, 3)
        for name, one in points(vault).items():
            if (older := list(one.snapshots.values())[: -back or None]) and not one.partial:
                sh("zfs", "rollback", "-r", f"{name}@{older[-1]}")

    def swap(self, vault: str) -> str:
        """A vault gets another pool of the same name: a new one, or one that it had."""
        self.down(vault)
        shelf = self.shelves[vault]
        shelf.number = self.chance.choice([number for number in range(3) if number != shelf.number])
        if new := not self.disk(vault).exists():
            self.attach(vault, new=True)
        self.up(vault)
        return f"{vault} {shelf.number}{' (new)' if new else ''}"

    def other_vault(self) -> str:
        one = self.backups["c"]
        one.vault = "tape" if one.vault == "usb" else "usb"
        self.reload()
        return one.vault

    def other_place(self, backup: str) -> str:
        one = self.backups[backup]
        one.into = self.chance.choice(["lab", "second"])
        self.reload()
        return one.place

    def reload(self) -> None:
        self.configure()
        sh("systemctl", "reload", "zvaultd")

    def set_clock(self) -> str:
        hours = self.chance.uniform(-50, 50)
        time.clock_settime(time.CLOCK_REALTIME, time.time() + hours * 3600)
        return f"{hours:+.1f} hours"
