"""Lag: how old the newest thing is that a vault could give back.

It is read from the GUIDs that are on the vault, never from what zvault remembers to have sent. What is not
known is None, which is never small.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo

from zvault.core.dates import reject_future
from zvault.core.model import Snapshot


@dataclass(frozen=True, slots=True)
class DatasetLag:
    """The facts that one dataset's lag is counted from, whenever that is asked (``age``), and how many snapshots the
    vault lacks (``pending``, None where that is not known).

    ``newest_on_vault`` is None where the vault has nothing of it, or nobody knows. ``base`` is when the base was made,
    in seconds since the epoch; it may be a bookmark whose snapshot is gone. ``unchanged`` is until when the dataset was
    as that snapshot, where a run has seen that: what the vault has is no older than that.
    """

    dataset: str
    newest_on_vault: Snapshot | None
    pending: int | None
    base: int | None = None
    unchanged: float | None = None

    def covered(self, now: float) -> float | None:
        """The last moment that the vault is known to have, in seconds since the epoch; None where it is not known.

        A snapshot dated later than now was made when a clock was wrong, and says nothing of how old it is; what a run
        saw since does.
        """
        if self.newest_on_vault is None:
            return None
        # Written out, as each scrape asks it several times of each dataset.
        made = reject_future(self.newest_on_vault.creation, now)
        until = reject_future(self.unchanged, now) if self.unchanged is not None else None
        if made is None or until is None:
            return until if made is None else made
        return max(made, until)

    def age(self, now: float) -> float | None:
        """The lag in seconds at a time, in seconds since the epoch; None where it is not known, or there is none.

        It grows with the clock until the vault is read again.
        """
        covered = self.covered(now)
        return None if covered is None else now - covered


def describe_lag_basis(lag: DatasetLag, zone: tzinfo, now: float) -> str:
    """Say in words what a dataset's lag rests on; times are told in a ``zone``."""
    if lag.newest_on_vault is None:
        known = "the vault has no snapshot of it that zvault made for this backup"
        return known if lag.pending is not None else "nobody has seen yet what the vault has of it"
    told = f"the vault has @{lag.newest_on_vault.snapname}, made {_when(lag.newest_on_vault.creation, zone)}"
    made, covered = reject_future(lag.newest_on_vault.creation, now), lag.covered(now)
    if made is None:
        told += ", which is later than now: a clock was wrong, so how old it is is not known"
    if covered is not None and (made is None or covered > made):
        told += f", and nothing was written to the source until {_when(covered, zone)}"
    if lag.pending is None:
        return f"{told}; it is not known whether the source has newer ones"
    if not lag.pending:
        return f"{told}; the source has no newer one"
    return f"{told}; the source has {lag.pending} newer {'one' if lag.pending == 1 else 'ones'}"


def _when(seconds: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(seconds, zone).strftime("%Y-%m-%d %H:%M")


def measure_dataset_lag(
    source: Sequence[Snapshot],
    vault_guids: Collection[int],
    *,
    dataset: str = "",
    unchanged: Mapping[int, float] | None = None,
) -> DatasetLag:
    """The lag of a dataset with the snapshots ``source``, in any order.

    Pass only the snapshots that ought to reach the vault: the others would count as pending for ever.
    ``dataset`` names it where ``source`` may be empty. ``unchanged`` tells by GUID until when it was as a snapshot.
    """
    guids = frozenset(vault_guids)
    there = [snap for snap in source if snap.guid in guids]
    name = dataset or (source[0].dataset if source else "")
    if not there:
        return DatasetLag(name, None, len(source))
    newest = max(there, key=_age)
    pending = sum(_age(snap) > _age(newest) for snap in source)
    until = (unchanged or {}).get(newest.guid)
    return DatasetLag(name, newest, pending, unchanged=until)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    # The transaction group is the order of history; creation times go back when a clock is set back.
    return snapshot.createtxg, snapshot.creation
