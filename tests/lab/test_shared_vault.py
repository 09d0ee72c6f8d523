"""Two hosts with one configuration and one vault: one makes the run, and when it fails the other goes on with it.

Their clocks differ by minutes. failovers.py tries more ways to fail, and each of them more often.
"""

from __future__ import annotations

from collections.abc import Iterator

import failover
import pytest
from failover import Kind, answers_late, fail, judge_after_failures
from failover_hosts import other
from failover_s3 import Bucket, shared_bucket

LAB = {"mem": "4G", "timeout": 1800, "peer": True}

LATE = answers_late(45.0, taken=True)
"""What the one host asks reaches the store when the other has long taken over."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with shared_bucket() as it:
        yield it


def test_of_two_that_are_due_one_runs_and_the_other_skips(bucket: Bucket) -> None:
    failover.one_runs_and_the_other_skips()


@pytest.mark.parametrize(
    ("number", "kind", "victim"),
    [
        (1, failover.STOPPED, "lab"),
        (2, LATE, "peer"),
        (3, failover.HUNG, "peer"),
        (4, failover.ASLEEP_KIND, "peer"),
        (5, failover.CUT_OFF, "peer"),
        (6, failover.KILLED, "lab"),
    ],
    ids=str,
)
def test_another_goes_on_with_a_run_whose_host_fails(
    bucket: Bucket, number: int, kind: Kind, victim: str
) -> None:
    row = fail(bucket, kind, victim, number)
    print(row)
    assert row.lost == 0
    wrote = bucket.after(other(victim))
    assert not wrote.counts
    assert wrote.ignored or kind is not LATE, "nothing came late"


def test_what_was_acknowledged_is_there(bucket: Bucket) -> None:
    row = judge_after_failures(bucket)
    assert (row.same, row.scrub) == (True, "clean")
