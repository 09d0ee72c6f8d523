"""docs/reference/health.md, from the table of conditions in zvault/core/health."""

from __future__ import annotations

from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import VERDICT_LEVELS, HealthCondition, SubjectKind

INTRO = """\
<!-- Made by docs/generate.py from zvault/core/health. Do not edit. -->

# Health

`zvaultd` makes one verdict on every backup, every vault and itself. `zvaultctl status` and its exit status, the API,
the metrics, the journal and the alerts all show that verdict. A verdict has a level, a state in one word, and
findings, worst first: the conditions below that hold, each with the reason, and what to do next.

| level | `zvault_health` | exit status | meaning |
|---|---|---|---|
| ok | 0 | 0 | everything that was checked is as it should be |
| unknown | 1 | 3 | nothing is known to be wrong, but something is not known to be well |
| warning | 2 | 1 | something is wrong, or was unknown for too long |
| critical | 3 | 1 | a backup is not available, or is about to be lost |

The exit status is that of the worst level shown: of the named backups and vaults, if any are named. *Critical* exits
with 1 like a warning, because 2 means that zvaultd cannot be reached or was asked wrongly; `-H`, `-j` and the metric
tell the two apart. *Ok* applies only to what was shown. What is unknown becomes a warning after `max_lag`, or after a
day without one.

A condition that holds has a sample of the metric `zvault_condition`, with its subject, its severity (`unknown`,
`warning` or `critical`), and the alert that fires for it. Conditions without an alert of their own fire
[ZvaultWarning](../runbooks/ZvaultWarning.md) or [ZvaultCritical](../runbooks/ZvaultCritical.md). When the level or the
conditions of a subject change, the journal gets a line with the fields `HEALTH=` (the level) and `CONDITION=`.
"""

HEADS: dict[SubjectKind, str] = {
    "backup": """
## Backups

If several conditions of the same level hold, the state is that of the first.
""",
    "vault": """
## Vaults

A vault that is down is judged by its last known state.
""",
    "daemon": """
## zvaultd

Its name in the metrics is `zvaultd`.
""",
}

COLUMNS = "| condition | level | state | holds when | what it means | next | alert |\n"

END = """
## What is not judged

- After a restart, `zvaultd` does not know that a pool that is down is full, and for a day not whether a pool will be
  full soon. [ZvaultPoolFullSoon](../runbooks/ZvaultPoolFullSoon.md) finds that in the metrics, also over restarts.
- To see that a base is gone takes a history: [ZvaultBaseLost](../runbooks/ZvaultBaseLost.md) finds it in the metrics.
- The time for which something was unknown counts from the start of `zvaultd`.
- A clock that was set back while `zvaultd` did not run is not noticed.
- Prometheus and the alerts themselves: [ZvaultDown](../runbooks/ZvaultDown.md) and
  [ZvaultAbsent](../runbooks/ZvaultAbsent.md) watch these.
"""


def health() -> str:
    """The page."""
    return INTRO + "".join(HEADS[kind] + _table(conditions) for kind, conditions in CONDITIONS.items()) + END


def _table(conditions: tuple[HealthCondition, ...]) -> str:
    rows = "".join(map(_row, sorted(conditions, key=lambda one: -VERDICT_LEVELS.index(one.level))))
    return f"\n{COLUMNS}{'|---' * 7}|\n{rows}"


def _row(one: HealthCondition) -> str:
    word = f"`{one.word}`" if one.word else "that of the pool"
    step = one.next.format(name="NAME").replace("|", "\\|")
    alert = one.alert or {"warning": "ZvaultWarning", "critical": "ZvaultCritical"}.get(one.level, "")
    link = f"[{alert}](../runbooks/{alert}.md)" if alert else "none"
    return f"| `{one.key}` | {one.level} | {word} | {one.when} | {one.means} | {step} | {link} |\n"
