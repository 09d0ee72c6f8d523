"""Pruning that surprises nobody: what is held, cloned or matches stays; the limit; holds, and a down vault's base."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import world
from prune_world import (
    HOME,
    USB,
    VAULTED,
    held_on_vault,
    history,
    kept,
    pool_guid,
    pool_guids,
    rows,
    tank_for_test,  # noqa: F401
)
from world import World, ctl, eventually, get, ok, sh, snapshots, tamper

LAB = {"mem": "3G", "timeout": 2500}


def test_held_cloned_mounted_and_matching_stay_and_the_limit(tank):  # noqa: PLR0915 - a story
    tank.backup_extra = 'prune_limit = "40%"'
    tank.start()
    snapnames = history(9)
    assert snapshots(VAULTED) == snapnames
    assert ctl("prune", "tank").out.startswith("to prune: nothing")

    # One on the vault is held by a user, one is cloned, one matches a pattern; the rules are made shorter.
    held, cloned, matching = snapnames[:3]
    sh("zfs", "hold", "keep-me", f"{VAULTED}@{held}")
    sh("zfs", "clone", f"{VAULTED}@{cloned}", "cold/work")
    tank.keep = f'{{ source = {{ last = 7 }}, vault = {{ last = 2, matching = ["*{matching[-6:]}"] }} }}'
    tank.reload()

    before = rows(code=1)
    assert before["vault", f"{VAULTED}@{matching}"]["reason"] == f"matches *{matching[-6:]}"
    assert before["vault", f"{VAULTED}@{snapnames[6]}"]["reason"].startswith("over prune_limit: ")
    assert [one for one in snapnames if not before["vault", f"{VAULTED}@{one}"]["keep"]] == snapnames[3:6]
    assert [one for one in snapnames if not before["source", f"{HOME}@{one}"]["keep"]] == snapnames[:2]
    assert ctl("status").code == 0

    # A run prunes what is within the limit, the oldest first, and says why it leaves the rest; status warns of it.
    said = ok("run", "tank")
    print(said.out, said.err)
    assert "prune_limit holds back pruning on the vault" in said.err
    # Of 7 that no rule keeps one is held, also since the listing that is remembered, and one is cloned. What the run
    # itself brought does not count.
    assert "5 of 9 snapshots would go, one run may prune 3" in said.err
    assert "zvaultctl prune tank -n --over-limit" in said.err
    now = snapshots(HOME)
    assert len(now) == 7
    assert snapshots(VAULTED) == [held, cloned, matching, *snapnames[6:], now[-1]]
    told = ctl("status")
    print(told.out)
    assert (told.code, told.out.splitlines()[0]) == (1, "1 of 1 backup needs attention: tank held-back")

    # Shown, refused without --yes, done with it; what was said to be freed is.
    asked = ctl("prune", "tank", "--over-limit")
    print(asked.out, asked.err)
    assert asked.code == 2
    assert "'zvaultctl prune tank --yes --over-limit' does it" in asked.err
    assert len(snapshots(VAULTED)) == 7
    shown = ctl("prune", "tank", "-n", "--over-limit", "-j").json()
    gone = [row["snapshot"] for row in shown["prune"] if row["snapshot"].startswith(f"{VAULTED}@")]
    assert gone == [f"{VAULTED}@{snapname}" for snapname in snapnames[6:8]]
    later = rows("--over-limit")
    assert later["vault", f"{VAULTED}@{held}"]["reason"].startswith("held by keep-me ")
    assert later["vault", f"{VAULTED}@{cloned}"]["reason"].startswith("cloned as cold/work ")
    sizes = [row["bytes"] for row in shown["prune"] if row["side"] == "vault"]
    assert sum(sizes) == shown["freed"]["vault"]
    sh("zpool", "sync", "cold")
    used = int(get("cold/lab", "used"))
    # Held after the plan was made is found out by the kernel: it says who, and the others go.
    with world.mounted(f"{VAULTED}@{snapnames[6]}"):
        did = ctl("prune", "tank", "--yes", "--over-limit")
    print(did.out, did.err)
    assert did.code == 1, "not all went"
    assert f"kept {VAULTED}@{snapnames[6]}: it is mounted at /mnt/check" in did.err
    assert snapshots(VAULTED) == [held, cloned, matching, snapnames[6], snapnames[8], now[-1]]
    ended = ok("prune", "tank", "--yes", "--over-limit")
    print(ended.out, ended.err)
    assert snapshots(VAULTED) == [held, cloned, matching, snapnames[8], now[-1]]
    sh("zpool", "sync", "cold")
    freed = used - int(get("cold/lab", "used"))
    print("said", shown["freed"]["vault"], "freed", freed, sizes)
    assert abs(freed - shown["freed"]["vault"]) <= 128 << 10
    assert shown["freed"]["vault"] >= 2 * (512 << 10)
    assert ctl("status").code == 0

    # A run names what it had to leave, too.
    tank.backup_extra = 'prune_limit = "100%"'
    tank.reload()
    did = ok("run", "tank")
    assert f"kept {VAULTED}@{cloned}: cloned as cold/work ('zfs promote cold/work' or" in did.err
    assert snapshots(VAULTED) == [held, cloned, matching, *snapshots(VAULTED)[-2:]]

    # To prune is not to back up: status speaks of the last backup.
    runs = ok("history", "-j").json()["runs"]
    assert [(run["trigger"], run["result"]) for run in runs[:4]] == [
        ("hand", "ok"),
        ("prune", "ok"),
        ("prune", "partial"),
        ("hand", "ok"),
    ]


def test_what_the_limit_holds_back_goes_in_the_next_runs(tank):
    tank.start()
    history(11, kib=4)
    tank.keep = "{ vault = { last = 1 } }"
    tank.reload()
    counts = [len(snapshots(VAULTED))]
    while counts[-1] > 1:
        oldest = snapshots(VAULTED)
        ok("run", "-q", "tank")
        left = snapshots(VAULTED)
        gone = [one for one in oldest if one not in left]
        assert gone == oldest[: len(gone)], "the oldest first"
        assert len(gone) <= max(3, len(oldest) // 2)
        counts.append(len(left))
        held_back = int(counts[-1] > 1)
        assert ctl("status").code == held_back
        sample = 'zvault_prune_over_limit_datasets{backup="tank",side="vault"}'
        assert bool(world.metrics()[sample]) == bool(held_back)
        if len(counts) == 2:
            sh("systemctl", "restart", "zvaultd")
            eventually("it is known after a restart", lambda: ctl("status").code == 1)
    print(counts)
    assert counts == [11, 7, 5, 3, 1]
    assert len(snapshots(HOME)) == 15


def test_nothing_younger_than_min_age_goes_whoever_asks(tank):
    tank.keep = "{ source = { last = 1 }, vault = { last = 1 } }"
    tank.backup_extra = 'prune_limit = "100%"\non_conflict = "rollback"'
    tank.min_age = "1h"
    tank.start()
    history(4, kib=4)
    assert len(snapshots(HOME)) <= 2, "the source has none"
    there = snapshots(VAULTED)
    assert len(there) == 4
    ok("prune", "tank", "--yes", "--over-limit")
    assert snapshots(VAULTED) == there
    young = [row["reason"] for (side, _), row in rows().items() if side == "vault"]
    assert young.count("younger than the vault's min_age, 1h") >= 3, young

    # Neither does a rollback give up what came, whoever made it.
    tamper(VAULTED, "by-hand")
    Path(f"/{HOME}/file").write_bytes(os.urandom(4096))
    done = ctl("run", "tank")
    assert done.code == 1, done
    assert "@by-hand" in done.err + done.out
    assert "min_age" in done.err + done.out
    assert [*there, "by-hand"] == snapshots(VAULTED)

    # It is that which kept them.
    tank.min_age = "1s"
    tank.reload()
    time.sleep(1.5)
    ok("run", "tank")
    assert "by-hand" not in snapshots(VAULTED)
    assert len(snapshots(VAULTED)) <= 2


def week_of(minutes: float) -> tuple[int, int]:
    """The year and week of so many minutes from now."""
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isocalendar()[:2]


def test_what_is_held_on_the_vault_survives_zfs_destroy_and_pruning_goes_on_as_the_rules_say(tank):
    """Six weeks of snapshots, of which two weeks are kept, and the last two."""
    tank.backup_extra = 'prune_limit = "100%"'
    tank.keep = "{ vault = { last = 2, weekly = 3 } }"
    eventually("a week that goes on for some minutes", lambda: week_of(0) == week_of(5), seconds=400)
    now = datetime.now(UTC)
    weeks = [f"zvault_{now - timedelta(weeks=away):%Y-%m-%dT%H:%M:%SZ}" for away in range(6, 0, -1)]
    for snapname in weeks:
        sh("zfs", "snapshot", f"{HOME}@{snapname}")
    tank.start()
    ok("run", "tank")
    first = snapshots(HOME)[-1]
    long = "a weekly, monthly or yearly rule keeps it"
    assert snapshots(VAULTED) == [*weeks[-2:], first]
    assert held_on_vault() == {weeks[-2]: long, weeks[-1]: long, first: long}

    for argv in (
        ["-r", VAULTED],
        ["-r", "cold/lab"],
        [f"{VAULTED}@{first}"],
        [f"{VAULTED}@{weeks[-2]}%{first}"],
    ):
        did = subprocess.run(["zfs", "destroy", *argv], capture_output=True, text=True)
        print(argv, did.returncode, did.stderr)
        assert did.returncode != 0
    assert set(snapshots(VAULTED)) == {*weeks[-2:], first}

    # It moves on with the newest; a shorter rule keeps the former, and the longer ones theirs.
    time.sleep(1.1)
    ok("run", "tank")
    second = snapshots(HOME)[-1]
    assert snapshots(VAULTED) == [*weeks[-2:], first, second]
    assert held_on_vault() == {weeks[-2]: long, weeks[-1]: long, second: long}
    before = sh("zpool", "history", "-il", "cold").count("ioctl hold")
    assert "nothing to reap" in ok("holds", "--reap").err

    # Where the rules are made shorter, a preview does not call it held, and pruning is not stopped by it.
    tank.keep = "{ vault = { last = 1, weekly = 1 } }"
    tank.reload()
    found = rows()
    assert {one for one in snapshots(VAULTED) if not found["vault", f"{VAULTED}@{one}"]["keep"]} == {
        *weeks[-2:],
        first,
    }
    said = ok("prune", "tank", "--yes")
    assert "held" not in said.out + said.err
    assert snapshots(VAULTED) == [second]
    assert list(held_on_vault()) == [second]

    # Released by somebody, it is held again after the next run; nothing new came, and nothing else is held or released.
    sh("zfs", "release", "zvault:keep", f"{VAULTED}@{second}")
    ok("run", "tank", "--no-snapshot")
    assert list(held_on_vault()) == [second]
    assert sh("zpool", "history", "-il", "cold").count("ioctl hold") == before + 1
    ok("run", "tank", "--no-snapshot")
    assert sh("zpool", "history", "-il", "cold").count("ioctl hold") == before + 1

    # What a run that was cut off left is an orphan, though a shorter rule keeps it.
    tank.keep = "{ vault = { last = 2, weekly = 1 } }"
    tank.reload()
    ok("run", "tank")
    assert snapshots(VAULTED)[0] == second
    sh("zfs", "hold", "zvault:keep", f"{VAULTED}@{second}")
    left = [one for one in ok("holds", "-j").json()["holds"] if one["state"] == "orphaned"]
    assert [(one["name"], one["reason"]) for one in left] == [
        (f"{VAULTED}@{second}", "no rule needs it held any more")
    ]
    assert "released: 1 hold" in ok("holds", "--reap", "--yes").out
    assert list(held_on_vault()) == snapshots(VAULTED)[-1:]


def test_names_that_a_source_made_up_leave_the_history(tank):
    """A month of genuine snapshots; then one run with a later name for each of their days, and some of the future."""
    tank.backup_extra = 'prune_limit = "100%"'
    tank.keep = "{ source = { daily = 60 }, vault = { daily = 60 } }"
    now = datetime.now(UTC)
    days = [now - timedelta(days=away) for away in range(24, 0, -1)]

    def name(when: datetime) -> str:
        return f"zvault_{when:%Y-%m-%dT%H:%M:%SZ}"

    genuine = [name(day.replace(hour=2, minute=0, second=0)) for day in days]
    for snapname in genuine:
        sh("zfs", "snapshot", "-r", f"tank@{snapname}")
    tank.start()
    ok("run", "tank")
    assert set(genuine) <= set(snapshots(VAULTED))

    made_up = [name(day.replace(hour=23, minute=59, second=59)) for day in days]
    future = [name(now + timedelta(days=away)) for away in range(1, 70)]
    for snapname in (*made_up, *future):
        sh("zfs", "snapshot", f"{HOME}@{snapname}")
    print(ok("run", "tank").out)
    assert set(made_up) <= set(snapshots(VAULTED))
    for _ in range(3):
        ok("run", "tank")
        assert set(genuine) <= set(snapshots(VAULTED))
        assert set(genuine) <= set(snapshots(HOME))
    found = rows()
    assert found["vault", f"{VAULTED}@{genuine[0]}"]["reason"] == f"daily {days[0]:%Y-%m-%d}"


def test_holds_are_listed_and_only_orphans_reaped_and_a_base_outlives_its_vaults_absence(tank):  # noqa: PLR0915 - a story
    tank.keep, tank.extra = "{ source = { last = 1 } }", USB
    tank.start()
    ok("run", "tank")
    ok("run", "usb")
    cold, usb = pool_guid("cold"), pool_guid("usb")
    base = snapshots(HOME)[-1]
    print(ok("holds").out)
    found = kept()
    assert set(found.values()) == {"in use"}
    assert found["hold", f"{HOME}@{base}", usb] == "in use"
    # One hold and one bookmark, for two datasets and two vaults.
    assert len(found) == 8

    # Somebody else's vault was here once.
    sh("zfs", "hold", "zvault:deadbeef", f"{HOME}@{base}")
    sh("zfs", "bookmark", f"{HOME}@{base}", f"{HOME}#zvault_deadbeef_1")
    found = kept()
    leaked = {key for key, state in found.items() if state == "orphaned"}
    assert leaked == {
        ("hold", f"{HOME}@{base}", "deadbeef"),
        ("bookmark", f"{HOME}#zvault_deadbeef_1", "deadbeef"),
    }

    # While a vault is away nobody knows whose that is; and its own base stays, whatever is pruned or reaped.
    # It is busy for as long as anybody asks it for anything, and the daemon does so now and then.
    export = ["zpool", "export", "usb"]
    eventually("nobody to look at the pool", lambda: subprocess.run(export).returncode == 0)
    found = kept()
    assert {key[2] for key, state in found.items() if state == "unknown"} == {"deadbeef"}
    assert {state for key, state in found.items() if key[2] == usb} == {"in use"}
    assert ok("holds", "--reap", "--yes").out == ""
    assert kept() == found
    for _ in range(3):
        ok("run", "tank")
    ctl("prune", "tank", "--yes", "--over-limit")
    assert base in snapshots(HOME)
    # Its own newest, that vault's base, and what that vault has not got yet.
    assert len(snapshots(HOME)) == 4
    unsent = rows()["source", f"{HOME}@{snapshots(HOME)[2]}"]["reason"]
    assert unsent == "backup usb has not sent it yet"
    reason = rows()["source", f"{HOME}@{base}"]["reason"]
    assert f"zvault:{usb}" in reason, reason
    print(ok("holds", "--reap", "--yes", "--vault-guid", "deadbeef").out)
    assert "deadbeef" not in {key[2] for key in kept()}
    assert usb in {key[2] for key in kept()}

    # It comes back and goes on from there.
    sh("zpool", "import", "-d", str(world.DISK), "usb")
    refused = ok("holds", "--reap", "--yes", "--vault-guid", usb)
    assert "nothing to reap" in refused.err, "what is in use is not reaped, also when it is named"
    ok("run", "usb")
    assert base in snapshots("usb/lab/tank/home")
    assert len(snapshots("usb/lab/tank/home")) == 6
    assert base not in snapshots(HOME)
    assert len(snapshots(HOME)) == 2

    # An excluded dataset keeps its base until somebody says that it may go.
    tank.exclude = '["tank/home"]'
    tank.reload()
    assert kept()["hold", f"{HOME}@{snapshots(HOME)[-2]}", cold] == "orphaned"
    tank.exclude = "[]"
    tank.reload()

    # The vault is given up: its holds are orphans, and go when asked twice.
    ctl("vault", "down", "usb")  # zvault forgets it; a pool without devices of its own stays imported
    tank.extra = ""
    tank.reload()
    assert {key[2] for key, state in kept().items() if state == "orphaned"} == {usb}
    assert ctl("holds", "--reap").code == 2
    assert usb in {key[2] for key in kept()}
    gone = ok("holds", "--reap", "--yes")
    print(gone.out)
    assert "released: 2 hold, 4 bookmark" in gone.out
    assert {key[2]: state for key, state in kept().items()} == {cold: "in use"}
    assert usb not in sh("zfs", "holds", "-H", *[f"{HOME}@{snapname}" for snapname in snapshots(HOME)])
    ok("run", "tank")


def test_the_holds_of_a_vault_on_devices_of_its_own(tank):
    tank.clean()
    it = World()
    it.source()
    it.start()
    ok("run", "tank")
    assert set(kept().values()) == {"in use"}, "the vault is down, and its only pool is known"
    assert "in use by vault cold, which is down" in ok("holds").out
    assert {one["vault"] for one in ok("holds", "-j").json()["holds"]} == {"cold"}
    # What was made for a pool that nobody knows may be its too, had it not been seen; once it was given up, not.
    sh("zfs", "hold", "zvault:deadbeef", f"{HOME}@{snapshots(HOME)[-1]}")
    assert {key[2] for key, state in kept().items() if state == "unknown"} == {"deadbeef"}
    book = Path("/var/lib/zvault/pools")
    (book / "deadbeef").write_text((book / pool_guids()[0]).read_text().replace("cold", "given-up"))
    assert {key[2] for key, state in kept().items() if state == "orphaned"} == {"deadbeef"}
    assert "released: 1 hold" in ok("holds", "--reap", "--yes").out
    # The book may be lost: then nothing of a vault that is down has a name, and nothing is an orphan.
    shutil.rmtree(book)
    assert {one["vault"] for one in ok("holds", "-j").json()["holds"]} == {None}
    assert set(kept().values()) == {"unknown"}
    assert ok("holds", "--reap", "--yes").out == ""
    ok("vault", "up", "cold")
    found = kept()
    assert len(found) == 10
    assert set(found.values()) == {"in use"}
    ok("vault", "down", "cold")
    assert {one["vault"] for one in ok("holds", "-j").json()["holds"]} == {"cold"}
