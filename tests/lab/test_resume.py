"""Interrupted receives: gone on with where that can be, else given up with the reason; never in the way for ever."""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import subprocess
from pathlib import Path

import pytest
import world
from world import (
    World,
    ctl,
    destroy_held,
    events,
    eventually,
    get,
    metrics,
    noise,
    ok,
    release_all,
    sh,
    snapshot_hashes,
    snapshots,
    status,
)
from wounds import LABELS, blocks, smash

LAB = {"mem": "3G", "timeout": 2500}

END_RECORD = 312
"""Bytes of a stream's last record (dmu_replay_record_t, zfs_ioctl.h)."""

LAYOUT = 0
"""The object of a dataset that has all the others: zdb calls it DMU dnode."""

HOME, SECRET = "tank/home", "tank/secret"
VAULTED = "cold/lab/tank/home"
KEY = Path("/root/key")


class Cut(World):
    """One filesystem, and one encrypted; the vault is a pool that this host has."""

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        for pool in ("tank", "cold"):
            sh("truncate", "-s", "512M", str(world.DISK / f"{pool}.img"))
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(world.DISK / f"{pool}.img"))
        sh("zfs", "create", "-o", "recordsize=1M", HOME)
        noise(Path(f"/{HOME}/first"), 12)

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
up = "always"
transfers = 1

[backup.tank]
source = "tank"
vault = "cold"
keep = {{ }}
retries = 0
{self.backup_extra}
"""

    def reload(self, extra: str) -> None:
        self.backup_extra = extra
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture
def tank():
    it = Cut()
    it.clean()
    it.source()
    yield it
    it.clean()


def bytes_done() -> int:
    """How far the run is, without the second that zvaultctl takes to start."""
    return status()["backups"][0]["bytes_done"]


def snapname(number: int) -> str:
    return f"zvault_2026-01-0{number}T00:00:00Z"


def snapshot(number: int, dataset: str = HOME) -> str:
    """A snapshot as zvault makes them, in the past."""
    sh("zfs", "snapshot", f"{dataset}@{snapname(number)}")
    return f"{dataset}@{snapname(number)}"


def cut(send: list[str], mib: int, target: str = VAULTED) -> None:
    """A receive as zvault does it, cut off after so many MiB."""
    with subprocess.Popen(
        ["zfs", "send", *send], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as sender:
        assert sender.stdout is not None
        receive(sender.stdout.read(mib << 20), send[-1].partition("@")[0], target)
        sender.stdout.close()


def receive(beginning: bytes, source: str, target: str = VAULTED) -> None:
    """Receive the beginning of a stream, to be resumed; the record of its flags is that of -L -c -e."""
    record = f"org.zvault:sent={int(get(source, 'guid')):x}:Lce"
    properties = ["-o", "readonly=on", "-o", "canmount=noauto", "-o", record]
    subprocess.run(["zfs", "receive", "-s", "-u", *properties, target], input=beginning, capture_output=True)
    assert get(target, "receive_resume_token").startswith("1-")


def plan(dataset: str = HOME) -> dict:
    return next(row for row in ctl("plan", "tank", "-j").json()["datasets"] if row["dataset"] == dataset)


def run(code: int = 0) -> list[dict]:
    """A run's events."""
    done = ctl("run", "tank", "-j")
    assert done.code == code, done.out + done.err
    return events(ok("history", "-j").json()["runs"][0]["id"])


def kinds(told: list[dict], dataset: str = HOME) -> list[str]:
    return [one["kind"] for one in told if one["event"] == "transfer-started" and one["dataset"] == dataset]


def given_up(told: list[dict]) -> list[str]:
    """Why a run gave interrupted receives up, by the words that the metric uses."""
    reasons = [one["reason"] for one in told if one["event"] == "resume-aborted"]
    assert len(reasons) == sum("give up the interrupted receive" in str(one.get("text")) for one in told)
    return reasons


def arrived(*datasets: str) -> None:
    """Nothing is left of an interruption, and every file is there."""
    for dataset in datasets or (HOME,):
        there = f"cold/lab/{dataset}"
        assert get(there, "receive_resume_token") == "-"
        newest = snapshots(dataset)[-1]
        assert snapshots(there)[-1] == newest
        assert snapshot_hashes(f"{there}@{newest}") == snapshot_hashes(f"{dataset}@{newest}")
        held = sh("zfs", "holds", "-H", *[f"{dataset}@{one}" for one in snapshots(dataset)]).splitlines()
        assert [line.split("\t")[0] for line in held] == [f"{dataset}@{newest}"]


