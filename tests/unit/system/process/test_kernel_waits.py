"""No more than one look at a pool hangs in the kernel, whoever looks and whatever for; what may help is still begun."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patience import PATIENCE, eventually
from zvault.core.errors import DeadlineExceeded
from zvault.system.process import kernel_waits
from zvault.system.process.kernel_waits import (
    ALL_POOLS,
    KernelWaits,
    WaitingProgram,
    allow_rescue_looks,
    find_examined_pool,
    read_steps,
)

LIST = ("zpool", "list", "-Hp", "-o", "name,health", "cold")
OTHER_LOOKS = (
    LIST,
    ("zpool", "status", "-j", "--json-int", "-P", "-L", "cold"),
    ("zfs", "list", "-Hp", "-r", "-t", "all", "-o", "name", "cold"),
    ("zfs", "get", "-Hp", "-o", "property,value", "used", "cold/lab/tank"),
    ("zfs", "holds", "-H", "cold/lab/tank@a"),
    ("env", "TZ=UTC", "LC_ALL=C", "zpool", "status", "-pPL", "cold"),
    ("zpool", "list"),
)
HELP = (("zpool", "clear", "cold"), ("zpool", "export", "cold"), ("zpool", "reopen", "cold"))
IMPORT_COLD = ("zpool", "import", "-N", "cold")


@pytest.mark.parametrize(
    ("argv", "pool"),
    [
        *((argv, "cold") for argv in OTHER_LOOKS[:-1]),
        (("zpool", "list"), ALL_POOLS),
        (("zpool", "status", "-x"), ALL_POOLS),
        (("zpool", "list", "-Hpo", "name"), ALL_POOLS),
        (("zpool", "get", "-Hpo", "value", "freeing", "cold"), "cold"),
        (("zpool", "get", "all"), ALL_POOLS),
        (("zpool", "get", "-Hp", "-o", "name,value", "failfast", "cold", "all-vdevs"), "cold"),
        (("zfs", "get"), None),
        (("zpool", "iostat", "-HpvLPlqy", "cold", "1", "3"), "cold"),
        (("zfs", "list", "-Hp", "-d1", "-t", "snapshot", "-o", "name", "cold/a", "cold/b"), "cold"),
        (("zfs", "send", "-vP", "cold@a"), None),
        (("cat", "/proc/1/cmdline"), None),
        *((argv, None) for argv in (*HELP, IMPORT_COLD)),
    ],
)
def test_which_pool_a_command_looks_at(argv: tuple[str, ...], pool: str | None) -> None:
    assert find_examined_pool(argv) == pool


@dataclass
class Program:
    """A process of a made-up /proc: asleep in the kernel (D) or not, and how often it was put to sleep."""

    proc: Path
    pid: int
    returncode: int | None = None

    def be(self, state: str, steps: int = 0) -> None:
        folder = self.proc / str(self.pid)
        folder.mkdir(exist_ok=True)
        text = f"Name:\tzpool\nState:\t{state} (x)\nvoluntary_ctxt_switches:\t{steps}\n"
        (folder / "status").write_text(text)


@dataclass
class Host:
    """Starts programs; each is in the kernel until it is told to end."""

    proc: Path

    def __post_init__(self) -> None:
        self.waits = KernelWaits(self.proc)
        self.begun: list[Program] = []
        self._pids = count(100)

    async def run(self, argv: tuple[str, ...], patience: float = PATIENCE, *, ends: asyncio.Event) -> None:
        async with self.waits.enter(argv, patience) as waiting:
            program = Program(self.proc, next(self._pids))
            program.be("D")
            waiting.process = program
            self.begun.append(program)
            await ends.wait()
            program.returncode = 0

    async def give_up(self, argv: tuple[str, ...], *, cancelled: bool = False) -> Program:
        """Run something that hangs and is given up."""
        async with self.waits.enter(argv, PATIENCE) as waiting:
            waiting.process = program = Program(self.proc, next(self._pids))
            program.be("D")
            self.waits.leave(waiting, cancelled=cancelled)
        return program


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("argv", OTHER_LOOKS)
async def test_no_look_follows_one_that_was_given_up_and_hangs(host: Host, argv: tuple[str, ...]) -> None:
    left = await host.give_up(LIST)
    for _ in range(20):
        with pytest.raises(DeadlineExceeded, match="has not answered since") as refused:
            await host.run(argv, ends=asyncio.Event())
    assert str(left.pid) in refused.value.why
    assert (host.begun, host.waits.count_left()) == ([], 1)
    left.returncode = -9
    done = asyncio.Event()
    done.set()
    await host.run(argv, ends=done)
    assert host.waits.count_left() == 0


async def test_what_may_help_is_begun_and_begun_again(host: Host) -> None:
    """A ``zpool clear`` before the pool is suspended waits for ever, and the next one works."""
    done = asyncio.Event()
    done.set()
    await host.give_up(LIST)
    for argv in (*HELP, ("zpool", "list", "other"), ("cat", "/etc/hostid")):
        await host.give_up(argv)
        await host.run(argv, ends=done) if argv[1] != "list" else None
    assert len(host.begun) == len(HELP) + 1


async def test_no_import_follows_one_of_the_same_pool_that_hangs(host: Host) -> None:
    """Each try to bring a vault up left one more that nothing ended."""
    done = asyncio.Event()
    done.set()
    left = await host.give_up(IMPORT_COLD, cancelled=True)
    for argv in (IMPORT_COLD, ("zpool", "import", "-f", "-N", "-d", "/dev/nbd0", "cold")):
        with pytest.raises(DeadlineExceeded, match="has not answered since") as refused:
            await host.run(argv, ends=done)
        assert str(left.pid) in refused.value.why
    assert host.begun == []
    await host.run(("zpool", "import", "-N", "other"), ends=done)
    left.returncode = -9
    await host.run(IMPORT_COLD, ends=done)
    assert len(host.begun) == 2


async def test_a_look_that_is_to_help_waits_for_nothing_that_hangs_in_a_dataset(host: Host) -> None:
    """Until the pool is brought back nothing ends a hold that hangs in it, and that begins with this look."""
    done = asyncio.Event()
    done.set()
    for argv in (OTHER_LOOKS[2], ("libzfs_core", "hold")):
        program = Program(host.proc, 50)
        program.be("D")
        host.waits.leave(WaitingProgram(argv, "cold", process=program))
    with allow_rescue_looks():
        await host.run(LIST, ends=done)
        with pytest.raises(DeadlineExceeded):
            await host.run(OTHER_LOOKS[2], ends=done)
        await host.give_up(LIST)
        with pytest.raises(DeadlineExceeded):
            await host.run(LIST, ends=done)
    with pytest.raises(DeadlineExceeded):
        await host.run(LIST, ends=done)


async def test_a_change_that_was_cancelled_says_nothing_of_the_pool_itself(host: Host) -> None:
    """It waits for its transaction group, for seconds on slow storage; 'zpool list' tells of the vault meanwhile."""
    program, done = Program(host.proc, 50), asyncio.Event()
    program.be("D")
    done.set()
    host.waits.leave(WaitingProgram(("libzfs_core", "hold"), "cold", process=program))
    await host.run(LIST, ends=done)
    with pytest.raises(DeadlineExceeded):
        await host.run(OTHER_LOOKS[2], ends=done)


async def test_a_look_that_was_cancelled_is_waited_for_before_it_counts_as_one_that_hangs(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing shows that the kernel does not answer: its storage may only be slow, and no vault is gone for that."""
    done = asyncio.Event()
    done.set()
    left = await host.give_up(OTHER_LOOKS[2], cancelled=True)
    looking = asyncio.ensure_future(host.run(LIST, ends=done))
    await asyncio.sleep(0.05)
    assert (looking.done(), host.begun) == (False, [])
    left.returncode = -9
    await asyncio.wait_for(looking, PATIENCE)
    monkeypatch.setattr(kernel_waits, "STANDS_STILL", 0.1)
    await host.give_up(OTHER_LOOKS[2], cancelled=True)
    with pytest.raises(DeadlineExceeded, match="has not answered since"):
        await asyncio.wait_for(host.run(LIST, 10 * PATIENCE, ends=done), PATIENCE)


