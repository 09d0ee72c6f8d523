"""What the processes that keep a lease say: a JSON document to who asked, words to the journal, an error in a file."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from zvault.core.errors import ZvaultError
from zvault.core.printable import make_printable
from zvault.devices.s3_lease.lease_object import LeaseObjectStore


def show_lease(store: LeaseObjectStore) -> int:
    """Answer who has the lease, and how old it is. The exit status. Raises ZvaultError where nobody knows."""
    seen = store.read()
    if seen is None or not seen.lease.held:
        return print_lease_answer({"lease": None})
    return print_lease_answer({"lease": dataclasses.asdict(seen.lease), "age": seen.age})


def print_lease_answer(document: Mapping[str, object]) -> int:
    """Print the one document. The exit status."""
    print(json.dumps(document))  # noqa: T201 - the answer of the program
    return 0


def log_lease_line(text: str) -> None:
    """A line in the unit's journal."""
    print(make_printable(text, keep=""), file=sys.stderr, flush=True)  # noqa: T201 - the unit's journal


def print_lease_error(error: ZvaultError) -> int:
    """Answer why there is no other answer. The exit status."""
    print_lease_answer({"error": _as_data(error)})
    return 1


def report_lease_error(error: ZvaultError, report: Path | None) -> int:
    """Say why a lease is not kept, and put it where zvaultd looks for it, if that can be. The exit status."""
    log_lease_line(str(error))
    if report is not None:
        try:
            report.write_text(json.dumps(_as_data(error)), encoding="utf-8")
        except OSError as trouble:
            # What comes after this, as to say that a server has stopped, others wait for.
            log_lease_line(f"{report} cannot be written: {trouble}")
    return 1


def _as_data(error: ZvaultError) -> dict[str, str]:
    return {"kind": type(error).__name__, "what": error.what, "why": error.why, "next": error.next}
