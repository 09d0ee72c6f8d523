"""The lease of a vault in an object store, which whoever has the bucket's keys may have written."""

from __future__ import annotations

from tests.unit.fuzz.mutation import mutated, seeds
from tests.unit.fuzz.target import MIB, target
from zvault.devices.s3_lease.lease_object import LeaseContent, LeaseObject

REAL = seeds("lease_objects")


def test_the_seeds_are_leases() -> None:
    assert [LeaseContent.of_bytes(one).held for one in REAL] == [True, False]


@target(mutated(REAL), ValueError, TypeError, cap=4 * MIB)
def test_leases(data: bytes) -> None:
    """What is taken for a lease can be told, and be put again."""
    lease = LeaseContent.of_bytes(data)
    assert lease.owner()
    LeaseObject(lease, "etag", 5.0).is_expired()
    assert LeaseContent.of_bytes(lease.as_bytes()).host == lease.host
