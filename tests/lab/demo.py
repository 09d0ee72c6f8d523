"""What zvault does, to watch: backups, an inhibitor, pruning, lag, a file that comes back. `make demo` runs it.

All of it is real, in a throw-away guest: every command is shown before its own output, and what is claimed is checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time

import world

COLUMNS = 98
FILM_MIB = 280
WRITE_CACHE = 16 << 20
"""Bytes of writes that ZFS may keep in memory. The film must be much larger, and the storage slow, to see it go."""

CONFIG = """\
[vault.cold]
pool = "cold"
profile = "nbd-lan"
create = true                    # the device is blank: make the pool on it

[[vault.cold.device]]
nbd = "nbdkit:file /srv/cold.img filter=rate rate=200M burstiness=0.2"   # 25 MB/s, as if far away
size = "1G"

[backup.tank]
source = "tank"
exclude = ["tank/scratch"]
vault = "cold"
into = "{dataset}"               # in the pool: cold/tank, cold/tank/home, …
every = "1h"
max_lag = "3h"
"""
KEEP = """
[backup.tank.keep]
source = { last = 1 }
vault = { last = 2 }
"""

BOLD, BLUE, GREEN, RED = "1", "1;34", "32", "31"


class Failed(Exception):
    """Something did not go as the demo says."""


class Page:
    """What is read: chapters of prose, commands, their output, and checks, with blank lines between where they help."""

    def __init__(self) -> None:
        self.chapters = 0
        self.crowded = False

    def style(self, text: str, style: str) -> str:
        """In a terminal's style, where there is a terminal."""
        return f"\x1b[{style}m{text}\x1b[0m" if sys.stdout.isatty() else text

    def line(self, text: str = "", style: str = "") -> None:
        """One line."""
        print(self.style(text, style) if style else text, flush=True)

    def chapter(self, title: str, text: str) -> None:
        """A heading, and what it is about."""
        self.chapters += 1
        self.line(f"\n\n{f'── {self.chapters}. {title} '.ljust(COLUMNS, '─')}", BLUE)
        self.tell(text)

    def tell(self, text: str) -> None:
        """A paragraph."""
        self.line(f"\n{textwrap.fill(' '.join(text.split()), COLUMNS)}\n")
        self.crowded = False

    def command(self, command: str) -> None:
        """A command, as root would type it."""
        if self.crowded:
            self.line()
        self.line(f"# {command}", BOLD)
        self.crowded = False

    def output(self, text: str) -> None:
        """A line that it printed."""
        if len(text) > COLUMNS and sys.stdout.isatty():
            text = textwrap.fill(text, COLUMNS, subsequent_indent="    ", break_long_words=False) + "\n"
        print(text, end="", flush=True)
        self.crowded = True

    def check(self, claim: str, good: object) -> None:
        """Say what has been seen, if it has."""
        if not good:
            raise Failed(f"this does not hold: {claim}")
        self.line(f"✓ {claim}", GREEN)
        self.crowded = True


page = Page()
chapter, tell, check = page.chapter, page.tell, page.check


