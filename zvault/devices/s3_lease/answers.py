"""What the processes that keep a lease say: a JSON document to who asked, words to the journal, an error in a file."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from zvault.core.errors import ZvaultError
from zvault.core.printable import make_printable
from zvault.devices.s3_lease.lease import Store


def show(store: Store) -> int:
    """Answer who has the lease, and how old it is. The exit status. Raises ZvaultError where nobody knows."""
    seen = store.read()
    if seen is None or not seen.lease.held:
        return answer({"lease": None})
    return answer({"lease": dataclasses.asdict(seen.lease), "age": seen.age})


def answer(document: Mapping[str, object]) -> int:
    """Print the one document. The exit status."""
    print(json.dumps(document))  # noqa: T201 - the answer of the program
    return 0


def say(text: str) -> None:
    """A line in the unit's journal."""
    print(make_printable(text, keep=""), file=sys.stderr, flush=True)  # noqa: T201 - the unit's journal


def answer_failed(error: ZvaultError) -> int:
    """Answer why there is no other answer. The exit status."""
    answer({"error": _as_data(error)})
    return 1


def tell(error: ZvaultError, report: Path | None) -> int:
    """Say why a lease is not kept, and put it where zvaultd looks for it. The exit status."""
    say(str(error))
    if report is not None:
        report.write_text(json.dumps(_as_data(error)), encoding="utf-8")
    return 1


def _as_data(error: ZvaultError) -> dict[str, str]:
    return {"kind": type(error).__name__, "what": error.what, "why": error.why, "next": error.next}
