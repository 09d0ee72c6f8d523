"""How far a backup lagged behind over a time that has passed, as its runs tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def measure_lag_over_time(
    runs: Iterable[tuple[float, float]], begin: float, end: float, count: int
) -> list[float | None]:
    """The highest lag in each of ``count`` equal parts of the time from ``begin`` to ``end``, in seconds.

    ``runs`` are when runs without fault began and ended, in seconds since the epoch: from its end on the vault has what
    the source was at its beginning. None where no run had ended by then: the lag is not known. Of a backup whose vault
    was lost or changed meanwhile they do not tell.
    """
    # Of runs that ended at one moment the newest state counts: the others were never the best that could be had.
    good = sorted(((ended, began) for began, ended in runs), key=lambda run: (run[0], -run[1]))
    width = (end - begin) / count
    return [_highest(good, begin + part * width, begin + (part + 1) * width) for part in range(count)]


def _highest(good: Sequence[tuple[float, float]], first: float, last: float) -> float | None:
    """The highest lag from ``first`` to ``last``: right before a run ended, or at the end."""
    covered, found = None, list[float]()
    for ended, began in good:
        if ended > last:
            break
        if ended > first and covered is not None:
            found.append(ended - covered)
        covered = began if covered is None else max(covered, began)
    if covered is not None:
        found.append(last - covered)
    return max(found, default=None)
