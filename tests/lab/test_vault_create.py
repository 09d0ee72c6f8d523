"""Vaults of several devices, and making one: shown, asked, and never on anything that holds anything."""

import contextlib
import hashlib
import os
import pty
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import world
from world import DISK, METRICS, World, ctl, eventually, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2000}

IMAGES = {"data-a": "256M", "data-b": "256M", "special-a": "128M", "special-b": "128M"}


@dataclass
class Several(World):
    """A vault of two data devices that mirror each other, and two special ones."""

    def config_text(self) -> str:
        devices = "".join(
            f'[[vault.cold.device]]\nnbd = "nbdkit:file {DISK}/{name}"\nsize = "{size}"\ntimeout = "20s"\n'
            f'vdev = "{name.split("-")[0]}"\nmirror = "a"\n'
            for name, size in IMAGES.items()
        )
        return (
            f'[daemon]\nmetrics = "{METRICS}"\nhost = "lab"\n'
            '[vault.cold]\npool = "cold"\nspecial_small_blocks = "32K"\n'
            f'{devices}[backup.tank]\nsource = "tank/home"\nvault = "cold"\n'
            f'[vault.plain]\npool = "plain"\n{self.extra}'
        )


@pytest.fixture
def tank() -> Iterator[Several]:
    it = Several()
    it.clean()
    it.source()
    yield it
    it.clean()


def digests() -> dict[str, str]:
    return {name: hashlib.sha256((DISK / name).read_bytes()).hexdigest() for name in IMAGES}


def allocated() -> dict[str, int]:
    """Bytes on each top-level vdev."""
    rows = [line.split("\t") for line in sh("zpool", "list", "-vHp", "cold").splitlines()]
    return {row[1]: int(row[3]) for row in rows if len(row) > 3 and row[1].startswith("mirror-")}


def test_a_vault_of_mirrors_is_shown_asked_for_and_made(tank: Several):
    tank.start()
    missing = ctl("run", "tank")
    assert missing.code == 1
    assert "zvaultctl vault create cold" in missing.err
    assert not any((DISK / name).exists() for name in IMAGES)

    shown = ok("vault", "create", "cold", "-n")
    print(shown.out)
    assert f"truncate --size=268435456 -- {DISK}/data-a" in shown.out
    assert f"nbdkit -f -U /run/zvault/device/cold-3.sock file {DISK}/special-b" in shown.out
    assert "cold mirror cold-0 cold-1 special mirror cold-2 cold-3" in shown.out
    assert "-O special_small_blocks=32768" in shown.out
    unasked = ctl("vault", "create", "cold")
    assert unasked.code == 2
    assert "'zvaultctl vault create cold --yes' does it" in unasked.err
    assert not any((DISK / name).exists() for name in IMAGES)
    world.nothing_left()

    made = ok("vault", "create", "cold", "--yes")
    assert "pool cold is made; vault cold is down" in made.out
    world.nothing_left()
    before = digests()
    again = ctl("vault", "create", "cold", "--yes")
    assert again.code == 2
    assert "no new pool is made for vault 'cold'" in again.err
    assert "begin-anew cold" in again.err
    assert digests() == before, "not a byte was changed"
    world.nothing_left()


