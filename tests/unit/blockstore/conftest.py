"""For the tests of the block store: what one took of memory is there for the next one."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    """An engine is a circle of objects with megabytes in it, and the collector comes by itself after many objects."""
    yield
    gc.collect(1)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a disk: in memory no journal is accepted that has what is nowhere else yet."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)
