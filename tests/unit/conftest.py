"""For all unit tests: no example is timed, for a machine may be busy with something else; and what each test of some
kind would do again, and is not what it tests, is done once for all of a worker.
"""

import functools
import gc

import pytest
from botocore import loaders
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Spare the collector what lives to the end anyway, all tests and modules: it goes through them again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# Each of boto3's sessions looks for and parses the same megabytes of JSON. As within one session, nobody changes them.
FILES = loaders.JSONFileLoader()
EXISTS, READ = functools.cache(FILES.exists), functools.cache(FILES.load_file)
loaders.JSONFileLoader.exists = lambda _, path: EXISTS(path)
loaders.JSONFileLoader.load_file = lambda _, path: READ(path)
