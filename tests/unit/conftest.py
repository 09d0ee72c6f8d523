"""For all unit tests: no example is timed, for a machine may be busy with something else; and what each test of some
kind would do again, and is not what it tests, is done once for all of a worker. The end of a run shows what it took of
the machine, and fails where a worker took more than ``MOST_MEMORY``.
"""

import ctypes
import functools
import gc
import os
import random
import re
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore import loaders
from hypothesis import HealthCheck, settings
from hypothesis.internal import entropy

from tests.unit.examples import USUAL, cases

TIMED = [HealthCheck.too_slow]
settings.register_profile("untimed", deadline=None, max_examples=cases(USUAL), suppress_health_check=TIMED)
settings.load_profile("untimed")

# numpy's generator is seeded and put back around each example, which takes longer than most of them; nobody draws from
# it. This keeps hypothesis from finding it.
entropy.NP_RANDOM = random


HERE = Path(__file__).parent

gc.disable()  # until all is imported, of which next to nothing is garbage


def pytest_configure(config: pytest.Config) -> None:
    """Each worker begins with other folders: what one has compiled the others read, where nothing is compiled yet."""
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(one).resolve() for one in config.args] != [HERE]:
        return
    parts = sorted(one for one in HERE.iterdir() if one.is_dir() or one.name.startswith("test_"))
    first = int(worker["workerid"].removeprefix("gw")) * len(parts) // worker["workercount"]
    config.args[:] = map(str, parts[first:] + parts[:first])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Wherever a worker began, all have the tests in one order."""
    items.sort(key=lambda item: item.path)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the collector what lives to the end anyway, all tests and modules: it goes through them again and again.

    What is garbage among it stays: looking for it takes longer than it is worth.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(200_000, 50, 20)


# What a test gave back is the memory of the next one. By itself malloc gives it to the kernel, which clears every page
# again: in the tests of the block store that is a third of all time.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LIBC = ctypes.CDLL(None)
# Each thread would take from a heap of its own, which keeps what it once had, and a block store's engine has a dozen.
LIBC.mallopt(M_ARENA_MAX, 1)
LIBC.mallopt(M_MMAP_THRESHOLD, 32 << 20)
LIBC.mallopt(M_TRIM_THRESHOLD, 256 << 20)

# Each of boto3's sessions looks for and parses the same megabytes of JSON. As within one session, nobody changes them.
FILES = loaders.JSONFileLoader()
EXISTS, READ = functools.cache(FILES.exists), functools.cache(FILES.load_file)
loaders.JSONFileLoader.exists = lambda _, path: EXISTS(path)
loaders.JSONFileLoader.load_file = lambda _, path: READ(path)

# Each also looks through the folders of 400 services for those that there are.
LIST_SERVICES = loaders.Loader.list_available_services
SERVICES: dict[tuple[str, ...], list[str]] = {}


def list_services(loader: loaders.Loader, kind: str) -> list[str]:
    """The services of which a loader has files of a kind."""
    where = (*loader.search_paths, kind)
    if where not in SERVICES:
        SERVICES[where] = LIST_SERVICES(loader, kind)
    return SERVICES[where]


loaders.Loader.list_available_services = list_services


MEMORY = Path("/dev/shm")
ROOM = 2 << 30
"""Bytes that have to be free there."""


def put_folders_in_memory() -> None:
    """Make the tests' folders in memory, where there is room and programs may be run: none has to outlive its test.

    A run writes 3 GB, and each test that syncs a file waits for the disk: 97 simulated worlds with a history each
    (daemon/test_any_refusal.py) took 14.5 s of CPU on a disk and 9.5 s in memory, and half of the time.
    """
    if MEMORY.is_dir() and "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        there = os.statvfs(MEMORY)
        if not there.f_flag & os.ST_NOEXEC and there.f_bavail * there.f_frsize >= ROOM:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(MEMORY)


put_folders_in_memory()


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: in memory no journal is accepted that has what is nowhere else yet."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


GROWN = 150 << 20
"""Bytes that a worker takes before garbage is looked for among all of it."""

SEEN = [0]
"""The memory that it had after that, in bytes."""


def measure_memory() -> int:
    """The bytes that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Free what tests left in circles, when that is much.

    An engine of the block store is such a circle, with megabytes in it. One that is alive when the collector comes by
    is old from then on, and the collector looks at the old ones once in a thousand times.
    """
    if measure_memory() > SEEN[0] + GROWN:
        gc.collect()
        LIBC.malloc_trim(0)
        SEEN[0] = measure_memory()


# What a run took

MOST_MEMORY = 1000
"""MB that a worker may have had at any moment: two CPUs have four workers, and a small machine has 4 GB."""

LARGER = ("ZVAULT_EXAMPLES", "ZVAULT_FUZZ_SECONDS", "ZVAULT_LOOP_LINES", "ZVAULT_YEAR_DAYS")
"""Variables that ask for more than an ordinary run. No memory is too much then."""

USED: dict[str, tuple[int, float]] = {}
"""By each worker that has ended: its most MB, and its seconds of processor with those of the processes it started."""


def measure_use() -> tuple[int, float]:
    """The most memory that this process has had, in MB, and its seconds of processor, with those of its children."""
    # Not getrusage's: that of a process begins with what the one had from which it was started.
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return int(found[1]) * 1024 // 10**6, sum(one.ru_utime + one.ru_stime for one in times)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note what a worker used. One that crashed tells nothing, and its tests have failed."""
    if (use := getattr(node, "workeroutput", {}).get("use")) is not None:
        USED[node.gateway.id] = tuple(use)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the controller what this worker used; there, fail a run in which one had too much."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["use"] = measure_use()
        return
    if not USED:
        USED["the only process"] = measure_use()
    if find_too_large() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def find_too_large() -> list[str]:
    """The workers that had more memory than one may have in an ordinary run."""
    if any(name in os.environ for name in LARGER):
        return []
    return [name for name, (most, _) in USED.items() if most > MOST_MEMORY]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the run took of the machine."""
    if not USED:
        return
    name, (most, _) = max(USED.items(), key=lambda one: one[1])
    seconds = sum(seconds for _, seconds in USED.values())
    terminalreporter.write_line(f"{seconds:.0f} s of CPU; the largest of {len(USED)}, {name}, had {most} MB")
    for worker in find_too_large():
        terminalreporter.write_line(
            f"ERROR: {worker} had {USED[worker][0]} MB of memory; a worker may have {MOST_MEMORY}", red=True
        )
