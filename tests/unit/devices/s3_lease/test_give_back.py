"""A guard that ends gives its lease back, also where a renewal was under way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.devices.s3_lease.test_takeover import MINE, Memory
from zvault.devices.s3_lease.guard import LeaseGuard


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_lease_is_given_back_though_a_renewal_came_in_between(renewed: bool):
    memory = Memory()
    guard = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    if renewed:
        memory.put(MINE, guard.etag)  # its answer did not come before the server ended
    await guard._give_back()
    assert memory.lease is not None
    assert not memory.lease.held


async def test_another_hosts_lease_is_left_alone():
    memory = Memory()
    guard = LeaseGuard(memory.store, MINE, memory.take(), memory.clock)
    theirs = replace(MINE, host="other", boot="other")
    memory.put(theirs, guard.etag)
    await guard._give_back()
    assert memory.lease == theirs
