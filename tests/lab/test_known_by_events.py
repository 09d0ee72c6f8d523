"""What zvaultd knows of pools by OpenZFS's events is what a listing would see, and a run of nothing lists little."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from libzfs_core import lzc_create
from world import World, ctl, eventually, ok, sh, shell, snapshots

from zvault.core.errors import NotFound
from zvault.core.model import Tree
from zvault.core.snapshot_list import SnapshotList
from zvault.system.process.runner import HostRunner
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.client import Zfs
from zvault.zfs.listing_cache_files import ListingCacheFiles

LAB = {"mem": "3G", "timeout": 900}

PROGRAMS = Path("/usr/local/sbin")
STARTED = Path("/run/started")
COUNTED = ("zfs", "zpool", "systemctl", "cat", "nbd-client", "nbdkit", "grep")

NOTE = Path("/run/events-kept")
"""Where the feed's child writes how many events the kernel kept."""

SPARE = ["tank/x", "tank/y", "tank/home/x", "tank/x/x"]


@pytest.fixture
def tank() -> Iterator[World]:
    it = World(vault_extra='create = true\nup = "always"')
    it.clean()
    it.source()
    yield it
    for name in COUNTED:
        (PROGRAMS / name).unlink(missing_ok=True)
    it.clean()


@asynccontextmanager
async def followed() -> AsyncIterator[tuple[Zfs, ChangeFeed]]:
    """A client that knows by events, as zvaultd's."""
    feed = ChangeFeed(NOTE)
    client = Zfs(HostRunner(), feed=feed)
    try:
        yield client, feed
    finally:
        await client.close()
        await feed.close()


async def tree(client: Zfs, root: str, *, sizes: bool) -> Tree | None:
    try:
        return await client.tree(root, sizes=sizes)
    except NotFound:
        return None


def bare(found: Tree | None) -> Tree | None:
    """Without what no event tells of."""
    return found and Tree({name: replace(one, used=0, written=0) for name, one in found.datasets.items()})


def change(dice: random.Random, number: int) -> str:
    """A command that moves a listing; some fail, as nothing of that name is there."""
    one, other = dice.choice(["tank/home", "tank/my files", *SPARE]), dice.choice(SPARE)
    snap = f"'{one}@s{dice.randrange(4)}'"
    return dice.choice(
        [
            f"zfs create '{other}'",
            f"zfs destroy -R '{other}'",
            f"zfs rename '{dice.choice(SPARE)}' '{other}'",
            f"zfs rename {snap} '{one}@n{number}'",
            f"zfs snapshot {snap}",
            f"zfs snapshot -r tank@all{number}",
            f"zfs destroy -d {snap}",
            f"zfs bookmark {snap} '{one}#m{number % 3}'",
            f"zfs destroy '{one}#m{number % 3}'",
            f"zfs clone {snap} '{other}'",
            f"zfs promote '{other}'",
            f"zfs set org.zvault:sent=flags{number} '{one}'",
            f"zfs inherit org.zvault:sent '{one}'",
            f"zfs rollback -r {snap}",
            f"zfs send {snap} | zfs receive -u -o org.zvault:sent=s '{other}'",
            f"zfs send '{one}@s1' | head -c 60000 | zfs receive -s -u '{other}'",
            f"zfs receive -A '{other}'",
            f"dd if=/dev/urandom 'of=/{one}/file' bs=64k count=4 conv=fsync",
            "zpool sync tank",
        ]
    )


class CountedListings(ListingCacheFiles):
    """Counts the datasets whose snapshots were believed."""

    believed = 0

    def believe_snapshots(self, stamps: Mapping[str, tuple[str, str]], now: float) -> dict[str, SnapshotList]:
        found = super().believe_snapshots(stamps, now)
        CountedListings.believed += len(found)
        return found


async def check_next_life(folder: Path, there: Tree | None) -> None:
    """A process that has just been started sees what is there, with what the last one kept of the pool."""
    kept = CountedListings(folder)
    client = Zfs(HostRunner(), kept=kept)
    assert await tree(client, "tank", sizes=True) == there
    await client.close()
    await kept.save_changed()