def run(*commands: str, fails: bool = False) -> str:
    """Show shell commands and, as it comes, what they print; that of the last one is the result."""
    seen: list[str] = []
    for command in commands:
        page.command(command)
        seen = []
        shell = ["sh", "-c", command]
        process = subprocess.Popen(shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout or ():
            page.output(line)
            seen.append(line)
        judge(command, process.wait(), fails)
    return "".join(seen)


def live(command: str) -> None:
    """A command that has the terminal to itself, for its progress bar."""
    page.command(command)
    judge(command, subprocess.run(["sh", "-c", command]).returncode)
    page.crowded = True


def judge(command: str, status: int, fails: bool = False) -> None:
    """A command must succeed, or where that is the point, fail."""
    if (status != 0) != fails:
        raise Failed(f"'{command}' ended with status {status}")


def configure(text: str) -> None:
    """Write the configuration; whoever calls shows it."""
    world.CONFIG.parent.mkdir(exist_ok=True)
    world.CONFIG.write_text(text)


def newest_runs() -> list[dict[str, int | str]]:
    """The history, newest first."""
    return list(world.ok("history", "-j").json()["runs"])


def source() -> None:
    chapter(
        "Something to lose",
        """A pool with small files in 128K records, a film in 1M records, the disk of a virtual machine, and scratch
        space that nobody will miss.""",
    )
    run(
        "truncate -s 1G /srv/tank.img",
        "zpool create -O mountpoint=/tank tank /srv/tank.img",
        "zfs create tank/home",
        "zfs create -o recordsize=1M tank/media",
        "zfs create -V 64M tank/vm",
        "zfs create tank/scratch",
        "cp -a /etc /tank/home/etc",
        "head -c 8M /dev/urandom >/tank/home/thesis.pdf",
        f"head -c {FILM_MIB}M /dev/urandom >/tank/media/film.mkv",
        "udevadm settle && head -c 16M /dev/urandom >/dev/zvol/tank/vm",
        "zpool sync tank",
        "zfs list -o name,type,recordsize,volsize,logicalused -r tank",
    )


def configuration() -> None:
    chapter(
        "Where it shall go",
        """A vault is a pool and the devices it lies on: here one network block device, which zvault itself serves
        from a file, slowly on purpose. A backup says what goes into which vault, and how often.""",
    )
    configure(CONFIG)
    run("cat /etc/zvault/zvault.toml", "zvaultctl check-config")
    tell("""ZFS gathers writes in memory, up to a tenth of it. A real backup is much larger than that; this one is not,
        so for the demo there is less room.""")
    run(f"echo {WRITE_CACHE} >/sys/module/zfs/parameters/zfs_dirty_data_max")


def first_backup() -> None:
    chapter(
        "The first backup: everything",
        "The daemon finds that this backup never ran, and makes up for it at once.",
    )
    run("systemctl start zvaultd")
    world.eventually("the inhibitor", world.inhibitors, seconds=15)
    run("systemd-inhibit --list")
    refusal = run("systemctl suspend --check-inhibitors=yes", fails=True)
    check("while zvault writes to the vault, the host does not go to sleep", "inhibited by" in refusal)
    if sys.stdout.isatty():
        tell("From here the run is followed to its end.")
    else:
        tell("On a terminal zvaultctl shows a progress bar. Here is what the daemon tells systemd meanwhile.")
        world.eventually("the first bytes", under_way)
        for _ in range(3):
            run("systemctl show -P StatusText zvaultd")
            time.sleep(2)
    live("zvaultctl follow tank")
    check("the pool is exported and its device disconnected, until the next run", not leftovers())
    run("systemd-inhibit --list")
    check("the lock is gone too", not world.inhibitors())
    run("zvaultctl status")


def under_way() -> bool:
    """Whether bytes are flowing, or the run ended without: then following it tells why."""
    backup = world.status()["backups"][0]
    return bool(backup["bytes_done"]) or backup["state"] == "idle"


def leftovers() -> str:
    """What is up of the vault, in words; empty when it is down."""
    try:
        world.nothing_left()
    except AssertionError as error:
        return str(error) or "something"
    return ""


def second_backup() -> None:
    chapter(
        "The second: only what changed",
        "A new file, a changed one, and a megabyte written to the virtual disk.",
    )
    run(
        "head -c 4M /dev/urandom >/tank/media/clip.mkv",
        "echo 'call the dentist' >>/tank/home/etc/motd",
        "dd if=/dev/urandom of=/dev/zvol/tank/vm bs=1M count=1 seek=3 status=none",
    )
    live("zvaultctl run tank")
    run("zvaultctl history tank")
    second, first = newest_runs()[:2]
    check(
        "the second run sent less than a tenth of the first", int(second["bytes"]) < int(first["bytes"]) / 10
    )


def prune() -> str:
    """The hash of the file that is lost."""
    chapter(
        "What may go, and why",
        "The thesis is deleted, by mistake. And from now on the source keeps one snapshot, the vault two.",
    )
    digest = run("sha256sum /tank/home/thesis.pdf").split()[0]
    run("rm /tank/home/thesis.pdf")
    configure(CONFIG + KEEP)
    run("tail -n 3 /etc/zvault/zvault.toml", "systemctl reload zvaultd")
    plan = run("zvaultctl plan -v tank")
    check(
        "the plan has a reason for each snapshot", "no rule keeps it" in plan and "one of the last 2" in plan
    )
    tell("That is what could go now. A run takes its snapshot and sends it first, and prunes after that.")
    live("zvaultctl run tank")
    check(
        "each dataset lost two snapshots on the source and one on the vault",
        newest_runs()[0]["pruned"] == 4 * 3,
    )
    return digest


def lag() -> None:
    chapter(
        "How far behind",
        """Lag is the age of the newest state that the vault could give back, read from what is on the vault. It is
        the figure to alert on.""",
    )
    run("curl -s http://127.0.0.1:9712/metrics | grep ^zvault_backup_lag")
    created = int(world.get(f"tank/home@{world.snapshots('tank/home')[-1]}", "creation"))
    before = time.time() - created
    told = world.metrics()['zvault_backup_lag_seconds{backup="tank",dataset="tank/home"}']
    after = time.time() - created
    check("it is the age of the newest snapshot", before - 0.1 <= told <= after + 0.1)


def restore(digest: str) -> None:
    chapter(
        "The thesis comes back",
        """It is gone from the pool, and from every snapshot there: the source keeps only the newest. The vault keeps
        two. Bring it up, and see which.""",
    )
    run("zvaultctl vault up cold")
    listed = run("zvaultctl list -t snapshot tank | grep -e NAME -e home")
    lost = next(line.split()[0] for line in listed.splitlines() if line.split()[1:3] == ["no", "yes"])
    live(f"zvaultctl restore tank {lost} tank/found")
    found = run("sha256sum /tank/found/thesis.pdf").split()[0]
    check("it is what it was before it was lost", found == digest)


def nothing_left() -> None:
    chapter("Nothing is left behind", "Take the vault down, stop the daemon, and look around.")
    run(
        "zvaultctl vault down cold",
        "systemctl stop zvaultd",
        "zpool list -o name,size,health",
        "cat /sys/block/nbd*/pid 2>/dev/null || echo 'no network block device is connected'",
        "systemctl list-units 'zvault*.service'",
        "systemd-inhibit --list",
        "ls -lsh /srv",
    )
    check("no pool, device, server or lock of the vault is left, only its file: the backup", not leftovers())


def perform() -> None:
    """All of it."""
    source()
    configuration()
    first_backup()
    second_backup()
    digest = prune()
    lag()
    restore(digest)
    nothing_left()


def main() -> int:
    """0 if everything was as it says."""
    if not os.environ.get("ZVAULT_LAB"):
        print("demo.py makes and destroys pools: it runs in the lab only, with 'make demo'", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        perform()
    except (Failed, AssertionError) as error:
        page.line(f"\nThe demo failed: {error}", RED)
        print(
            world.sh(
                "journalctl", "-u", "zvaultd", "-o", "short-monotonic", "--no-pager", "-n", "40", check=False
            )
        )
        return 1
    tell(
        f"That was zvault, in {time.monotonic() - began:.0f} seconds. What to do with it is in README.md and docs/."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
