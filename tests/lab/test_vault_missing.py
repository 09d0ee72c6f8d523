"""A vault whose storage is not there: never a new, empty one in its place, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import world
from world import DISK, World, ctl, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 1500}

DISK_POINT = Path("/mnt/slow disk")


@pytest.fixture
def tank() -> Iterator[World]:
    sh("umount", str(DISK_POINT), check=False)
    it = World(keep="{ source = { last = 3 }, vault = { last = 9 } }")
    it.clean()
    it.source()
    yield it
    it.clean()
    sh("umount", str(DISK_POINT), check=False)


def bases() -> list[str]:
    """zvault's bookmarks on the source."""
    out = sh("zfs", "list", "-Ho", "name", "-t", "bookmark", "-r", "tank")
    return [line for line in out.splitlines() if "#zvault_" in line]


def fails(*argv: str, words: tuple[str, ...]) -> None:
    """zvaultctl does not do it and says so."""
    done = ctl(*argv)
    assert done.code != 0, f"{argv}: {done.out}{done.err}"
    told = " ".join((done.out + done.err).split())
    for word in words:
        assert word in told, f"{argv}: {word!r} is not in {told}"
    world.nothing_left()


def test_an_image_that_was_moved_away_is_missed_and_not_made_anew(tank: World):
    tank.start()
    ok("run", "tank")
    before, away = bases(), DISK / "away.img"
    assert before
    tank.image.rename(away)

    words = ("there is no file", "the vault is not new", "begin-anew cold")
    fails("run", "tank", words=words)
    fails("vault", "up", "cold", words=words)
    fails("vault", "create", "cold", "--yes", words=("no new pool is made", "begin-anew cold"))
    assert not tank.image.exists(), "nothing is made in its place"
    assert ctl("status").code != 0, "all is not well"
    assert bases() == before

    # Something blank in its place is no new vault either; nor while what was noted on this host is lost.
    sh("truncate", "-s", tank.size, str(tank.image))
    fails("run", "tank", words=("they are blank", "the vault is not new", "begin-anew cold"))
    sh("systemctl", "stop", "zvaultd")
    sh("rm", "-rf", "/var/lib/zvault")
    sh("systemctl", "start", "zvaultd")
    fails("run", "tank", words=("tank has holds or bookmarks for it", "begin-anew cold"))
    assert not any(tank.image.read_bytes()), "it stays blank"

    away.rename(tank.image)
    ok("run", "tank")
    assert set(snapshots("tank/home")[:1]) <= set(snapshots_of_vault())
    world.nothing_left()


def snapshots_of_vault() -> list[str]:
    ok("vault", "up", "cold")
    found = snapshots("cold/lab/tank/home")
    ok("vault", "down", "cold")
    return found


def test_begin_anew_asks_and_forgets_and_releases_nothing(tank: World):
    tank.start()
    assert "it is new" in ok("vault", "begin-anew", "cold", "--yes").out
    ok("vault", "up", "cold")
    guid = f"{int(sh('zpool', 'get', '-Hpo', 'value', 'guid', 'cold')):x}"
    ok("vault", "down", "cold")
    ok("run", "tank")
    before = bases()
    tank.image.unlink()
    shown = ctl("vault", "begin-anew", "cold")
    assert shown.code == 2
    assert f"pool {guid}: " in shown.out
    assert "nothing was forgotten" in shown.err
    fails("run", "tank", words=("begin-anew cold",))

    done = ok("vault", "begin-anew", "cold", "--yes")
    assert "the next run makes its pool" in done.out
    assert not tank.image.exists()
    assert bases() == before
    ok("run", "tank")
    assert set(before) < set(bases()), "the old bases stay, beside the new ones"
    held = ok("holds", "-H", "-o", "vault_guid,state").out.split("\n")
    assert {line for line in held if line.startswith(guid)} == {f"{guid}\tunknown"}
    # From now on the new pool is the vault's.
    tank.image.unlink()
    fails("run", "tank", words=("begin-anew cold",))


def test_a_disk_that_is_not_mounted(tank: World):
    DISK_POINT.mkdir(exist_ok=True)
    sh("truncate", "-s", "2G", str(DISK / "ext4.img"))
    sh("mkfs.ext4", "-q", str(DISK / "ext4.img"))
    mount = ("mount", "-o", "loop", str(DISK / "ext4.img"), str(DISK_POINT))
    tank.image = DISK_POINT / "vault.img"
    sh(*mount)
    tank.start()
    ok("run", "tank")
    sh("umount", str(DISK_POINT))
    fails("run", "tank", words=("there is no file", "mount its disk"))
    assert list(DISK_POINT.iterdir()) == []

    # One that is said to be needed is waited for, also by a vault that is new.
    needed = 'requires_mount = "/mnt/slow disk"\ntimeout = "20s"'
    text = tank.config_text().replace('timeout = "20s"', needed)
    extra = (
        '[vault.second]\npool = "second"\ncreate = true\n[[vault.second.device]]\n'
        f'nbd = "nbdkit:file \'{DISK_POINT}/second.img\'"\nsize = "256M"\n{needed}\n'
        '[backup.second]\nsource = "tank/home"\nvault = "second"\nsnapshot = { prefix = "second" }\nretries = 0\n'
    )
    world.CONFIG.write_text(text + extra)
    sh("systemctl", "restart", "zvaultd")
    for name in ("tank", "second"):
        fails("run", name, words=("nothing is mounted on /mnt/slow disk", "mount it"))
    fails("vault", "create", "second", "--yes", words=("nothing is mounted on /mnt/slow disk",))
    assert list(DISK_POINT.iterdir()) == []
    sh(*mount)
    ok("run", "tank")
    ok("run", "second")
    sh("systemctl", "stop", "zvaultd")


def test_what_reads_makes_nothing(tank: World):
    tank.start()
    for argv in (
        ("plan", "tank"),
        ("prune", "tank", "-n"),
        ("find", "tank", "*.txt"),
        ("verify", "tank"),
        ("scrub", "cold"),
        ("restore", "tank", "tank/home", "tank/back", "-n"),
        ("restore", "tank", "tank/nix", "tank/back"),
    ):
        done = ctl(*argv)
        assert done.code != 0, f"{argv}: {done.out}{done.err}"
        assert not tank.image.exists(), argv
        world.nothing_left()
    ok("run", "tank")