async def test_each_look_between_many_changes_sees_what_a_fresh_listing_sees(tank, tmp_path):
    """Ten changes between two looks, some of them while one looks; compared while nothing changes, also with what a
    process sees that has just been started.
    """
    dice, numbers = random.Random(7), itertools.count()

    async def some(count: int) -> None:
        for _ in range(count):
            await asyncio.to_thread(shell, f"{{ {change(dice, next(numbers))}; }} 2>&1", check=False)

    async with followed() as (client, _):
        began = time.monotonic()
        for look in range(40):
            await some(5)
            meanwhile = asyncio.create_task(some(5))
            await tree(client, "tank", sizes=bool(look % 2))
            await meanwhile
            known = await tree(client, "tank", sizes=False)
            assert bare(known) == bare(await tree(Zfs(HostRunner()), "tank", sizes=False)), look
            # What is used and written moves until all is written out and what was destroyed is freed.
            await asyncio.to_thread(shell, "zpool sync tank && zpool wait -t free tank && zpool sync tank")
            known = await tree(client, "tank", sizes=True)
            assert known == await tree(Zfs(HostRunner()), "tank", sizes=True), look
            await check_next_life(tmp_path / "listings", known)
        assert CountedListings.believed > 40
        print(f"{next(numbers) / (time.monotonic() - began):.1f} changes a second, looks included")


@pytest.mark.parametrize(
    "lose",
    [
        "pkill -STOP -f event_chil[d]; for n in $(seq 90); do zfs snapshot -r tank@$n; done; "
        "pkill -CONT -f event_chil[d]",
        "zpool events -c",
        f"zfs set org.zvault:sent={'x' * 7000} tank/home",
        "pkill -KILL -f event_chil[d]",
        "zpool export tank && zpool import -d /var/lib/zvault-lab tank",
    ],
    ids=["overflow", "cleared", "too long", "killed", "imported"],
)
async def test_what_was_lost_is_listed(tank, lose: str):
    async with followed() as (client, _):
        for _ in range(2):
            await client.tree("tank")
        shell(
            f"zfs snapshot tank/big@s && zfs bookmark tank/big@s tank/big#b && zfs create tank/new && {lose}"
        )
        known = await client.tree("tank", sizes=False)
        assert bare(known) == bare(await Zfs(HostRunner()).tree("tank"))
        assert known.datasets["tank/big"].bookmarks
        assert "tank/new" in known.datasets


ROOM = Path("/sys/module/zfs/parameters/zfs_zevent_len_max")


async def test_of_many_datasets_that_are_snapshotted_at_once_no_event_is_lost(tank):
    """The kernel keeps 512 events by itself: three recursive snapshots are more."""
    with ThreadPoolExecutor(8) as some:
        list(some.map(lambda number: lzc_create(b"tank/n%d" % number), range(200)))
    async with followed() as (client, feed):
        for _ in range(3):
            await client.tree("tank")
        assert ROOM.read_text() == "1024\n"
        lapses = client.lapses
        shell(
            "pkill -STOP -f event_chil[d]; for n in 1 2 3; do zfs snapshot -r tank@$n; done; "
            "pkill -CONT -f event_chil[d]"
        )
        known = await client.tree("tank", sizes=False)
        assert client.lapses == lapses
        assert bare(known) == bare(await Zfs(HostRunner()).tree("tank"))
        assert [snap.snapname for snap in known.datasets["tank/n7"].snapshots] == ["1", "2", "3"]
        shell("pkill -KILL -f event_chil[d]")
        await client.tree("tank", sizes=False)
        feed._try_again = 0.0
        await client.tree("tank", sizes=False)
    assert ROOM.read_text() == "512\n"


