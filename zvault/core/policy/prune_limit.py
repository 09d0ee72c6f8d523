"""How much of what retention selects one run may prune of one dataset.

A rule made shorter by mistake, or a clock that is years ahead, selects most of a history for pruning at once. The
limit spreads that over several runs, so that somebody sees it while most of the history is still there:

- of the snapshots that were there before the run, a share may go, the oldest of those selected first;
- what arrived in the run itself neither raises that share nor counts for it: no run lost it yet, and whoever sends
  more snapshots must not be able to have more of the old ones pruned;
- what is left goes in the next runs, so pruning always ends with exactly what the rules keep;
- between runs, as after a snapshot that keeps its own time, a dataset over the limit loses nothing. With a share each
  quarter of an hour a history of 1,000 was 3 in three hours, before anybody could have seen it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from zvault.core.model import Snapshot
from zvault.core.policy.retention import KeepDecision, order_by_prune

ALWAYS_PRUNABLE = 3
"""So many of a dataset's snapshots may always go in one run: what a few failed runs leave is no surprise."""


@dataclass(frozen=True, slots=True)
class PruneExcess:
    """More to prune in one dataset than one run may: ``selected`` of its ``count``, not ``allowed``.

    Counted are the snapshots that were there before the run. Between runs none are ``allowed``.
    """

    dataset: str
    selected: int
    count: int
    allowed: int
    between_runs: bool = False

    @property
    def held_back(self) -> int:
        """The number of selected snapshots that stay for now."""
        return self.selected - self.allowed

    def __str__(self) -> str:
        of = f"{self.selected} of {self.count} snapshots would go"
        return (
            f"{of}, so many only in runs" if self.between_runs else f"{of}, one run may prune {self.allowed}"
        )


def find_prune_excess(
    verdicts: Sequence[KeepDecision],
    share: float,
    ours: Callable[[Snapshot], bool],
    arrived: Container[int] = (),
    *,
    between_runs: bool = False,
) -> PruneExcess | None:
    """Return the excess if the verdicts on one dataset select more than a ``share`` (0 to 1) of zvault's snapshots of
    it.

    What is not ours does not count, nor does what ``arrived`` in this run (GUIDs). A few may always go; a share of 1
    allows whatever the rules select. ``between_runs`` an excess leaves all of it to the next run.
    """
    selected = _limited(verdicts, arrived)
    if len(selected) <= ALWAYS_PRUNABLE:
        return None
    count = sum(1 for one in verdicts if ours(one.snapshot) and one.snapshot.guid not in arrived)
    # In floats 0.29 * 100 is a little less than 29.
    allowed = max(ALWAYS_PRUNABLE, math.floor(share * count + 1e-6))
    if len(selected) <= allowed:
        return None
    return PruneExcess(
        selected[0].dataset, len(selected), count, 0 if between_runs else allowed, between_runs
    )


def limit_prune(
    verdicts: Sequence[KeepDecision], over: PruneExcess | None, arrived: Container[int] = ()
) -> list[KeepDecision]:
    """The same verdicts with only so many selected as are allowed, each of those held back saying why."""
    if over is None:
        return list(verdicts)
    held_back = {snap.guid for snap in _limited(verdicts, arrived)[over.allowed :]}
    reason = f"over prune_limit: {over}"
    return [
        replace(one, keep=True, reason=reason) if not one.keep and one.snapshot.guid in held_back else one
        for one in verdicts
    ]


def _limited(verdicts: Sequence[KeepDecision], arrived: Container[int]) -> list[Snapshot]:
    """The selected snapshots to which the limit applies, in the order in which they are to go."""
    return [one.snapshot for one in order_by_prune(verdicts) if one.snapshot.guid not in arrived]
