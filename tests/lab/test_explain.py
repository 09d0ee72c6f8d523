"""What zvaultctl explain and top say of real pools: each reason is what the run did, and what ZFS itself says."""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest
from world import World, ctl, events, eventually, noise, ok, sh, shell, snapshots, status

LAB = {"mem": "3G", "timeout": 600}


@pytest.fixture(scope="module")
def tank() -> Iterator[World]:
    it = World(
        keep="{ source = { last = 1 }, vault = { last = 2 } }",
        backup_extra='max_lag = "1h"\nprune_limit = "100%"\nlimit = "8M"',
    )
    it.clean()
    it.source()
    it.start()
    for number in range(3):
        shell(f"echo {number} >/tank/home/number")
        ok("run", "tank")
    yield it
    it.clean()


def told(name: str, code: int = 0) -> dict[str, Any]:
    """What is said of a name by its one backup."""
    done = ctl("explain", name, "-j")
    assert done.code == code, f"{done.code}\n{done.out}{done.err}"
    (account,) = done.json()["accounts"]
    return account


def reason(account: dict[str, Any], topic: str, side: str | None = None) -> tuple[str, str]:
    (one,) = [one for one in account["reasons"] if (one["topic"], one["side"]) == (topic, side)]
    return one["state"], one["why"]


def test_an_excluded_dataset(tank: World) -> None:
    done = ctl("explain", "tank/scratch")
    assert done.code == 1
    assert "nothing backs it up: none of the backups that read there takes tank/scratch" in done.out
    assert "'tank/scratch' in exclude matches it" in done.out


def test_a_base_is_kept_and_held_on_both_sides(tank: World) -> None:
    (newest,) = snapshots("tank/home")
    account = told(f"tank/home@{newest}")
    assert reason(account, "made")[0] == "by zvault"
    assert reason(account, "sent")[0] == "there"
    assert reason(account, "base")[0] == "yes"
    assert reason(account, "kept", "source") == ("kept", "the base of the next incremental")
    (tag,) = [line.split("\t")[1] for line in sh("zfs", "holds", "-H", f"tank/home@{newest}").splitlines()]
    assert reason(account, "held", "source") == ("yes", f"zvault holds it for vault cold ({tag})")
    assert reason(account, "held", "vault") == ("yes", "zvault holds it: the newest of cold/lab/tank/home")
    same = told(f"cold/lab/tank/home@{newest}")
    assert same == account | {"vault_seen_at": same["vault_seen_at"]}


def test_a_pruned_snapshot_names_the_run_that_pruned_it(tank: World) -> None:
    runs = ok("history", "tank", "-H", "-o", "run").out.split()
    pruned = {
        name: run
        for run in runs
        for event in events(run)
        if event["event"] == "pruned"
        for name in event["snapshots"]
    }
    first = min(name for name in pruned if name.startswith("tank/home@"))
    account = told(first)
    state, why = reason(account, "there", "source")
    assert (state, pruned[first] in why) == ("no", True), why
    assert "no rule kept it" in why
    assert reason(account, "there", "vault")[0] == "no"
    assert told(f"cold/lab/{first}")["reasons"] == account["reasons"]


def test_what_somebody_holds_is_not_pruned_and_says_who(tank: World) -> None:
    (before,) = snapshots("tank/home")
    sh("zfs", "hold", "mine", f"tank/home@{before}")
    shell("echo held >/tank/home/number")
    ok("run", "tank")
    assert before in snapshots("tank/home")
    account = told(f"tank/home@{before}")
    state, why = reason(account, "kept", "source")
    assert state == "kept"
    assert why == f"held by mine ('zfs release mine tank/home@{before}' releases it)"
    sh("zfs", "release", "mine", f"tank/home@{before}")
    assert reason(told(f"tank/home@{before}"), "kept", "source") == ("to be pruned", "no rule keeps it")


