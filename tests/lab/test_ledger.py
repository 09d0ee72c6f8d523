"""The flags that datasets were sent with: on record on the vault, kept to, and what ZFS does where they are not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import world
from world import World, ctl, destroy_held, fill, get, noise, ok, sh, snapshot_hashes, snapshots

LAB = {"mem": "3G", "timeout": 1000}

BIG, HOME, SECRET, VOLUME = "tank/big", "tank/home", "tank/secret", "tank/vol"
SENT = "org.zvault:sent"
KEY = Path("/root/key")


class Flagged(World):
    """Large records, small ones, an encrypted filesystem and a volume; the vault is a pool that this host has."""

    send: str = ""

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        for pool in ("tank", "cold"):
            sh("truncate", "-s", "512M", str(world.DISK / f"{pool}.img"))
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(world.DISK / f"{pool}.img"))
        KEY.write_text("correct horse battery\n")
        sh("zfs", "create", "-o", "recordsize=1M", BIG)
        sh("zfs", "create", HOME)
        sh(
            *("zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase"),
            *("-o", f"keylocation=file://{KEY}", "-o", "recordsize=1M", SECRET),
        )
        sh("zfs", "create", "-V", "4M", VOLUME)
        for dataset in (BIG, SECRET):
            noise(Path(f"/{dataset}/noise"), 5)
        fill(Path(f"/{HOME}"), 1)

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
up = "always"

[backup.tank]
source = "tank"
exclude = ["tank/*-back"]
vault = "cold"
keep = {{ }}
retries = 0
send = {{ {self.send} }}
{self.backup_extra}
"""

    def reload(self, send: str, extra: str = "") -> None:
        self.send, self.backup_extra = send, extra
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture
def tank():
    it = Flagged()
    it.clean()
    it.source()
    yield it
    it.clean()


def change(*datasets: str) -> None:
    """Write into the middle of a large file, so that the blocks around it are not sent again."""
    for dataset in datasets:
        with Path(f"/{dataset}/noise").open("r+b") as file:
            file.seek(2 << 20)
            file.write(b"changed" * 9999)


def on_record(dataset: str) -> str:
    """The letters on the vault's record of a source dataset, which must name that dataset."""
    guid, letters = get(f"cold/lab/{dataset}", SENT).split(":")
    assert int(guid, 16) == int(get(dataset, "guid"))
    assert sh("zfs", "get", "-Ho", "source", SENT, f"cold/lab/{dataset}").strip() == "local"
    return letters


def planned() -> dict[str, dict]:
    return {row["dataset"]: row for row in ctl("plan", "tank", "-j").json()["datasets"]}


def same(*datasets: str) -> None:
    """Every file of every snapshot on the vault is that of the source."""
    for dataset in datasets:
        for snapname in snapshots(f"cold/lab/{dataset}"):
            assert snapshot_hashes(f"cold/lab/{dataset}@{snapname}") == snapshot_hashes(
                f"{dataset}@{snapname}"
            )


