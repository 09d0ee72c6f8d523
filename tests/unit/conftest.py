"""For all unit tests: no example is timed, for a machine may be busy with something else; and what each test of some
kind would do again, and is not what it tests, is done once for all of a worker.
"""

import ctypes
import functools
import gc
from pathlib import Path

import pytest
from botocore import loaders
from hypothesis import HealthCheck, settings

from tests.unit.examples import USUAL, cases

TIMED = [HealthCheck.too_slow]
settings.register_profile("untimed", deadline=None, max_examples=cases(USUAL), suppress_health_check=TIMED)
settings.load_profile("untimed")


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
    """Spare the collector what lives to the end anyway, all tests and modules: it goes through them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 100, 20)


# What a test gave back is the memory of the next one. By itself malloc gives it to the kernel, which clears every page
# again: in the tests of the block store that is a third of all time.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LIBC = ctypes.CDLL(None)
LIBC.mallopt(M_MMAP_THRESHOLD, 32 << 20)
LIBC.mallopt(M_TRIM_THRESHOLD, 256 << 20)

# Each of boto3's sessions looks for and parses the same megabytes of JSON. As within one session, nobody changes them.
FILES = loaders.JSONFileLoader()
EXISTS, READ = functools.cache(FILES.exists), functools.cache(FILES.load_file)
loaders.JSONFileLoader.exists = lambda _, path: EXISTS(path)
loaders.JSONFileLoader.load_file = lambda _, path: READ(path)
