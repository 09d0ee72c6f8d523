"""bcache between an NBD device and a pool: made, adopted, written back, and never parted from what only it holds."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import world
from bcache_stacks import (
    BCACHE,
    MIB,
    Cached,
    cached_for_test,  # noqa: F401
    cleared,
    kernel,
    loop_device,
    nbd_module,  # noqa: F401
    server_stopped,
    sets,
    stop_all,
)
from device_stacks import (
    LEASES,
    PATHS,
    Moment,
    MortalLeases,
    MortalRunner,
    becomes,
    connected,
    only_state,
    quiet,
    running_units,
)
from world import World, eventually, ok, snapshots
from world import shell as sh

from zvault.config.profile import QueueSettings
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused
from zvault.devices.stack import DeviceStack
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.record_store import RecordStore

LAB = {"mem": "4G", "timeout": 1000}


async def test_made_used_and_taken_down_clean(cached: Cached):
    stack, said = cached.stack(), list[str]()
    began = time.monotonic()
    (device,) = await stack.up(said.append)
    print(f"up in {time.monotonic() - began:.2f} s", *said, sep="\n")
    assert (device.path, device.size) == ("/dev/bcache0", 124 * MIB)
    assert "[writeback]" in kernel("cache_mode")
    assert (kernel("state"), kernel("sequential_cutoff")) == ("clean", "1.0G")
    assert Path("/sys/block/nbd0/queue/read_ahead_kb").read_text() == "64\n"
    assert Path("/sys/block/bcache0/queue/read_ahead_kb").read_text() == "64\n"
    state = await only_state(stack)
    assert (state.state, state.path, state.size) == ("up", "/dev/bcache0", 124 * MIB)
    data = cached.write(1)
    assert kernel("state") == "dirty"
    assert not cached.holds(1, data)
    first = sets()

    began = time.monotonic()
    await cached.stack().up(said.append)
    assert said[-1] == "/dev/bcache0 is up already"
    await DeviceStack("cold", [], QueueSettings(), HostRunner(), PATHS, RecordStore(LEASES)).down(said.append)
    print(f"down in {time.monotonic() - began:.2f} s")
    assert cached.holds(1, data)
    cleared()

    # The cache stays attached, and is found again without create.
    await cached.stack(create=False).up(quiet)
    assert sets() == first
    (cached.folder / "data").write_bytes(data)
    sh(f"cmp -n {len(data)} -i {16 * MIB}:0 /dev/bcache0 {cached.folder}/data")
    await cached.stack().down(quiet)


async def test_the_server_outlives_the_cache_until_it_is_clean(cached: Cached):
    cached.filters, cached.timeout = "filter=delay wdelay=2s", "60s"
    stack, said = cached.stack(), list[str]()
    await stack.up(quiet)
    data = cached.write(1)
    sh("dmesg -C")
    began, dirty = time.monotonic(), 0

    async def looked_at() -> None:
        nonlocal dirty
        await asyncio.sleep(0.05)
        # Whatever is done about the server is done by this loop, so it is not done meanwhile.
        if BCACHE.exists():
            dirty += kernel("writeback_percent") == "0" and kernel("state") == "dirty"
            assert running_units()
            assert connected()

    # It cannot be over before it was looked at some times, however slow the machine is.
    with server_stopped():
        task = asyncio.ensure_future(stack.down(said.append))
        while dirty < 3 and not task.done():
            await looked_at()
    while not task.done():
        await looked_at()
    await task
    print(f"down in {time.monotonic() - began:.1f} s, seen dirty {dirty} times", *said, sep="\n")
    assert dirty >= 3
    assert cached.holds(1, data)
    log = sh("dmesg --notime")
    assert -1 < log.index("bcache0 stopped") < log.index("NBD_DISCONNECT")


async def test_a_write_back_that_takes_too_long_leaves_everything_up(cached: Cached):
    cached.timeout, cached.settings["flush"] = "60s", "1s"
    await cached.stack().up(quiet)
    data = cached.write(1)
    # What is on its way arrives after all, once the server goes on.
    with server_stopped():
        with pytest.raises(Busy) as caught:
            await cached.stack().down(quiet)
        assert not cached.holds(1, data)
    assert "in its cache only" in caught.value.what
    assert (await only_state(cached.stack())).state == "up"
    assert kernel("writeback_percent") == "10"
    cached.settings["flush"] = "5m"
    await cached.stack().up(quiet)
    await cached.stack().down(quiet)
    assert cached.holds(1, data)


def dies(cached: Cached, verb: str, moment: Moment) -> bool:
    """Let another process do something with the vault; whether it was killed on the way."""
    child = os.fork()
    if child == 0:
        stack, leases = cached.stack(), MortalLeases(LEASES)
        leases.moment = moment
        mortal = DeviceStack(
            "cold", stack.devices, stack.queue, MortalRunner(moment), PATHS, leases, create=True
        )
        asyncio.run(getattr(mortal, verb)(quiet))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("before", [True, False], ids=["between", "during"])
@pytest.mark.parametrize("verb", ["up", "down"])
def test_killed_at_any_moment(cached: Cached, verb: str, before: bool):
    """From blank devices up, and down with a dirty cache: whatever is found is adopted or cleared, nothing is lost."""
    seen, data = [], b""
    for round_, nth in enumerate(range(1 + before, 100, 3)):
        if verb == "down":
            asyncio.run(cached.stack().up(quiet))
            data = cached.write(round_ % 5, mib=1)
        if not dies(cached, verb, Moment(nth, before=before)):
            break
        state = asyncio.run(only_state(cached.stack()))
        seen.append(state.state)
        if round_ % 2:
            (device,) = asyncio.run(cached.stack().up(quiet))
            assert device.path == "/dev/bcache0"
            assert kernel("state") in {"clean", "dirty"}
            assert len(connected()) == 1
        asyncio.run(cached.stack().down(quiet))
        cleared(f"nothing is left after a kill in {verb} at step {nth}, where it was {state}")
        if verb == "down":
            assert cached.holds(round_ % 5, data)
        elif round_ % 3:
            # And where both are formatted already udev is faster than zvault.
            sh(f"rm -f {cached.backing}; dd if=/dev/zero of={cached.cache} bs=1M count=2 conv=fsync")
    asyncio.run(cached.stack().down(quiet))
    print(f"killed in {verb} at {len(seen)} moments, found", seen)
    assert len(seen) > 3


async def test_what_holds_anything_is_not_formatted(cached: Cached):
    with pytest.raises(NotFound, match="there is no file"):
        await cached.stack(create=False).up(quiet)
    sh(f"truncate -s 128M {cached.backing}")
    with pytest.raises(NotFound, match="blank"):
        await cached.stack(create=False).up(quiet)
    sh(f"mkfs.ext4 -q {cached.cache}")
    before = sh(f"sha256sum {cached.cache}")
    with pytest.raises(Refused, match="ext4"):
        await cached.stack().up(quiet)
    assert sh(f"sha256sum {cached.cache}") == before
    assert not cached.backing.stat().st_blocks, "nor is the other"
    with pytest.raises(DeviceGone, match="not there"):
        await cached.stack(cache="/dev/nosuch").up(quiet)
    with loop_device(cached.folder / "small", "100M") as small, pytest.raises(Refused, match="small"):
        await cached.stack(cache=small).up(quiet)
    cleared()


async def test_a_dirty_device_is_not_run_without_its_cache(cached: Cached):
    stack = cached.stack()
    await stack.up(quiet)
    data = cached.write(1)
    sh("systemctl kill -s KILL zvault-device@cold-0")
    state = await becomes(stack, "gone", "is failed")
    assert state.path == "/dev/bcache0"
    said: list[str] = []
    await stack.down(said.append)
    assert any("stay in the cache" in line for line in said), said
    cleared()
    assert not cached.holds(1, data)

    with loop_device(cached.folder / "another") as another:
        with pytest.raises(DeviceGone, match="or is another device") as caught:
            await cached.stack(cache=another).up(quiet)
        assert "dirty" in caught.value.why
        cleared()
    await cached.stack(create=False).up(quiet)
    assert kernel("state") == "dirty"
    await stack.down(quiet)
    assert cached.holds(1, data)


@contextmanager
def mapped(disk: str) -> Iterator[Callable[[bool], None]]:
    """A mapping of a disk as BREAKABLE, and what has it answer errors only, or be as it was."""
    sectors = sh(f"blockdev --getsz {disk}").strip()

    def load(table: str) -> str:
        return f'--table "0 {sectors} {table}"'

    def breaks(broken: bool) -> None:
        table = load("error" if broken else f"linear {disk} 0")
        sh(f"dmsetup suspend --noflush {BREAKABLE.name} && dmsetup reload {BREAKABLE.name} {table}")
        sh(f"dmsetup resume {BREAKABLE.name}")

    sh(f"dmsetup create {BREAKABLE.name} {load(f'linear {disk} 0')}")
    try:
        yield breaks
    finally:
        sh(f"dmsetup remove --retry {BREAKABLE.name}")


BREAKABLE = Path("/dev/mapper/breakable")


async def test_a_cache_that_breaks_while_it_is_dirty_is_named_and_nothing_is_lost_once_it_is_back(
    cached: Cached,
):
    with loop_device(cached.folder / "breakable") as disk, mapped(disk) as breaks:
        stack = cached.stack(cache=str(BREAKABLE))
        await stack.up(quiet)
        data = cached.write(1)
        assert kernel("state") == "dirty"
        breaks(True)
        said = sh("dd if=/dev/zero of=/dev/bcache0 bs=1M count=1 seek=32 conv=fsync 2>&1", check=False)
        assert "Input/output error" in said
        await becomes(stack, "gone", "bcache0 is gone")
        await stack.down(quiet)
        cleared()
        assert not cached.holds(1, data)
        for create in (True, False):
            with pytest.raises(
                DeviceGone, match=f"the cache {BREAKABLE} of /dev/nbd0 cannot be read"
            ) as gone:
                await cached.stack(cache=str(BREAKABLE), create=create).up(quiet)
            assert "/dev/nbd0 is dirty" in gone.value.why
            cleared()
        breaks(False)
        stack = cached.stack(cache=str(BREAKABLE), create=False)
        await stack.up(quiet)
        assert kernel("state") == "dirty"
        await stack.down(quiet)
        assert cached.holds(1, data)
        cleared()


class LateUdev(HostRunner):
    """Registers the device below only after zvault has seen that it is not registered, as udev may."""

    def __init__(self) -> None:
        self.refused, self.came = False, False

    async def run(self, argv: Sequence[str], **options: Any) -> ProcessResult:
        self.refused |= argv[0] == "bcache-super-show"
        if self.refused and not self.came and argv[-1] == "/dev/nbd0" and "O_EXCL" in " ".join(argv):
            self.came = True
            sh("echo /dev/nbd0 >/sys/fs/bcache/register_quiet")
        return await super().run(argv, **options)


@pytest.fixture
def _no_rule_of_udev() -> Iterator[None]:
    """udev registers nothing of bcache."""
    rule = Path("/run/udev/rules.d/69-bcache.rules")
    sh(f"mkdir -p {rule.parent} && ln -s /dev/null {rule} && udevadm control --reload")
    yield
    sh(f"rm {rule} && udevadm control --reload")


@pytest.mark.usefixtures("_no_rule_of_udev")
async def test_a_device_that_udev_registers_late_is_released(cached: Cached):
    await cached.stack().up(quiet)
    data = cached.write(1)
    sh("systemctl kill -s KILL zvault-device@cold-0")
    await becomes(cached.stack(), "gone", "is failed")
    await cached.stack().down(quiet)
    cleared()

    udev = LateUdev()
    with loop_device(cached.folder / "another") as another:
        with pytest.raises(DeviceGone, match="or is another device"):
            await cached.stack(cache=another, runner=udev).up(quiet)
        assert udev.came
        cleared()
    await cached.stack(create=False).up(quiet)
    assert kernel("state") == "dirty"
    await cached.stack().down(quiet)
    assert cached.holds(1, data)


@dataclass
class CachedWorld(World):
    """The whole tool with a cache below its vault."""

    cache: str = ""
    delay: str = "filter=delay wdelay=20ms"
    size: str = "512M"

    def config_text(self) -> str:
        cache = f'cache = {{ bcache = "{self.cache}", mode = "writeback", sequential_cutoff = "1G" }}'
        return super().config_text().replace('timeout = "20s"', f'timeout = "60s"\n{cache}')


@pytest.fixture
def tank(tmp_path: Path) -> Iterator[CachedWorld]:
    with loop_device(tmp_path / "cache") as cache:
        it = CachedWorld(cache=cache)
        it.clean()
        it.source()
        yield it
        sh("systemctl stop zvaultd; zpool clear cold; zpool export cold", check=False)
        stop_all()
        it.clean()


def nothing_left() -> None:
    world.nothing_left()
    eventually(lambda: f"no cache is left: {sets()}", lambda: not sets())


def converges() -> None:
    """A run that is ok, after which the vault has the source's files and the pool has no fault."""
    time.sleep(1.1)
    ok("run", "tank")
    ok("vault", "up", "cold")
    for dataset in ("tank/home", "tank/big"):
        snapname = snapshots(dataset)[-1]
        there = world.snapshot_hashes(f"cold/lab/{dataset}@{snapname}")
        assert there == world.snapshot_hashes(f"{dataset}@{snapname}")
        assert there
    sh("zpool scrub -w cold")
    assert "errors: No known data errors" in sh("zpool status cold")
    ok("vault", "down", "cold")
    nothing_left()