def test_a_stream_that_was_killed_goes_on_and_says_how_far_it_was(tank):
    tank.backup_extra = 'limit = "1M"'
    noise(Path(f"/{HOME}/more"), 36)  # it takes 48 s, so it is still on its way when it is killed
    tank.start()
    with subprocess.Popen(["zvaultctl", "run", "-q", "tank"], stderr=subprocess.DEVNULL) as running:
        eventually("some bytes", lambda: bytes_done() > 5 << 20)
        assert sh("pkill", "-e", "-KILL", "-f", "^zfs send "), "it is over"
    assert running.returncode == 1
    shown = plan()
    print(shown)
    assert shown["action"] == "resume"
    assert "M of 48" in shown["reason"], "so much of so much"
    tank.reload("")
    told = run()
    assert kinds(told)[0] == "resume"
    assert given_up(told) == []
    resumed = next(one for one in told if one["event"] == "transfer-finished" and one["dataset"] == HOME)
    assert resumed["bytes"] < 45 << 20, "only the rest"
    arrived()


def test_more_arrived_than_was_estimated(tank):
    """What is left is then some 2^64 for ZFS: zvault says that it is not known, and the run's end is written down."""
    tank.start()
    run()
    for number in range(40):
        Path(f"/{HOME}/{number}").write_text("a little")
    send = ["zfs", "send", "-L", "-c", "-e", "-i", f"@{snapshots(VAULTED)[-1]}", snapshot(2)]
    stream = subprocess.run(send, capture_output=True, check=True).stdout
    receive(stream[: -END_RECORD - 8], HOME)
    token = get(VAULTED, "receive_resume_token")
    assert int(sh("zfs", "send", "-nP", "-t", token).split()[-1]) >= 1 << 63, "this is what it is about"
    shown = plan()
    assert shown["action"] == "resume"
    assert "of 16.0E" not in shown["reason"]
    assert kinds(run())[0] == "resume"
    [last, *_] = ok("history", "-j").json()["runs"]
    assert last["result"] == "ok"
    assert last["bytes"] < 1 << 20
    arrived()


def test_what_the_token_was_for_is_gone_or_another(tank):
    tank.start()
    run()
    destroy_held(VAULTED)
    first = snapshot(1)
    cut(["-p", "-L", "-c", "-e", first], 4)
    sh("zfs", "destroy", first)
    assert "no longer exists" in plan()["changes"][0]
    told = run()
    assert (given_up(told), kinds(told)) == (["snapshot-gone"], ["full", "incremental"])
    arrived()

    # An increment, and a snapshot of the same name: only the GUID tells them apart.
    base = snapshots(HOME)[-1]
    noise(Path(f"/{HOME}/second"), 12)
    second = snapshot(2)
    cut(["-L", "-c", "-e", "-i", f"@{base}", second], 4)
    sh("zfs", "destroy", second)
    Path(f"/{HOME}/second").write_bytes(b"other")
    snapshot(2)
    told = run()
    assert (given_up(told), kinds(told)) == (["replaced"], ["incremental"])
    arrived()
    counted = {name: n for name, n in metrics().items() if name.startswith("zvault_resume_aborted") and n}
    assert counted == {
        'zvault_resume_aborted_total{backup="tank",reason="snapshot-gone"}': 1,
        'zvault_resume_aborted_total{backup="tank",reason="replaced"}': 1,
    }

    # Cut in the second of three snapshots that go in one stream: the token is for that one.
    base = snapshots(HOME)[-1]
    for number in (3, 4, 5):
        noise(Path(f"/{HOME}/file {number}"), 4)
        snapshot(number)
    cut(["-L", "-c", "-e", "-I", f"@{base}", f"{HOME}@{snapname(5)}"], 6)
    assert snapshots(VAULTED)[-1] == snapname(3)
    told = run()
    assert (given_up(told), kinds(told)) == ([], ["resume", "incremental"])
    assert snapshots(VAULTED)[-4:-1] == [snapname(3), snapname(4), snapname(5)]
    arrived()


