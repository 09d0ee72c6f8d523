"""The host sleeps while a cache is written back: it ends clean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from reboot_guest import dirty, flushing
from test_sleep import let_it_sleep, locks, overridable, sleep_through, slept
from world import World, answer, ask, ctl, eventually, make_tank, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 1500}

MIB = 60
"""What the cache has to write back: 30 s at 2 MB/s, and no request is to take longer than its timeout for that."""

CACHE = Path("/var/lib/zvault-lab/cache.img")


class Cached(World):
    """A source, and a vault on a slow device behind a fast cache."""

    cache: str
    inhibit_sleep = "block"

    def source(self) -> None:
        make_tank("1G")
        sh("zfs", "create", "tank/home")
        world.noise(Path("/tank/home/noise"), MIB)

    def config_text(self) -> str:
        line, longer = 'timeout = "20s"\n', 'timeout = "60s"\n'
        cache = f'cache = {{ bcache = "{self.cache}", mode = "writeback", sequential_cutoff = "1G" }}\n'
        return overridable(super().config_text().replace(line, longer + cache), self.inhibit_sleep)


@pytest.fixture
def tank() -> Iterator[Cached]:
    let_it_sleep()
    # Not a whole number of stripes: of the end of such a device the log of bcache never ceases to complain.
    it = Cached(delay="filter=rate rate=16M", size="1048584K")
    it.clean()
    it.source()
    sh("truncate", "-s", "1G", str(CACHE))
    it.cache = sh("losetup", "--find", "--show", str(CACHE)).strip()
    yield it
    it.clean()
    sh("losetup", "-d", it.cache)
    CACHE.unlink(missing_ok=True)


def announced() -> None:
    """As an administrator has it who lets root pass over what keeps the host awake."""
    sleep_through()


def unannounced() -> None:
    """As the kernel does it when nobody is asked."""
    sh("rtcwake", "-m", "mem", "-s", "45", timeout=300, check=False)


def last_run() -> dict[str, Any] | None:
    """The newest run, once it has ended."""
    newest: dict[str, Any] = ctl("history", "-j").json()["runs"][0]
    return newest if newest["ended"] else None


@pytest.mark.parametrize("fall_asleep", [announced, unannounced])
def test_what_only_the_cache_has_is_written_back_after_it(tank: Cached, fall_asleep: Any) -> None:
    tank.inhibit_sleep = "block-weak"
    tank.start()
    assert answer(ask("POST", "/v1/run/tank"))
    eventually("the flush", flushing, every=0.1)
    assert dirty()
    assert "vault cold" in "".join(locks("block-weak"))
    before = slept()
    fall_asleep()
    # Where the kernel finds a request under way it may give up, and stay awake.
    print("slept:", slept() > before)
    ended = eventually("the run to end", last_run, seconds=240)
    assert ended["result"] == "ok", ended
    eventually("the vault to be down", lambda: not Path("/sys/block/bcache0").exists())
    world.nothing_left()

    ok("vault", "up", "cold")
    newest = f"tank/home@{snapshots('tank/home')[-1]}"
    assert world.snapshot_hashes(f"cold/lab/{newest}") == world.snapshot_hashes(newest)
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")
    assert sh("zpool", "list", "-Ho", "health", "cold").strip() == "ONLINE"
    ok("vault", "down", "cold")
    world.nothing_left()
