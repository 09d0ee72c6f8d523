"""How long the targets go on: by number of examples, or in a soak by time.

``ZVAULT_FUZZ_SECONDS`` is the time of each target; without it each has some hundred examples, and seconds.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.fuzz.target import SECONDS

QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

settings.register_profile("fuzz", max_examples=60, deadline=None, suppress_health_check=QUIET)
# Many small rounds, begun anew until the time is over: see target.py. What one round finds is not replayed in the next.
settings.register_profile("soak", max_examples=500, deadline=None, suppress_health_check=QUIET, database=None)


@pytest.fixture(autouse=True)
def profile():
    before = settings.get_current_profile_name()
    settings.load_profile("soak" if SECONDS else "fuzz")
    yield
    settings.load_profile(before)
