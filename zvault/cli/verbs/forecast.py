"""zvaultctl run -n: what a run that began now would do."""

from __future__ import annotations

from collections.abc import Iterator

from zvault.api import routes
from zvault.api.backups import ForecastDocument
from zvault.cli.daemon_client import read_document
from zvault.cli.event_text import format_plural
from zvault.cli.options import TableForm
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    UNKNOWN_STATUS,
    USAGE_STATUS,
    print_document,
    print_lines,
    print_trouble,
)
from zvault.cli.verbs.plan import format_not_snapshotted, format_to_send
from zvault.cli.verbs.prune import format_to_prune
from zvault.core.units import format_size


def show_forecast(backup: str, *, no_snapshot: bool, json: bool) -> int:
    """Show it; returns the exit status."""
    found = read_document(routes.FORECAST, backup=backup, snapshot=0 if no_snapshot else None)
    if json:
        print_document("forecast", found)
    else:
        print_lines(_told(found))
    if found["refused"] is not None:
        print_trouble(f"no run could start now: {found['refused']}")
        return USAGE_STATUS
    if not found["vault_seen"]:
        return UNKNOWN_STATUS
    conflict = any(dataset["action"] == "conflict" for dataset in found["datasets"])
    return TROUBLE_STATUS if conflict or found.get("not_snapshotted") else OK_STATUS


def _told(found: ForecastDocument) -> Iterator[str]:
    form = TableForm()
    where = f"into vault {found['vault']}" if found["vault"] is not None else "(snapshots only)"
    yield f"a run of {found['backup']} {where} would now do this; nothing was touched"
    yield "what was written in the last seconds may not count yet: ZFS counts it once it is on disk"
    yield ""
    if found["snapshot"] is not None:
        yield f"snapshot: @{found['snapshot']} of {format_plural(len(found['snapshotted']), 'dataset')}"
    else:
        yield "snapshot: none"
    yield from format_not_snapshotted(found.get("not_snapshotted", []))
    if not found["vault_seen"]:
        written = sum(dataset["written"] for dataset in found["datasets"])
        yield f"written since the newest snapshots: {format_size(written)}"
        yield (
            f"vault {found['vault']} is down, so what it has is not known, nor what would be sent and pruned: "
            f"'zvaultctl plan {found['backup']}' brings it up to look"
        )
        return
    yield ""
    if found["vault"] is not None:
        yield from format_to_send(found["datasets"], form)
        yield ""
    yield from format_to_prune(found, verbose=False, form=form)
    if found["not_foreseen"]:
        yield f"not known is what would be pruned of {', '.join(found['not_foreseen'])}"