def on_a_terminal(answer: str, *argv: str) -> tuple[int, str]:
    """zvaultctl as one who types sees it: its status and all that stands on the terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["zvaultctl", *argv], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        with contextlib.suppress(OSError):  # EIO: it has ended
            while data := os.read(ours, 4096):
                shown += data
                if b"[y/N]" in shown and answer:
                    os.write(ours, f"{answer}\n".encode())
                    answer = ""
        return process.wait(240), shown.decode()
    finally:
        process.kill()
        os.close(ours)


def test_a_terminal_is_asked_and_no_means_no(tank: Several):
    tank.start()
    for name, size in IMAGES.items():
        sh("truncate", "-s", size, str(DISK / name))
    before = digests()
    code, shown = on_a_terminal("n", "vault", "create", "cold")
    assert code == 2, shown
    assert "zpool create" in shown
    assert shown.index("zpool create") < shown.index("Do this? [y/N]") < shown.index("nothing was made")
    assert digests() == before, "not a byte was changed"
    world.nothing_left()
    code, shown = on_a_terminal("y", "vault", "create", "cold")
    assert code == 0, shown
    assert "pool cold is made" in shown
    assert digests() != before
    ok("vault", "up", "cold")
    ok("vault", "down", "cold")


def told_paths() -> list[str]:
    """Where the devices are: each under the lowest number that was free, and that nobody looked at just then."""
    return [device["path"] for device in world.status()["vaults"][0]["devices"]]


def test_a_vault_of_mirrors_is_used_and_survives_half_of_each(tank: Several):
    tank.start()
    ok("vault", "create", "cold", "--yes")
    ok("vault", "up", "cold")
    layout = sh("zpool", "status", "-P", "cold").split()
    paths = eventually("all devices to be told", lambda: all(found := told_paths()) and found)
    wanted = ["mirror-0", *paths[:2], "special", "mirror-1", *paths[2:]]
    assert len(set(wanted)) == 7
    assert [word for word in layout if word in wanted] == wanted
    assert get("cold", "special_small_blocks") == "32768"
    busy = ctl("vault", "create", "cold", "--yes")
    assert busy.code == 1
    assert "is up" in busy.err

    sh("zfs", "set", "recordsize=16K", "tank/home")
    world.noise(Path("/tank/home/small"), 12)
    sh("zfs", "set", "recordsize=128K", "tank/home")
    world.noise(Path("/tank/home/big"), 24)
    was = allocated()
    ok("run", "tank")
    grew = {name: size - was[name] >> 20 for name, size in allocated().items()}
    print(grew)
    assert 11 < grew["mirror-1"] < 20, "the blocks of 16K"
    assert grew["mirror-0"] > 23, "the larger ones"
    snapname = snapshots("tank/home")[-1]
    there = world.snapshot_hashes(f"cold/lab/tank/home@{snapname}")
    assert there == world.snapshot_hashes(f"tank/home@{snapname}")

    # One side of each mirror is lost while the vault is down: the pool has all that it had.
    ok("vault", "down", "cold")
    world.nothing_left()
    for name in ("data-b", "special-a"):
        (DISK / name).unlink()
    missing = ctl("vault", "up", "cold")
    assert missing.code != 0
    assert f"its mirror is lost: truncate --size=268435456 -- {DISK}/data-b" in " ".join(missing.err.split())
    world.nothing_left()
    for name in ("data-b", "special-a"):
        sh("truncate", "-s", IMAGES[name], str(DISK / name))
    assert ctl("vault", "up", "cold").code == 1, "it is up, and not well"
    eventually("it to be told", lambda: world.status()["vaults"][0]["health"] == "DEGRADED")
    assert world.snapshot_hashes(f"cold/lab/tank/home@{snapname}") == there
    time.sleep(1.1)
    ok("vault", "down", "cold")
    world.nothing_left()


def test_what_cannot_be_made(tank: Several):
    tank.extra = (
        f'[vault.full]\npool = "full"\n[[vault.full.device]]\nnbd = "nbdkit:file {DISK}/new"\nsize = "128M"\n'
        f'[[vault.full.device]]\nnbd = "nbdkit:file {DISK}/tank.img"\n'
    )
    tank.start()
    plain = ctl("vault", "create", "plain", "-n")
    assert plain.code == 2
    assert "no devices in zvault.toml" in plain.err
    assert ctl("vault", "create", "nix", "-n").code == 2
    # It is busy for as long as anybody asks it for anything, and the daemon does so now and then.
    eventually(
        "nobody to look at the pool", lambda: subprocess.run(["zpool", "export", "tank"]).returncode == 0
    )
    before = hashlib.sha256((DISK / "tank.img").read_bytes()).hexdigest()
    full = ctl("vault", "create", "full", "--yes")
    assert full.code == 2
    assert 'zfs_member "tank"' in full.err
    assert hashlib.sha256((DISK / "tank.img").read_bytes()).hexdigest() == before
    assert not any((DISK / "new").read_bytes()), "nor was the blank one touched"
    world.nothing_left()


KEY = Path("/etc/zvault-lab.key")
MARKER = b"what nobody may read on the vault's device " * 3


@dataclass
class Encrypted(World):
    """A vault of one device whose pool is encrypted, by ``encryption``."""

    encryption: str = f'encryption = {{ key = "{KEY}" }}'

    def config_text(self) -> str:
        self.vault_extra = f"create = true\n{self.encryption}"
        return super().config_text()


@pytest.fixture
def sealed() -> Iterator[Encrypted]:
    it = Encrypted()
    it.clean()
    KEY.unlink(missing_ok=True)
    it.source()
    yield it
    it.clean()
    KEY.unlink(missing_ok=True)


def on_device(it: World, what: bytes) -> bool:
    return what in it.image.read_bytes()


def cannot_come_up(words: str) -> None:
    refused = ctl("vault", "up", "cold")
    assert refused.code != 0
    assert words in " ".join(refused.err.split()), refused.err
    world.nothing_left()


def write_key(text: str) -> None:
    KEY.touch(mode=0o600)
    KEY.write_text(text)


def same_as_source(name: str, there: str) -> None:
    snapname = snapshots(there)[-1]
    assert world.snapshot_hashes(f"{there}@{snapname}") == world.snapshot_hashes(f"{name}@{snapname}")


@pytest.mark.timeout(900)
def test_an_encrypted_pool_from_its_making_to_a_restore(sealed: Encrypted):
    right, wrong = "a7" * 32, "b8" * 32
    sh("zfs", "set", "compression=off", "com.example:note=kept", "tank/home")
    Path("/tank/home/marked").write_bytes(MARKER * 2000)
    write_key("00" * 16)
    make_secret()
    KEY.unlink()
    sealed.start()
    cannot_come_up("cannot be read")
    write_key("no key at all")
    cannot_come_up("holds no key")
    write_key(right)
    shown = ctl("vault", "create", "cold", "-n").out
    assert "encryption=aes-256-gcm" in shown
    assert right not in shown
    ok("run", "tank")
    world.nothing_left()
    assert not on_device(sealed, MARKER)

    write_key(wrong)
    cannot_come_up("cannot be opened with the key")
    KEY.unlink()
    cannot_come_up("cannot be read")
    write_key(right)
    ok("vault", "up", "cold")
    for name in ("cold", "cold/lab/tank/home", "cold/lab/tank/vol"):
        assert (get(name, "encryptionroot"), get(name, "keystatus")) == ("cold", "available")
    assert get("cold/lab/tank/secret", "encryptionroot") == "cold/lab/tank/secret", (
        "raw: it keeps its own key"
    )
    assert get("cold/lab/tank/secret", "keystatus") == "unavailable"
    same_as_source("tank/home", "cold/lab/tank/home")

    # On from there, in each way; and back without the vault's key.
    Path("/tank/home/more").write_bytes(MARKER * 3000)
    Path("/tank/secret/more").write_bytes(b"more")
    ok("run", "tank")
    same_as_source("tank/home", "cold/lab/tank/home")
    proven = ctl("verify", "tank", "--level", "full")
    assert "5 datasets" in proven.out, proven
    assert "the same on both sides" in proven.out
    assert "tank/secret is not proven" in proven.out + proven.err, "it has its own key, which is not here"
    assert not on_device(sealed, MARKER)
    ok("restore", "tank", "tank/home", "tank/back")
    assert get("tank/back", "encryption") == "off"
    assert get("tank/back", "com.example:note") == "kept"
    assert get("tank/back", "compression") == "off"
    sh("zfs", "mount", "tank/back", check=False)
    snapname = snapshots("tank/back")[-1]
    assert world.snapshot_hashes(f"tank/back@{snapname}") == world.snapshot_hashes(f"tank/home@{snapname}")
    ok("restore", "tank", "tank/secret", "tank/secret back")
    assert get("tank/secret back", "encryptionroot") == "tank/secret back"
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")
    ok("vault", "down", "cold")
    world.nothing_left()
    assert not any(one in world.journal() for one in (right, wrong))


def make_secret() -> None:
    """A dataset of the source that has a key of its own."""
    phrase = Path("/tank/home/../phrase")
    phrase.write_text("a long enough phrase\n")
    own = (
        "-o",
        "encryption=on",
        "-o",
        "keyformat=passphrase",
        "-o",
        f"keylocation=file://{phrase.resolve()}",
    )
    sh("zfs", "create", *own, "tank/secret")
    Path("/tank/secret/file").write_bytes(b"secret" * 1000)


def test_a_pool_that_is_not_encrypted_is_refused_and_marked_streams_are_seen_on_it(sealed: Encrypted):
    sealed.encryption = ""
    sh("zfs", "set", "compression=off", "tank/home")
    Path("/tank/home/marked").write_bytes(MARKER * 2000)
    sealed.start()
    ok("run", "tank")
    world.nothing_left()
    assert on_device(sealed, MARKER), "else the other test shows nothing"
    sealed.encryption = f'encryption = {{ key = "{KEY}" }}'
    write_key("a7" * 32)
    sealed.configure()
    sh("systemctl", "reload", "zvaultd")
    eventually(
        "it is refused", lambda: "is not encrypted" in " ".join(ctl("vault", "up", "cold").err.split())
    )
    world.nothing_left()
