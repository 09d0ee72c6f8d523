"""What zvaultctl explain, top and mount show of real pools: each reason is what a run did, each file what it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from terminal import Screen
from world import (
    World,
    ctl,
    events,
    eventually,
    main_pid,
    noise,
    ok,
    restarted,
    sh,
    shell,
    snapshot_hashes,
    snapshots,
    status,
    tree_hashes,
)

LAB = {"mem": "3G", "timeout": 900, "in_order": True}

CHOSEN = 'max_lag = "1h"\nprune_limit = "100%"\nlimit = "{}"'


@pytest.fixture(scope="module")
def tank() -> Iterator[World]:
    it = World(
        keep="{ source = { last = 1 }, vault = { last = 2 } }",
        backup_extra=CHOSEN.format("8M"),
    )
    it.clean()
    it.source()
    it.start()
    ok("vault", "up", "cold")
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


def but_when_seen(account: dict[str, Any]) -> dict[str, Any]:
    """It without when the vault was last looked at, which is another moment, or minute, each time that one asks."""
    (damage,) = [one for one in account["reasons"] if one["topic"] == "damage"]
    assert re.fullmatch(r"as seen \d{4}-\d\d-\d\d \d\d:\d\d", damage["why"]), damage
    others = [one for one in account["reasons"] if one is not damage]
    return account | {"vault_seen_at": None, "reasons": [*others, damage | {"why": "as seen"}]}


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
    assert but_when_seen(told(f"cold/lab/tank/home@{newest}")) == but_when_seen(account)


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


def limited(tank: World, limit: str) -> None:
    """Another limit, in force at once, also for a stream on its way."""
    tank.backup_extra = CHOSEN.format(limit)
    tank.configure()
    sh("systemctl", "reload", "zvaultd")


def test_a_run_is_seen_live(tank: World) -> None:
    noise(Path("/tank/big/more"), 48)
    ok("vault", "up", "cold")
    limited(tank, "512K")  # it lasts until it was seen, and then it may go
    screen = Screen(132, "top")
    eventually(lambda: screen.text, lambda: screen.shows("all is well"))
    ok("run", "tank", "--no-wait")
    eventually(lambda: screen.text, lambda: screen.shows(r"tank/big .*\d+%.*[KM]/s"))
    eventually(lambda: screen.text, lambda: screen.shows(r"cold +up +ok +\d+/s"))
    limited(tank, "8M")
    eventually(lambda: screen.text, lambda: screen.shows("tank: pruned|tank ok: "))
    eventually("the run is over", lambda: status()["backups"][0]["state"] == "idle")
    assert screen.quit() == 0


def test_twenty_columns_and_no_terminal(tank: World) -> None:
    screen = Screen(20, "top")
    eventually(lambda: screen.text, lambda: screen.shows(r"tank +idle"))
    assert screen.quit() == 0
    done = ctl("top")
    assert done.code == 0
    assert re.search(r"^tank +idle +ok", done.out, re.M), done.out
    assert "no terminal: this is one frame" in done.err
    assert "1h ok" in ok("lag", "--plot").out
    assert "ok" in ok("history", "--plot").out


LOOK = Path("/mnt/look into")


class Mounted:
    """zvaultctl mount, and what it left."""

    def __init__(self, *words: str) -> None:
        LOOK.mkdir(exist_ok=True)
        argv = ["zvaultctl", "mount", "tank", *words, str(LOOK)]
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        eventually("it is mounted", lambda: self.is_there() or self.process.poll() is not None)
        assert self.is_there(), self.process.communicate()[0]

    @staticmethod
    def is_there() -> bool:
        return os.path.ismount(LOOK)

    def ended(self) -> tuple[int, str]:
        """The exit status and what was said, once it is over; nothing of it is left."""
        out, _ = self.process.communicate(timeout=120)
        self.gone()
        return self.process.returncode, out

    def gone(self) -> None:
        eventually("it is unmounted", lambda: not self.is_there())
        eventually("nothing is held for it", lambda: not self.holds())
        eventually("nothing of it is written down", lambda: not self.leases())

    @staticmethod
    def leases() -> list[Path]:
        places = ("/run/zvault/lease/look", "/var/lib/zvault/mount-holds/look")
        return [file for place in places for file in Path(place).glob("*")]

    @staticmethod
    def holds() -> str:
        names = [f"cold/lab/tank/home@{one}" for one in snapshots("cold/lab/tank/home")]
        return "\n".join(
            line for line in sh("zfs", "holds", "-H", *names).splitlines() if "zvault:mount" in line
        )


def test_a_mount_shows_the_files_and_gives_no_rights(tank: World) -> None:
    sh("cp", "/bin/true", "/tank/home/true")
    sh("chmod", "4755", "/tank/home/true")
    ok("run", "tank")
    ok("vault", "down", "cold")
    newest = snapshots("tank/home")[-1]
    look = Mounted("tank/home")
    source = f"cold/lab/tank/home@{newest}"
    assert tree_hashes(LOOK) == snapshot_hashes(f"tank/home@{newest}")
    (options,) = [
        line.split()[3] for line in Path("/proc/mounts").read_text().splitlines() if line.startswith(source)
    ]
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(options.split(","))
    with pytest.raises(PermissionError):
        subprocess.run([LOOK / "true"], check=False)
    with pytest.raises(OSError, match="Read-only"):
        (LOOK / "new").touch()
    assert source in look.holds()
    (vault,) = status()["vaults"]
    assert vault["users"] == [f"mount at {LOOK}"]
    refused = ctl("vault", "down", "cold")
    assert refused.code == 1
    assert f"by mount at {LOOK}" in refused.err
    sh("zfs", "destroy", source, check=False)
    assert newest in snapshots("cold/lab/tank/home")
    again = ctl("mount", "tank", "tank/home", str(LOOK))
    assert again.code == 2
    assert "something is mounted there" in again.err
    os.killpg(look.process.pid, signal.SIGINT)
    code, out = look.ended()
    assert code == 0
    assert f"{source} is mounted at {LOOK}, read-only; it is held and vault cold is kept up meanwhile" in out
    eventually("the vault is down again", lambda: status()["vaults"][0]["state"] == "down")


def test_a_mount_ends_by_umount_and_by_its_time(tank: World) -> None:
    ok("vault", "up", "cold")
    look = Mounted("tank/home")
    sh("umount", str(LOOK))
    code, out = look.ended()
    assert (code, "it was unmounted" in out) == (0, True), out
    # Two seconds may be over before anybody looks whether it is mounted: it says so itself.
    done = ok("mount", "tank", "--timeout", "2s", "cold/lab/tank/home", str(LOOK))
    said = done.out + done.err
    assert re.search(f"cold/lab/tank/home@.* is mounted at {LOOK}", said), said
    assert "its time is over" in said
    look.gone()


def test_nothing_is_pruned_below_a_mount(tank: World) -> None:
    """Retention would take the oldest: while it is mounted it is held, and the run says who holds it."""
    oldest = snapshots("cold/lab/tank/home")[0]
    when = time_of(oldest)
    look = Mounted("tank/home", "--at", when)
    shell("echo pruned >/tank/home/number")
    ok("run", "tank")
    assert oldest in snapshots("cold/lab/tank/home")
    assert "zvault:mount-" in reason(told(f"cold/lab/tank/home@{oldest}"), "held", "vault")[1]
    os.killpg(look.process.pid, signal.SIGINT)
    assert look.ended()[0] == 0


def time_of(snapname: str) -> str:
    """The time in a snapshot's name."""
    return snapname.partition("_")[2]


def test_a_mount_ends_with_the_daemon(tank: World) -> None:
    look = Mounted("tank/home")
    sh("systemctl", "restart", "zvaultd")
    assert look.ended()[0] == 2
    eventually("zvaultd answers", lambda: ctl("status").code != 2)


def test_a_mount_ends_after_a_crash(tank: World) -> None:
    look = Mounted("tank/home")
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    assert look.ended()[0] == 2
    eventually("zvaultd answers", lambda: ctl("status").code != 2)
    shell("echo crash >/tank/home/number")
    ok("run", "tank")


def test_no_mount_where_others_could_lead_it_elsewhere(tank: World) -> None:
    theirs = Path("/mnt/theirs")
    theirs.mkdir(exist_ok=True)
    shell("chown nobody /mnt/theirs && mkdir -p /mnt/theirs/x")
    refused = ctl("mount", "tank", "tank/home", "/mnt/theirs/x")
    assert refused.code == 2
    assert "belongs to user" in refused.err
    assert ctl("mount", "tank", "tank/vol", str(LOOK)).code == 2
    sh("rm", "-r", "/mnt/theirs")


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