def test_flags_that_changed_since(tank):
    tank.start()
    run()
    destroy_held("cold/lab")
    tank.reload("send = { large_blocks = false }")
    run()
    destroy_held(VAULTED)
    first = snapshot(1)
    cut(["-p", "-L", "-c", "-e", first], 4)
    assert plan()["changes"][0].endswith(f"{VAULTED}: it was begun with -L, and that is off now")
    told = run()
    assert (given_up(told), kinds(told)[0]) == (["flags"], "full")
    assert get(VAULTED, "org.zvault:sent").endswith(":ce")
    arrived()

    # What follows on something stays until the flags are set back, for without them nothing can follow.
    destroy_held("cold/lab")
    tank.reload("")
    run()
    noise(Path(f"/{HOME}/second"), 12)
    second = snapshot(2)
    cut(["-L", "-c", "-e", "-i", f"@{snapshots(VAULTED)[-1]}", second], 4)
    tank.reload("send = { large_blocks = false }")
    told = run(code=1)
    assert (given_up(told), kinds(told)) == ([], [])
    assert get(VAULTED, "receive_resume_token").startswith("1-")

    # How blocks travel makes no difference: it goes on.
    tank.reload("send = { compressed = false, embedded = false }")
    told = run()
    assert (given_up(told), kinds(told)[0]) == ([], "resume")
    arrived()


def test_a_token_without_w_for_what_is_encrypted(tank):
    tank.start()
    run()
    KEY.write_text("correct horse battery\n")
    encrypted = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{KEY}"]
    sh("zfs", "create", *encrypted, SECRET)
    noise(Path(f"/{SECRET}/first"), 12)
    first = snapshot(1, SECRET)
    cut(["-L", "-c", first], 4, f"cold/lab/{SECRET}")
    assert plan(SECRET)["changes"][0].endswith(": it was begun without -w, and goes raw now")
    told = run()
    assert (given_up(told), kinds(told, SECRET)[0]) == (["flags"], "full")
    there = f"cold/lab/{SECRET}"
    assert get(there, "encryption") == "aes-256-gcm"
    assert get(there, "receive_resume_token") == "-"
    assert snapshots(there)[-1] == snapshots(SECRET)[-1]

    # One that is raw goes on.
    noise(Path(f"/{SECRET}/second"), 12)
    second = snapshot(2, SECRET)
    cut(["-w", "-i", f"@{snapshots(there)[-1]}", second], 4, there)
    told = run()
    assert (given_up(told), kinds(told, SECRET)[0]) == ([], "resume")
    assert get(there, "receive_resume_token") == "-"


@pytest.mark.parametrize("spoil", ["snapshot", "abort"])
def test_a_token_that_zfs_does_not_take_after_all(tank, spoil):
    # Both were good when the run was planned; then one changes while the other, bigger, is sent.
    sh("zfs", "create", "tank/slow")
    tank.start()
    run()
    noise(Path("/tank/slow/file"), 40)
    noise(Path(f"/{HOME}/second"), 8)
    second = snapshot(2)
    cut(["-L", "-c", "-e", "-i", f"@{snapshots(VAULTED)[-1]}", second], 4)
    tank.reload('limit = "1M"')
    with subprocess.Popen(["zvaultctl", "run", "-q", "tank"]) as running:
        eventually("the first stream", lambda: bytes_done() > 2 << 20)
        assert get(VAULTED, "receive_resume_token").startswith("1-")
        if spoil == "snapshot":
            sh("zfs", "snapshot", f"{VAULTED}@by-hand")
        else:
            sh("zfs", "receive", "-A", VAULTED)
        tank.reload('limit = "1G"')
    told = events(ok("history", "-j").json()["runs"][0]["id"])
    print(*told, sep="\n")
    assert running.returncode == 0, "the same run sends it all the same"
    assert given_up(told) == ["refused"]
    assert kinds(told)[0] == "resume"
    assert set(kinds(told)[1:]) == {"incremental"}
    assert [one for one in told if one["event"] == "dataset-failed"] == []
    arrived()
    arrived("tank/slow")


def test_what_a_waiting_receive_keeps_is_told(tank):
    tank.start()
    run()
    noise(Path(f"/{HOME}/second"), 8)
    base = snapshots(VAULTED)[-1]
    cut(["-L", "-c", "-e", "-i", f"@{base}", snapshot(2)], 4)
    from zvault.ops.retention.prune import HoldExplainer
    from zvault.system.process.runner import HostRunner
    from zvault.zfs.client import Zfs

    name = f"{VAULTED}@{base}"
    release_all(VAULTED)  # it is the newest, too
    why = asyncio.run(HoldExplainer(Zfs(HostRunner()))([name]))
    assert why == {name: f"a receive into {VAULTED} is under way, or waits to be resumed"}
    assert (
        "dependent clones"
        in subprocess.run(["zfs", "destroy", name], capture_output=True, text=True, check=False).stderr
    )


