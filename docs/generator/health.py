"""docs/reference/health.md, from the table of conditions in zvault/core/health."""

from __future__ import annotations

from zvault.core.health.conditions import CONDITIONS
from zvault.core.health.verdict import LEVELS, Condition, Kind

INTRO = """\
<!-- Made by docs/generate.py from zvault/core/health. Do not edit. -->

# Health

`zvaultd` judges every backup, every vault and itself in one place. `zvaultctl status` and its exit status, the API, the
metrics, the journal and the alerts all show that verdict. A verdict has a level, a state in one word, and findings,
worst first: the conditions below that hold, each with why, and what to do next.

| level | `zvault_health` | exit status | what it says |
|---|---|---|---|
| ok | 0 | 0 | what was looked at is as it should be |
| unknown | 1 | 3 | nothing is known to be wrong, and something is not known to be well |
| warning | 2 | 1 | something is wrong, or was unknown for too long |
| critical | 3 | 1 | a backup is not to be had, or is about to be lost |

The exit status goes by the worst level of all that is shown: of the named backups and vaults, if any are named. It is 2
if the daemon cannot be asked, or was asked wrongly, and so not for *critical*: `-H`, `-j` and the metric tell that from
a warning. *Ok* is said only of what was shown. What is unknown becomes a warning after `max_lag`, or after a day where
there is none.

A condition that holds has a sample of the metric `zvault_condition`, with its subject, its severity (`unknown`,
`warning` or `critical`), and the alert that fires for it. Conditions without an alert of their own fire
[ZvaultWarning](../runbooks/ZvaultWarning.md) or [ZvaultCritical](../runbooks/ZvaultCritical.md). When the level of a
subject changes, or what holds of it, the journal gets a line with the fields `HEALTH=` (the level) and `CONDITION=`.
"""

HEADS: dict[Kind, str] = {
    "backup": """
## Backups

The state of several conditions of the same level is that of the first.
""",
    "vault": """
## Vaults

A vault that is down is judged by what was seen of it last.
""",
    "daemon": """
## zvaultd

Its name in the metrics is `zvaultd`.
""",
}

COLUMNS = "| condition | level | state | holds when | what it means | next | alert |\n"

END = """
## What is not judged

- A full pool that is down is known only since `zvaultd` started, and whether a pool will be full soon only a day after:
  [ZvaultPoolFullSoon](../runbooks/ZvaultPoolFullSoon.md) tells it from the metrics, also over restarts.
- Whether a base that there was is gone takes a history: [ZvaultBaseLost](../runbooks/ZvaultBaseLost.md) tells that from
  the metrics.
- How long something was unknown is counted from the start of `zvaultd`.
- A clock that was set back while `zvaultd` did not run is not noticed.
- Whether Prometheus and the alerts work: [ZvaultDown](../runbooks/ZvaultDown.md) and
  [ZvaultAbsent](../runbooks/ZvaultAbsent.md) do that.
"""


def health() -> str:
    """The page."""
    return INTRO + "".join(HEADS[kind] + _table(conditions) for kind, conditions in CONDITIONS.items()) + END


def _table(conditions: tuple[Condition, ...]) -> str:
    rows = "".join(map(_row, sorted(conditions, key=lambda one: -LEVELS.index(one.level))))
    return f"\n{COLUMNS}{'|---' * 7}|\n{rows}"


def _row(one: Condition) -> str:
    word = f"`{one.word}`" if one.word else "that of the pool"
    step = one.next.format(name="NAME").replace("|", "\\|")
    alert = one.alert or {"warning": "ZvaultWarning", "critical": "ZvaultCritical"}.get(one.level, "")
    link = f"[{alert}](../runbooks/{alert}.md)" if alert else "none"
    return f"| `{one.key}` | {one.level} | {word} | {one.when} | {one.means} | {step} | {link} |\n"