async def test_while_one_stands_still_others_wait_and_then_are_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_waits, "SAMPLE_EVERY", 0.02)
    monkeypatch.setattr(kernel_waits, "STANDS_STILL", 0.2)
    ends = asyncio.Event()
    first = asyncio.ensure_future(host.run(LIST, ends=ends))
    await eventually(lambda: host.begun)
    with pytest.raises(DeadlineExceeded):
        await host.run(OTHER_LOOKS[1], ends=ends)
    assert len(host.begun) == 1
    ends.set()
    await first
    await host.run(OTHER_LOOKS[1], ends=ends)


async def test_one_that_gets_on_keeps_nobody_waiting(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of minutes sleeps in the kernel too, again and again."""
    monkeypatch.setattr(kernel_waits, "SAMPLE_EVERY", 0.02)
    ends, done = asyncio.Event(), asyncio.Event()
    done.set()
    listing = asyncio.ensure_future(host.run(OTHER_LOOKS[2], ends=ends))
    await eventually(lambda: host.begun)

    async def work() -> None:
        for steps in count():
            host.begun[0].be("D", steps)
            await asyncio.sleep(0.001)

    working = asyncio.ensure_future(work())
    await asyncio.wait_for(host.run(LIST, ends=done), PATIENCE)
    working.cancel()
    assert not listing.done()
    ends.set()
    await listing


async def test_a_machine_that_stood_still_is_no_program_that_does(host: Host) -> None:
    """Its processes had no time to get on."""
    program = await host.give_up(("cat", "x"))
    waiting = host.waits._left[0]
    waiting.began -= 10.0
    for _ in range(4):
        waiting.sampled -= 1000.0
        waiting.sample(host.proc)
    assert 0.0 < waiting.still < kernel_waits.STANDS_STILL
    program.be("D", 1)
    waiting.sampled -= 1000.0
    waiting.sample(host.proc)
    assert waiting.still == 0.0


async def test_one_that_nobody_has_watched_so_far_is_watched_first(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is not known to stand still does not show that it gets on."""
    monkeypatch.setattr(kernel_waits, "YOUNG", 0.0)
    ends = asyncio.Event()
    first = asyncio.ensure_future(host.run(LIST, ends=ends))
    await eventually(lambda: host.begun)
    with pytest.raises(DeadlineExceeded):
        await host.run(LIST, 0.5, ends=ends)
    assert len(host.begun) == 1
    ends.set()
    await first


async def test_who_has_no_turn_in_time_is_told_since_when(host: Host) -> None:
    ends = asyncio.Event()
    first = asyncio.ensure_future(host.run(LIST, ends=ends))
    await eventually(lambda: host.begun)
    with pytest.raises(DeadlineExceeded, match="has not answered since"):
        await host.run(LIST, 0.05, ends=ends)
    ends.set()
    await first


IMPORT = ("zpool", "import", "-N", "other")


async def test_while_a_pool_is_imported_no_look_at_another_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import holds the lock that each look takes, for minutes where its devices are slow."""
    monkeypatch.setattr(kernel_waits, "YOUNG", 0.0)
    monkeypatch.setattr(kernel_waits, "SAMPLE_EVERY", 0.02)
    monkeypatch.setattr(kernel_waits, "STANDS_STILL", 0.1)
    imported, ends = asyncio.Event(), asyncio.Event()
    importing = asyncio.ensure_future(host.run(IMPORT, ends=imported))
    await eventually(lambda: host.waits.importing)
    first = asyncio.ensure_future(host.run(OTHER_LOOKS[2], ends=ends))
    await eventually(lambda: len(host.begun) == 2)
    second = asyncio.ensure_future(host.run(LIST, 0.1, ends=ends))
    await asyncio.sleep(0.5)
    assert not second.done(), "it waits for its turn, and its patience does not run"
    imported.set()
    await importing
    ends.set()
    await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)


async def test_the_time_of_a_look_does_not_run_while_a_pool_is_imported(host: Host) -> None:
    waits, over = host.waits, []
    for argv in (LIST, ("cat", "/etc/hostid")):
        waiting = WaitingProgram(argv, find_examined_pool(argv))
        async with waits.enter(IMPORT, PATIENCE):
            try:
                async with waits.limit(waiting, 0.05):
                    await asyncio.sleep(0.2)
            except TimeoutError:
                over.append(argv[0])
    assert over == ["cat"]
    began = 0.0

    async def look_beside_an_import() -> None:
        nonlocal began
        async with waits.enter(LIST, PATIENCE) as waiting, waits.limit(waiting, 0.1):
            async with waits.enter(IMPORT, PATIENCE):
                await asyncio.sleep(0.3)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(PATIENCE)

    with pytest.raises(TimeoutError):
        await look_beside_an_import()
    assert asyncio.get_running_loop().time() - began >= 0.1, "it begins anew"


@given(looks=st.lists(st.sampled_from(OTHER_LOOKS), min_size=2, max_size=12), data=st.data())
def test_whoever_looks_at_a_pool_that_hangs_one_is_in_the_kernel(
    looks: list[tuple[str, ...]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All looks hang from the first moment on; each is given up after a while, and its caller comes again."""

    async def world() -> None:
        host = Host(tmp_path_factory.mktemp("proc"))
        ends = asyncio.Event()

        async def look(argv: tuple[str, ...], patience: float) -> None:
            for _ in range(3):
                try:
                    async with asyncio.timeout(patience), host.waits.enter(argv, patience) as waiting:
                        waiting.process = program = Program(host.proc, next(host._pids))
                        program.be("D")
                        host.begun.append(program)
                        try:
                            await ends.wait()
                        finally:
                            host.waits.leave(waiting)
                except (DeadlineExceeded, TimeoutError):
                    await asyncio.sleep(0)

        patiences = data.draw(
            st.lists(st.sampled_from([0.001, 0.01]), min_size=len(looks), max_size=len(looks))
        )
        await asyncio.gather(*map(look, looks, patiences))
        assert len(host.begun) <= 1

    asyncio.run(world())


def test_what_proc_tells_of_this_process() -> None:
    state, steps = read_steps(os.getpid())
    assert state == "R"
    assert steps
    assert read_steps(0) == ("", "")
