"""The frame of a process that holds a lease: its arguments, how it takes the lease, and how it says that it failed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zvault.core.errors import Busy, ZvaultError
from zvault.devices.s3_lease.answers import (
    log_lease_line,
    print_lease_answer,
    print_lease_error,
    report_lease_error,
    show_lease,
)
from zvault.devices.s3_lease.lease_object import LeaseContent, LeaseLost, LeaseObjectStore, make_own_lease
from zvault.devices.s3_lease.takeover import BootClock, take_lease, take_lease_over

S = TypeVar("S", bound=LeaseObjectStore)


def make_lease_parser(name: str, *verbs: str) -> argparse.ArgumentParser:
    """The arguments of every such process but ``--bound``; ``show_lease`` and ``take_lease`` print one JSON document
    and end.
    """
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("--of", default="")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--resume", action="store_true")
    return parser


def run_with_lease(
    given: argparse.Namespace,
    opened: Callable[[], S],
    hold: Callable[[S, LeaseContent, str, BootClock], None],
) -> int:
    """Do what the verb says with the lease of the store that is ``opened``; the exit status.

    ``hold`` is given the store, the lease, its ETag and a clock once this host has the lease, and ends the process.
    """
    try:
        store = opened()
        if given.verb == "show":
            return show_lease(store)
        mine, clock = make_own_lease(store.place, given.bound, time.time()), BootClock()
        if given.verb == "take":
            return print_lease_answer({"etag": take_lease_over(store, mine, given.of, log_lease_line, clock)})
        hold(
            store, mine, take_lease(store, mine, resume=given.resume, say=log_lease_line, clock=clock), clock
        )
        return 0
    except (LeaseLost, TimeoutError):
        failure: ZvaultError = Busy("the lease could not be taken", "another host is at it too", "try again")
    except ZvaultError as error:
        failure = error
    return (
        print_lease_error(failure)
        if given.verb in ("show", "take")
        else report_lease_error(failure, given.report)
    )