async def test_nothing_is_known_while_snapshots_post_no_events(tank):
    enabled = Path("/sys/module/zfs/parameters/zfs_snapshot_history_enabled")
    async with followed() as (client, _):
        for _ in range(2):
            await client.tree("tank")
        enabled.write_text("0")
        try:
            sh("zfs", "snapshot", "tank/big@unseen")
            known = await client.tree("tank", sizes=False)
        finally:
            enabled.write_text("1")
        assert [snap.snapname for snap in known.datasets["tank/big"].snapshots] == ["unseen"]


async def test_a_bookmark_that_was_copied_into_a_clone_is_known(tank):
    """Its event names the dataset that it was copied from."""
    shell("zfs snapshot tank/big@s && zfs bookmark tank/big@s tank/big#s && zfs clone tank/big@s tank/clone")
    async with followed() as (client, _):
        for _ in range(2):
            await client.tree("tank")
        sh("zfs", "bookmark", "tank/big#s", "tank/clone#copy")
        known = await client.tree("tank", sizes=False)
    assert [mark.markname for mark in known.datasets["tank/clone"].bookmarks] == ["copy"]


async def test_a_pool_that_is_gone_is_not_known_any_more(tank):
    async with followed() as (client, _):
        for _ in range(2):
            await client.tree("tank")
        sh("zpool", "export", "tank")
        with pytest.raises(NotFound):
            await client.tree("tank", sizes=False)
        sh("zpool", "import", "-d", "/var/lib/zvault-lab", "tank")
        assert len(await client.tree("tank", sizes=False)) == 6


def count_programs() -> None:
    """From now on each program of zvaultd's that is counted writes down that it was started."""
    for name in COUNTED:
        real = shell(f"command -v {name}")
        (PROGRAMS / name).write_text(f'#!/bin/sh\necho {name} $1 >>{STARTED}\nexec {real} "$@"\n')
        (PROGRAMS / name).chmod(0o755)


def test_a_run_of_nothing_starts_few_programs(tank):
    count_programs()
    tank.start()
    for _ in range(2):
        ok("run", "tank")
    ok("run", "tank", "--no-snapshot")
    counts: list[Counter[str]] = []

    def alone() -> bool:
        """Whether so few were started while a run had nothing to do."""
        STARTED.unlink()
        ok("run", "tank", "--no-snapshot")
        started = Counter(STARTED.read_text().splitlines())
        counts.append(started)
        return (
            started["zfs list"] <= LISTINGS
            and started["zfs get"] <= GETS
            and not [one for one in started if one.startswith("nbd")]
            and started.total() <= ALL
        )

    # zvaultd looks at lags and vaults every few seconds, and in many runs so, the slower the machine the more: what a
    # run starts by itself is seen in one in which no look falls.
    eventually(lambda: f"a run that starts few programs: {[dict(one) for one in counts]}", alone)
    print([dict(one) for one in counts])


LISTINGS = 0
"""Events tell what changed, and what was written to the vault's datasets matters only where one is sent to. It was 3
to 4, and 1 before that."""

GETS = 2
"""The limits of the source's datasets, of whose keys no event tells, and the proofs. It was 5."""

ALL = 20
"""It was 25, and is 14 where nothing else goes on."""


def test_what_was_written_on_the_vault_is_seen_once_something_is_to_be_sent(tank):
    tank.start()
    ok("run", "tank")
    sh("zfs", "set", "readonly=off", "cold/lab/tank/home")
    ok("run", "tank")
    # Of what follows no event tells.
    shell(
        "mkdir -p /mnt/copy && mount -t zfs -o zfsutil cold/lab/tank/home /mnt/copy && echo x >/mnt/copy/x && "
        "umount /mnt/copy"
    )
    ok("run", "tank", "--no-snapshot")
    sh("zfs", "snapshot", "tank/home@zvault_2099-01-01T00:00:00Z")
    run = ctl("run", "tank", "--no-snapshot")
    assert run.code, run.out
    assert "was written to" in run.err
    assert "bytes written on the vault: source 0" in run.out + run.err
    assert "zvault_2099-01-01T00:00:00Z" not in snapshots("cold/lab/tank/home")
