"""docs/reference/metrics.md, from what a daemon that has nothing to tell would expose, and from the errors."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import Metric

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.diagnosis.stalls import STALL_KINDS
from zvault.core.errors import ZvaultError
from zvault.daemon.assemble import assemble_daemon
from zvault.daemon.metrics.exporter import POOL_STATES

INTRO = """\
<!-- Made by docs/generate.py from zvault/daemon/metrics/exporter.py. Do not edit. -->

# Metrics

`zvaultd` serves metrics for Prometheus at `http://127.0.0.1:9712/metrics`; `metrics` in `[daemon]` sets another
address, or "off". A scrape reads only memory, so it is answered even while a pool hangs. `zvaultd` checks vaults
every 5 seconds and lags every 15.

An unknown value has no sample: missing is not zero. Counters start at zero with each start of `zvaultd`. Labels
name backups, vaults, devices and datasets, never a snapshot. If a backup has more datasets than `metrics_datasets` in
`[daemon]`, one series with `dataset="*"` stands for all: the largest lag, age and base age, missing if that of any
dataset is unknown, and the sum of pending snapshots.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

REASONS = """
## Reasons

The label `reason` of `zvault_backup_failures_total`, the field `REASON=` in the journal, and `reason` in the API's
errors:

| reason | |
|---|---|
"""


def metrics() -> str:
    """The page."""
    return INTRO + "".join(map(row, families())) + states() + REASONS + "".join(reasons())


def families() -> list[Metric]:
    """What a daemon exposes, without samples: nothing is configured."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        daemon = assemble_daemon(Config(), Paths(etc=here, run=here, state=here))
        with contextlib.closing(daemon.history):
            return list(daemon.metrics.exporter().collect())


def row(family: Metric) -> str:
    """One metric, by the name that a query uses."""
    ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
    # The class keeps its labels to itself; an info's are those of its one sample.
    labels = getattr(family, "_labelnames", ()) or next((tuple(s.labels) for s in family.samples), ())
    named = ", ".join(f"`{label}`" for label in labels)
    kind = "gauge" if family.type == "info" else family.type
    return f"| `{family.name}{ending}` | {kind} | {named} | {family.documentation} |\n"


def states() -> str:
    """The values of a pool's state, and of a stall's kind."""
    return (
        f"\n`state` is one of {listed(state.lower() for state in POOL_STATES)}, `kind` one of "
        f"{listed(STALL_KINDS)}.\n"
    )


def listed(words: Iterable[str]) -> str:
    """``a, b``, as code."""
    return ", ".join(f"`{word}`" for word in words)


def reasons() -> Iterator[str]:
    """Every kind of error by its reason."""
    for kind in ZvaultError.__subclasses__():
        text = " ".join((kind.__doc__ or "").split("\n\n")[0].replace("``", "`").split())
        yield f"| `{kind.reason}` | {text} |\n"
    yield f"| `{ZvaultError.reason}` | anything else |\n"