def piped(send: list[str], receive: list[str]) -> str:
    """zfs send into zfs receive; what they complained of."""
    with subprocess.Popen(send, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as sender:
        return subprocess.run(
            receive, stdin=sender.stdout, capture_output=True, text=True, check=False
        ).stderr


def test_flags_are_on_record_and_stay_on_the_vault(tank):
    # The source may be a vault itself, and have such a record of its own.
    sh("zfs", "set", f"{SENT}=1:w", HOME)
    tank.start()
    ok("run", "tank")
    assert {name: on_record(name) for name in ("tank", BIG, HOME, SECRET, VOLUME)} == {
        "tank": "Lce",
        BIG: "Lce",
        HOME: "Lce",
        SECRET: "Lcw",
        VOLUME: "Lce",
    }
    assert get(BIG, SENT) == "-", "nothing is written to the source"
    for dataset in (HOME, SECRET):
        ok("restore", "tank", dataset, f"{dataset}-back")
        assert get(f"{dataset}-back", SENT) == "-"

    # What may change does, and is on record. -w of what is not encrypted is -L -c -e.
    tank.reload("compressed = false, embedded = false")
    change(BIG, SECRET)
    ok("run", "tank")
    assert (on_record(BIG), on_record(SECRET)) == ("L", "Lcw")
    tank.reload("raw = true, large_blocks = false, compressed = false, embedded = false")
    change(BIG, SECRET)
    ok("run", "tank")
    assert (on_record(BIG), on_record(SECRET)) == ("Lce", "Lcw")
    same(BIG, HOME)


def refused(dataset: str, *words: str) -> None:
    """A run refuses to send a dataset, for these reasons, and sends nothing of it."""
    row = planned()[dataset]
    assert row["action"] == "conflict"
    assert all(word in row["reason"] + row["next"] for word in words), row
    before = snapshots(f"cold/lab/{dataset}")
    run = ctl("run", "tank")
    assert run.code == 1
    assert all(word in run.err + run.out for word in words), run
    assert snapshots(f"cold/lab/{dataset}") == before


def test_large_blocks_cannot_be_turned_off_nor_on(tank):
    tank.start()
    ok("run", "tank")
    change(BIG, SECRET)
    tank.reload("large_blocks = false")
    refused(BIG, "OpenZFS #6224", "received with -L", "large_blocks = true")
    assert len(snapshots(f"cold/lab/{SECRET}")) == 2, "what is encrypted goes raw, with or without -L"

    # What it is refused for: ZFS would not take it. Without a record that is told when it comes to it.
    sh("zfs", "inherit", SENT, f"cold/lab/{BIG}")
    assert planned()[BIG]["action"] == "incremental", "its parent's record is not its own"
    run = ctl("run", "tank")
    assert run.code == 1
    assert "requires -L" in run.err
    assert "OpenZFS #6224" in run.err

    # Set back, it goes on, and has a record again.
    tank.reload("")
    history = ok("run", "tank")
    print(history.out, history.err)
    assert f"cold/lab/{BIG} (-L -c -e)" in world.journal()
    assert on_record(BIG) == "Lce"
    same(BIG, HOME)

    # The other way round: begun without.
    destroy_held(f"cold/lab/{BIG}")
    tank.reload("large_blocks = false")
    ctl("run", "tank")
    assert on_record(BIG) == "ce"
    change(BIG)
    tank.reload("")
    refused(BIG, "OpenZFS #6224", "received without -L", "large_blocks = false")

    # Whoever wants it has it sent anew beside what there is.
    tank.reload("", 'on_conflict = "new-dataset"')
    ok("run", "tank")
    assert on_record(BIG) == "Lce"
    aside = [name for name in sh("zfs", "list", "-Ho", "name", "-r", "cold").split() if "big_zvault" in name]
    assert len(aside) == 1
    assert get(aside[0], SENT).endswith(":ce")
    same(BIG)


def test_raw_and_other_streams_do_not_follow_on_each_other(tank):
    # Somebody sent this one once without -w: what is encrypted on the source is not on the vault.
    tank.start()
    snapname = "zvault_2026-01-01T00:00:00Z"
    sh("zfs", "snapshot", f"{SECRET}@{snapname}")
    sh("zfs", "create", "-p", "cold/lab/tank")
    sh("zfs", "set", "readonly=on", "cold/lab/tank")
    assert (
        piped(["zfs", "send", f"{SECRET}@{snapname}"], ["zfs", "receive", "-u", f"cold/lab/{SECRET}"]) == ""
    )
    sh("zfs", "destroy", "cold/lab/tank@x", check=False)
    assert get(f"cold/lab/{SECRET}", "encryption") == "off"
    change(SECRET)
    refused(SECRET, "OpenZFS #8308", "not encrypted")
    # So it is: ZFS would not take it.
    sh("zfs", "snapshot", f"{SECRET}@next")
    said = piped(
        ["zfs", "send", "-w", "-i", f"@{snapname}", f"{SECRET}@next"],
        ["zfs", "receive", "-u", f"cold/lab/{SECRET}"],
    )
    assert "raw receive on top of existing unencrypted" in said
