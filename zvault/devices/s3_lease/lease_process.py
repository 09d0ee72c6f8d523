"""The frame of a process that holds a lease: its arguments, how it takes the lease, and how it says that it failed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zvault.core.errors import Busy, ZvaultError
from zvault.devices.s3_lease.answers import answer, answer_failed, say, show, tell
from zvault.devices.s3_lease.lease import Lease, LeaseLost, Store, ours
from zvault.devices.s3_lease.takeover import Clock, take, take_over

S = TypeVar("S", bound=Store)


def arguments(name: str, *verbs: str) -> argparse.ArgumentParser:
    """The arguments of every such process but ``--bound``; ``show`` and ``take`` print one JSON document and end."""
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("--of", default="")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--resume", action="store_true")
    return parser


def with_lease(
    given: argparse.Namespace, opened: Callable[[], S], hold: Callable[[S, Lease, str, Clock], None]
) -> int:
    """Do what the verb says with the lease of the store that is ``opened``; the exit status.

    ``hold`` is given the store, the lease, its ETag and a clock once this host has the lease, and ends the process.
    """
    try:
        store = opened()
        if given.verb == "show":
            return show(store)
        mine, clock = ours(store.place, given.bound, time.time()), Clock()
        if given.verb == "take":
            return answer({"etag": take_over(store, mine, given.of, say, clock)})
        hold(store, mine, take(store, mine, resume=given.resume, say=say, clock=clock), clock)
        return 0
    except (LeaseLost, TimeoutError):
        failure: ZvaultError = Busy("the lease could not be taken", "another host is at it too", "try again")
    except ZvaultError as error:
        failure = error
    return answer_failed(failure) if given.verb in ("show", "take") else tell(failure, given.report)
