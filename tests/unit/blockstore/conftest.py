"""For the tests of the block store: what one took of memory is there for the next one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def freed() -> Iterator[None]:
    """An engine is a circle of objects with megabytes in it, and the collector comes by itself after many objects."""
    yield
    gc.collect(1)
