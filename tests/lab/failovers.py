"""A campaign of failovers: a table, line by line, of what befell a host and what became of the vault.

``tests/lab/run --peer --mem 4G --timeout 7000 -- python3 tests/lab/failovers.py STORAGE [--count N] [--only WORDS]``;
``make failovers``. Exit status 1 if a host wrote beside another, or anything was lost or differs.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

import failover
import failover_rbd
from failover import Kind, Row, Storage, answers_late, fail, judge
from failover_hosts import ADDRESS, backup, last_run, left_nothing, log, other
from failover_s3 import shared_bucket
from world import eventually

LATE = (
    answers_late(1.0, taken=False),
    answers_late(2.5, taken=False),
    answers_late(12.0, taken=True),
    answers_late(45.0, taken=True),
    answers_late(0.0, 12.0, taken=True),
)
KINDS: tuple[tuple[Kind, tuple[str, ...]], ...] = (
    (failover.HUNG, ("lab", "peer")),
    (failover.ASLEEP_KIND, ("peer",)),
    (LATE[3], ("peer", "lab")),
    (LATE[1], ("peer", "lab")),
    (failover.CUT_OFF, ("peer",)),
    (failover.ALONE, ("peer", "lab")),
    (failover.STOPPED, ("peer", "lab")),
    (LATE[4], ("lab", "peer")),
    (LATE[0], ("peer", "lab")),
    (LATE[2], ("lab", "peer")),
    (failover.KILLED, ("peer", "lab")),
)
"""Each kind with the hosts that it may befall: the guest ``lab`` has the storage, and neither sleeps nor is cut off."""


STORAGES = {
    "bucket": (shared_bucket, KINDS),
    "image": (failover_rbd.shared_image, failover_rbd.KINDS),
}
Kinds = Sequence[tuple[Kind, Sequence[str]]]


def turns(kinds: Kinds, only: str) -> Iterator[tuple[Kind, str]]:
    """Each kind in turn, each time on the next of its hosts."""
    for number in itertools.count():
        for kind, hosts in kinds:
            if only in str(kind):
                yield kind, hosts[number % len(hosts)]


def put_right(storage: Storage, kind: Kind, victim: str) -> None:
    """After a failure that went wrong: both hosts stand by again. Raises AssertionError where they do not."""
    with suppress(AssertionError, subprocess.SubprocessError):
        kind.back(storage, victim)
    for host in ADDRESS:
        eventually(lambda host=host: log(host), partial(stands_by, host), seconds=300, every=5)


def stands_by(host: str) -> bool:
    """Whether nothing of the vault is on a host, and nothing goes on there."""
    return backup(host)["state"] == "idle" and left_nothing(host)


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("storage", choices=STORAGES)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", default="", help="kinds whose name has this")
    given = parser.parse_args()
    rows: list[Row] = []
    bad = 0
    shared, kinds = STORAGES[given.storage]
    with shared(keep=12) as storage:
        for host in ADDRESS:
            eventually("the first run", lambda host=host: last_run(host)["ended"], seconds=240)
        print(failover.HEAD, flush=True)
        for number, (kind, victim) in enumerate(itertools.islice(turns(kinds, given.only), given.count), 1):
            try:
                row = fail(storage, kind, victim, number)
                row.wrote = storage.after(other(victim))
                judge(row)
            except (AssertionError, subprocess.SubprocessError):
                print(f"| {kind} | {victim} | FAILED |", flush=True)
                traceback.print_exc()
                bad += 1
                put_right(storage, kind, victim)
                continue
            rows.append(row)
            good = not row.wrote.counts and not row.lost and row.same and row.scrub == "clean"
            bad += not good
            print(row, "" if good else row.wrote, flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(code)
