"""Runs: those in the history, and what starts one."""

from typing import Literal, TypedDict

from zvault.core.errors import ErrorDocument

RunResult = Literal["ok", "partial", "failed", "interrupted", "skipped"]


class RunDocument(TypedDict):
    """One run of the history; one that is under way has no end, result or seconds."""

    id: str
    backup: str
    trigger: str
    started: float
    ended: float | None
    result: RunResult | None
    bytes: int
    datasets: int
    sent: int
    pruned: int
    error: ErrorDocument | None
    warning: str | None
    seconds: float | None


class HistoryAnswer(TypedDict):
    """Past runs, the newest first."""

    runs: list[RunDocument]


class RunBody(TypedDict, total=False):
    """A request to run a backup: with ``snapshot`` false it makes none, and sends those that are there.

    With ``all_vaults`` the name may be that of a backup with several vaults: one run into each, of one snapshot.
    """

    snapshot: bool
    all_vaults: bool


class PruneBody(TypedDict, total=False):
    """A request to prune: with ``over_limit`` also what prune_limit holds back."""

    over_limit: bool


class VerifyBody(TypedDict, total=False):
    """A request to verify, and how thoroughly; ``sample`` where it is left out."""

    level: Literal["guids", "sample", "full", "drill"]
