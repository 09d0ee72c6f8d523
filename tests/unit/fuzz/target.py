"""What a fuzz target is: bytes that were changed from real ones go into one parser, which reads or refuses them.

A target is an ordinary test made by ``target``: it draws from the seeds of its family (seeds/), changes them
(mutation.py) and calls the parser, which may raise what it documents and nothing else, and keeps below its cap.
"""

from __future__ import annotations

import contextlib
import os
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy

SECONDS = float(os.environ.get("ZVAULT_FUZZ_SECONDS", "0"))
"""How long each target goes on; 0: for as many examples as the profile has."""

KIB, MIB = 1 << 10, 1 << 20


def target(
    inputs: SearchStrategy[bytes], *errors: type[Exception], cap: int
) -> Callable[[Callable[[bytes], object]], Callable[[], None]]:
    """Make a test of a function that takes bytes: it raises only ``errors``, and allocates less than ``cap`` bytes."""

    def made(parse: Callable[[bytes], object]) -> Callable[[], None]:
        def check(data: bytes) -> None:
            within(cap, lambda: parse(data), *errors)

        @pytest.mark.timeout(SECONDS + 300)
        def test() -> None:
            end = time.monotonic() + SECONDS
            while True:
                # Made anew, so that it takes the profile in force.
                settings()(given(inputs)(check))()
                if time.monotonic() >= end:
                    return

        test.__doc__ = parse.__doc__
        return test

    return made


def within(cap: int, call: Callable[[], object], *errors: type[Exception]) -> None:
    """Call it: it raises nothing but these, and has never more than ``cap`` bytes at once."""
    tracemalloc.start()
    try:
        with contextlib.suppress(*errors):
            call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < cap, f"{peak} bytes at once"