def hidden(image: Path, wanted: bytes) -> int:
    """Where in a pool's image such bytes lie."""
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as seen:
        at = seen.find(wanted)
    assert at > 0
    return at


def write_at(image: Path, at: int, data: bytes) -> None:
    """Change a pool's image behind its back."""
    with image.open("r+b") as file:
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def test_errors_in_what_is_half_received_are_no_damage_and_nobody_asks_the_kernel_for_names(tank):
    """Asked for names in this state OpenZFS crashes the kernel, and with it the guest of this test."""
    tank.backup_extra = 'limit = "1M"'
    tank.start()
    with subprocess.Popen(["zvaultctl", "run", "-q", "tank"], stderr=subprocess.DEVNULL) as running:
        eventually("some bytes", lambda: bytes_done() > 5 << 20)
        assert sh("pkill", "-e", "-KILL", "-f", "^zfs send "), "it is over"
    assert running.returncode == 1
    assert get(VAULTED, "inconsistent") == "1"
    image, first = world.DISK / "cold.img", Path(f"/{HOME}/first").read_bytes()[:64]
    at = hidden(image, first)
    write_at(image, at, bytes(len(first)))
    sh("zpool", "scrub", "-w", "cold")
    assert "1 data errors" in sh("zpool", "status", "cold")

    told = eventually("the errors are seen", lambda: errors() if errors()["unexplained"] else None)
    assert (told["errors"], told["half_received"], told["damages"]) == (0, [VAULTED], [])
    assert "half-received-errors" in findings()
    assert "damaged" not in findings()
    done = ok("scrub", "cold")
    assert VAULTED in done.out + done.err
    assert "no damage is known" in done.out + done.err

    # As after an outage: what had no answer then is well by now.
    write_at(image, at, first)
    tank.reload("")
    assert kinds(run())[0] == "resume"
    arrived()
    eventually("the errors are read again", lambda: not (errors()["unexplained"] or errors()["errors"]))
    assert "No known data errors" in sh("zpool", "status", "cold")
    assert "damaged data" not in world.journal(), "the advice may say what becomes of it where it is damaged"
    assert not re.search(r"Oops|BUG:|Kernel mode fault|PANIC", sh("dmesg"))


def test_what_is_half_received_and_damaged_for_good_is_given_up_once(tank):
    """Its layout is bad in every copy: to resume it breaks off at the same block each time."""
    first = snapshot(1)
    tank.start()
    for parent in ("cold/lab", "cold/lab/tank"):
        sh("zfs", "create", "-o", "readonly=on", "-o", "canmount=off", parent)
        sh("zfs", "set", f"org.zvault:placeholder={parent}", parent)
    cut(["-p", "-L", "-c", "-e", first], 6)
    sh("zpool", "set", "cachefile=none", "cold")
    sh("zpool", "sync", "cold")
    bad = [copy for block in blocks(VAULTED, LAYOUT) for copy in block]
    sh("systemctl", "stop", "zvaultd")
    sh("zpool", "export", "cold")
    smash(world.DISK / "cold.img", *[(LABELS + offset, size) for offset, size in bad])
    sh("zpool", "import", "-N", "-d", str(world.DISK), "cold")
    sh("systemctl", "start", "zvaultd")

    told = run()
    print(*told, sep="\n")
    assert (given_up(told), kinds(told)[:2]) == (["damaged"], ["resume", "full"])
    assert [one for one in told if one["event"] == "dataset-failed"] == []
    arrived()
    arrived("tank")
    assert kinds(run())[0] == "incremental", "and that was all"
    # What cannot be read cannot be freed either: that is told for what it is.
    eventually("the errors are read again", lambda: not errors()["unexplained"])
    done = ctl("scrub", "cold")
    assert "in what was destroyed" in done.out + done.err
    assert "zfs_free_leak_on_eio" in done.out + done.err
    assert not re.search(r"Oops|BUG:|Kernel mode fault|PANIC", sh("dmesg"))


def findings() -> set[str]:
    """What is wrong with the vault."""
    return {one["condition"] for one in status()["vaults"][0]["verdict"]["findings"]}


def errors() -> dict:
    """What the daemon knows of the vault's errors."""
    return status()["vaults"][0]["scrub"] or {"unexplained": 0, "errors": 0}
