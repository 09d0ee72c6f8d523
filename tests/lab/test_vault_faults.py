"""What can go wrong with a vault: it is told clearly, nothing is left behind, and the next good run converges."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import world
from vault_faults_world import (
    DATASETS,
    PROFILE,
    PROMPT,
    act,
    begin,
    converges,
    digest,
    ended,
    exported,
    fails,
    kill_on_the_way,
    kill_server,
    make_ext4,
    server_pid,
    status,
    tank_for_test,  # noqa: F401
    vault,
    without,
)
from watcher import Watcher
from world import DISK, ctl, eventually, ok, release_all, sh, snapshots

LAB = {"mem": "4G", "timeout": 2250}


def test_what_is_not_there_and_what_is_in_the_way(tank):
    ext4, other, blank = (DISK / f"{name}.img" for name in ("ext4", "other", "blank"))
    for image in (ext4, other):
        sh("truncate", "-s", "128M", str(image))
    make_ext4(ext4)
    sh("zpool", "create", "other", str(other))
    sh("zpool", "export", "other")
    held = {image: digest(image) for image in (ext4, other)}
    tank.exclude = '["tank/scratch", "tank/nodataset", "tank/nodataset/**"]'
    tank.extra = (
        '[backup.nopool]\nsource = "nopool"\nvault = "cold"\n'
        '[backup.nods]\nsource = "tank/nodataset"\nvault = "cold"\ninto = "x/{dataset}"\n'
        'snapshot = { prefix = "nods" }\n'
        + vault("blank", blank)
        + vault("ext", ext4, "create = true")
        + vault("other", other, "create = true", pool="elsewhere")
    )
    tank.start()

    fails("nopool", "not-found", "'nopool'", "zpool import")
    fails("nods", "not-found", "'tank/nodataset'", "zfs list -r tank")
    assert not tank.image.exists(), "no vault is brought up for a source that is not there"
    for argv in (
        ("run", "nix"),
        ("vault", "up", "nix"),
        ("vault", "down", "nix"),
        ("plan", "nix"),
        ("history", "nix"),
    ):
        unknown = ctl(*argv)
        assert unknown.code == 2, argv
        assert "there is no " in unknown.err
        assert "'nix'" in unknown.err
        assert "ext" in unknown.err, "the names that there are"

    fails("blank", "not-found", "blank", "create = true")
    assert not blank.exists(), "nothing is made where nothing is to be"
    fails("ext", "refused", "will not overwrite", "ext4")
    fails("other", "refused", "will not overwrite", 'zfs_member "other"')
    assert {image: digest(image) for image in held} == held, "not a byte was changed"
    world.nothing_left()
    assert snapshots("tank/home"), "the source has its history, though no vault could be had"
    converges()


def test_tools_and_services_that_are_missing(tank):
    tank.vault_extra += PROFILE
    tank.extra = vault("plugin", DISK / "p.img", "create = true", nbd="nbdkit:nosuch").replace(
        'size = "128M"\n', ""
    )
    tank.extra += vault(
        "filter", DISK / "f.img", "create = true", nbd=f"nbdkit:file {DISK}/f.img filter=nosuch"
    )
    tank.start()
    with without("nbdkit"):
        fails("tank", "tool-missing", "nbdkit is not installed", "install")
    fails("plugin", "tool-missing", 'no plugin "nosuch"', "install")
    fails("filter", "tool-missing", 'no filter "nosuch"', "install")
    with without("nbd-client"):
        fails("tank", "tool-missing", "nbd-client is not installed", "install")
    world.nothing_left()
    assert not list(DISK.glob("*.img")) or not tank.image.exists()

    with without("mbuffer"):
        done = ok("run", "tank")
    assert "mbuffer is not installed" in done.err
    assert "mbuffer is not installed" in world.journal("BACKUP=tank", "PRIORITY=4")
    world.fill(Path("/tank/home"), 3, count=2)
    sh("systemctl", "mask", "--runtime", "--now", "systemd-logind")
    try:
        time.sleep(1.1)
        done = ok("run", "tank")
    finally:
        sh("systemctl", "unmask", "--runtime", "systemd-logind")
        sh("systemctl", "start", "systemd-logind")
    told = done.out + done.err
    assert "without an inhibitor" in told
    assert "sleep waits" not in told
    assert "without an inhibitor" in world.journal("BACKUP=tank")
    world.nothing_left()
    converges()


def test_a_server_killed_while_it_is_written_to(tank):
    tank.long_stream()
    tank.start()
    begin()
    with Watcher() as watcher:
        killed = kill_server()
        run = eventually("the run to fail", ended, seconds=200)
        took = time.monotonic() - killed
    print(f"failed {took:.1f} s after the kill; the slowest answers: {watcher.worst}", run)
    assert took < 90
    assert not watcher.failed
    assert max(watcher.worst.values()) < PROMPT
    assert run["result"] in {"failed", "partial"}
    assert run["error"]["reason"] in {"device-gone", "pool-suspended"}
    assert run["error"]["next"]
    reason = run["error"]["reason"]
    assert world.metrics()[f'zvault_backup_failures_total{{backup="tank",reason="{reason}"}}'] == 1
    assert run["error"]["what"] in world.journal(f"RUN={run['id']}", f"REASON={reason}", "BACKUP=tank")
    print(world.journal())
    world.nothing_left()
    tank.at_full_speed()
    converges()
    assert "interrupted receive" in world.journal(), "what had arrived was not sent again"


def test_a_server_that_cannot_come_back_at_once(tank):
    tank.long_stream()
    tank.start()
    thief = subprocess.Popen(["nbdkit", "-f", "-U", "/run/thief.sock", "memory", "64M"])
    try:
        eventually("the thief's server", Path("/run/thief.sock").exists)
        begin()
        device = eventually("where it is to be told", lambda: status()["vaults"][0]["devices"][0]["path"])
        with without("nbdkit"), Watcher() as watcher:
            kill_server()
            run = eventually("the run to fail", ended, seconds=200)
            state = status()["vaults"][0]
            print(state)
            assert state["state"] != "down"
            assert "only a reboot" in state["error"]["next"]
            assert "nbdkit is not installed" in state["error"]["what"]
            fails("tank", "tool-missing", "nbdkit is not installed", "vault up cold")
            down = ctl("vault", "down", "cold")
            assert down.code == 1
            assert "nbdkit is not installed" in down.err
            eventually("nothing to keep the host awake", lambda: world.inhibitors() == "")
            # Somebody else takes its device before it is back; the pool cannot be told to look elsewhere. udev may
            # have it open for a moment.
            steal = ["nbd-client", "-unix", "/run/thief.sock", device]
            eventually("its device to be free", lambda: "Connected" in sh(*steal, check=False))
        print(watcher.worst, run)
        assert not watcher.failed
        assert max(watcher.worst.values()) < PROMPT
        fails("tank", "busy", f"pool cold needs {device}", "somebody else", "vault up cold")
        sh("nbd-client", "-d", device)
        sh("udevadm", "settle")
    finally:
        thief.kill()
        thief.wait()
    tank.at_full_speed()
    converges()


def test_a_server_killed_while_its_vault_is_idle(tank):
    tank.start()
    ok("vault", "up", "cold")
    with without("nbdkit"):  # or zvault would have repaired it by itself
        kill_server()
        eventually("it to be seen", lambda: status()["vaults"][0]["state"] == "gone")
        assert ctl("vault", "status").code == 1
    down = ok("vault", "down", "cold")
    print(down.out, down.err, world.journal())
    world.nothing_left()

    ok("vault", "up", "cold")
    kill_server()
    ok("vault", "up", "cold")
    eventually("it to be told", lambda: status()["vaults"][0]["state"] == "up")
    ok("vault", "down", "cold")
    world.nothing_left()


def test_the_daemon_and_the_device_die_together(tank):
    tank.long_stream()
    tank.start()
    begin()
    tank.backup_extra = ""  # for the next one
    tank.configure()
    pid = world.main_pid()
    os.kill(server_pid(), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    # zfs receive hangs in the kernel and cannot be killed; systemd must not wait for it for ever.
    died = time.monotonic()
    eventually("the next daemon", lambda: world.main_pid() not in {0, pid}, seconds=200)
    print(f"the next daemon came after {time.monotonic() - died:.0f} s")
    sh("systemctl", "start", "zvaultd")
    run = eventually("the catch-up run to end", ended, seconds=300, every=1)
    assert (run["trigger"], run["result"]) == ("catch-up", "ok")
    assert "resume to" in world.journal(), "what had arrived was not sent again"
    world.nothing_left()


def test_a_full_vault(tank):
    # ZFS keeps half of so small a pool for itself: about 110 MB are left.
    tank.size = "256M"
    tank.start()
    noise = Path("/tank/home/noise")
    for _ in range(2):
        world.noise(noise, 40)
        ok("run", "tank")
        noise.unlink()
        time.sleep(1.1)
    world.noise(noise, 40)
    fails("tank", "vault-full", "out of space", "make room")
    world.nothing_left()

    ok("vault", "up", "cold")
    assert len(snapshots("cold/lab/tank/home")) == 2
    oldest = snapshots("cold/lab/tank/home")[0]
    release_all("cold/lab/tank/home")
    sh("zfs", "destroy", f"cold/lab/tank/home@{oldest}")
    ok("vault", "down", "cold")
    converges()
    assert "interrupted receive" in world.journal(), "what had arrived was not sent again"


def test_the_daemon_killed_on_the_way_up_and_down(tank):
    tank.start()
    ok("run", "tank")
    seen = []
    for verb in ("up", "down"):
        for step in range(4):
            if verb == "down":
                assert act("up")
            done = kill_on_the_way(verb, step * 0.25)
            state = status()["vaults"][0]["state"]
            seen.append((verb, step * 0.25, "done" if done else "not done", state))
            # Half up is taken down; half down is, too. What had not begun stays as it was.
            assert state == verb if done else state in {"up", "down"}
            if state == "up":
                assert act("down")
            world.nothing_left()
    print(*seen, sep="\n")
    assert any(done == "not done" for _, _, done, _ in seen)
    converges()


def test_names(tank):
    sh("zfs", "create", "tank/name with  spaces")
    world.fill(Path("/tank/name with  spaces"), 4, count=2)
    tank.image = DISK / "vault ünïcode — disk.img"
    tank.configure()
    good = tank.config_text()
    for bad in ('[vault."kält"]\npool = "k"\n', '[backup."my tank"]\nsource = "tank"\nvault = "cold"\n'):
        world.CONFIG.write_text(good + bad)
        checked = ctl("check-config")
        assert checked.code == 2
        assert "zvault.toml:" in checked.err + checked.out
        assert bad.split('"')[1] in checked.err + checked.out
        print(checked.err)
    tank.start()
    converges(*DATASETS, "tank/name with  spaces")


def test_pools_exported_and_imported_by_hand(tank):
    tank.start()
    ok("vault", "up", "cold")
    eventually("nobody to look at the pool", exported)
    eventually("it is seen", lambda: status()["vaults"][0]["state"] == "partial")
    ok("run", "tank")
    eventually("it is up, for it is pinned", lambda: status()["vaults"][0]["state"] == "up")
    eventually("nobody to look at the pool", exported)
    ok("vault", "down", "cold")
    world.nothing_left()

    stranger = DISK / "stranger.img"
    sh("truncate", "-s", "128M", str(stranger))
    sh("zpool", "create", "-O", "mountpoint=none", "cold", str(stranger))
    fails("tank", "refused", "imported from other devices", str(stranger))
    up = ctl("vault", "up", "cold")
    assert up.code == 2
    assert "zpool export cold" in up.err
    ok("vault", "down", "cold")
    assert sh("zpool", "list", "-Ho", "health", "cold").strip() == "ONLINE", "it is not ours to export"
    sh("systemctl", "restart", "zvaultd")
    assert sh("zpool", "list", "-Ho", "health", "cold").strip() == "ONLINE"
    destroy = ["zpool", "destroy", "cold"]
    eventually("nobody to look at the pool", lambda: subprocess.run(destroy).returncode == 0)
    world.nothing_left()

    # The vault's own pool, but imported from its image: two ways to one disk would destroy it.
    loop = sh("losetup", "--find", "--show", str(tank.image)).strip()
    sh("zpool", "import", "-N", "-d", loop, "cold")
    fails("tank", "refused", "imported from other devices", loop)
    eventually("nobody to look at the pool", exported)
    sh("losetup", "--detach", loop)
    world.nothing_left()
    converges()