def test_a_lag_and_its_cause(tank: World) -> None:
    """Somebody writes to the copy: the run leaves it out, and the lag comes from that."""
    ok("vault", "up", "cold")
    newest = snapshots("cold/lab/tank/home")[-1]
    shell(
        "zfs set readonly=off cold/lab/tank/home && mkdir -p /mnt/copy && "
        "mount -t zfs -o zfsutil cold/lab/tank/home /mnt/copy && echo x >/mnt/copy/x && umount /mnt/copy && "
        "zfs set readonly=on cold/lab/tank/home && zpool sync"
    )
    shell("echo late >/tank/home/number")
    assert ctl("run", "tank").code == 1
    account = told("tank/home", code=1)
    state, why = reason(account, "sent")
    assert state == "conflict"
    assert f"was written to after {newest}" in why
    state, basis = reason(account, "lag")
    assert f"the vault has @{newest}" in basis
    assert f"nothing is sent while {why}" in basis
    assert reason(account, "last run")[0] == "partial"
    assert any(one["topic"] == "backup" and one["state"] == "conflict" for one in account["reasons"])
    assert reason(told(f"tank/home@{snapshots('tank/home')[-1]}", code=1), "sent")[0] == "blocked"
    sh("zfs", "rollback", f"cold/lab/tank/home@{newest}")
    ok("run", "tank")
    assert reason(told("tank/home"), "sent")[0] == "nothing"


class Screen:
    """zvaultctl top in a terminal."""

    def __init__(self, columns: int) -> None:
        self.fd, far = os.openpty()
        ioctl(far, TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["zvaultctl", "top"], stdin=far, stdout=far, stderr=far, env=environment, start_new_session=True
        )
        os.close(far)
        self.text = ""

    def shows(self, pattern: str) -> bool:
        """Whether what was drawn so far has the pattern."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                break
        return re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)) is not None

    def quit(self) -> int:
        """Press q, and see that the screen is given back."""
        os.write(self.fd, b"q")
        eventually("the screen is given back", lambda: self.shows("$") and "\x1b[?1049l" in self.text)
        return self.process.wait(60)


def test_a_run_is_seen_live(tank: World) -> None:
    noise(Path("/tank/big/more"), 48)
    ok("vault", "up", "cold")
    screen = Screen(132)
    eventually(lambda: screen.text, lambda: screen.shows("all is well"))
    ok("run", "tank", "--no-wait")
    eventually(lambda: screen.text, lambda: screen.shows(r"tank/big .*\d+%.*M/s"))
    eventually(lambda: screen.text, lambda: screen.shows(r"cold +up +ok +\d+/s"))
    eventually(lambda: screen.text, lambda: screen.shows("tank: pruned|tank ok: "))
    eventually("the run is over", lambda: status()["backups"][0]["state"] == "idle")
    assert screen.quit() == 0


def test_twenty_columns_and_no_terminal(tank: World) -> None:
    screen = Screen(20)
    eventually(lambda: screen.text, lambda: screen.shows(r"tank +idle"))
    assert screen.quit() == 0
    done = ctl("top")
    assert done.code == 0
    assert re.search(r"^tank +idle +ok", done.out, re.M), done.out
    assert "no terminal: this is one frame" in done.err
    assert "1h ok" in ok("lag", "--plot").out
    assert "ok" in ok("history", "--plot").out


def test_of_a_vault_that_is_down_it_says_so_and_leaves_it(tank: World) -> None:
    ok("vault", "down", "cold")
    account = told("tank/home", code=3)
    assert not account["vault_seen"]
    state, why = reason(account, "sent")
    assert state == "unknown"
    assert re.match(r"vault cold is down; it was last looked at 20\d\d-", why), why
    assert reason(account, "lag")[0].endswith("(max_lag is 1h)")
    (vault,) = status()["vaults"]
    assert vault["state"] == "down"


def test_without_a_daemon_it_says_what_the_pools_tell(tank: World) -> None:
    sh("systemctl", "stop", "zvaultd")
    try:
        account = told("tank/home", code=3)
        assert reason(account, "selected")[0] == "yes"
        assert reason(account, "last run") == (
            "unknown",
            "zvaultd is not running: its history is not read",
        )
        assert ctl("explain", "tank/nope@x").code in (1, 3)
        assert ctl("explain", "nopool/x").code == 2
    finally:
        sh("systemctl", "start", "zvaultd")
        eventually("zvaultd answers", lambda: ctl("status").code != 2)