def test_the_server_of_a_cached_vault_killed_while_it_is_written_to(tank: CachedWorld):
    tank.backup_extra = 'limit = "4M"'  # some 33 MB: it is not over before that was seen
    tank.start()
    ok("run", "--no-wait", "tank")
    eventually("dirty data", lambda: kernel("state") == "dirty", every=0.05)
    sh("systemctl kill -s KILL zvault-device@cold-0")
    eventually("the run to end", lambda: world.status()["backups"][0]["state"] == "idle", seconds=240)
    print(world.journal())
    converges()


def test_the_daemon_killed_while_the_cache_is_written_back(tank: CachedWorld):
    # It takes many such seconds: so it is still written back when its server is stopped, and then until that goes on.
    tank.delay = "filter=delay wdelay=2s"
    tank.start()
    ok("vault", "up", "cold")
    ok("run", "tank")
    pid = world.main_pid()
    asked = subprocess.Popen(["zvaultctl", "vault", "down", "cold"])
    eventually("the write-back", lambda: kernel("writeback_percent") == "0", every=0.05)
    with server_stopped():
        refused = subprocess.run(["systemctl", "suspend"], capture_output=True, text=True, timeout=120)
        assert refused.returncode != 0, "the host may sleep while the cache is written back"
        assert kernel("writeback_percent") == "0", "it was over before anybody asked"
        os.kill(pid, signal.SIGKILL)
    assert asked.wait(120) != 0
    world.restarted(pid)
    eventually("it to be down", lambda: not connected() and not sets(), seconds=240)
    nothing_left()
    converges()
