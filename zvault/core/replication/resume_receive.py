"""Whether an interrupted receive is resumed by its token (``receive_resume_token``), or given up, and why.

A token is given up (``zfs receive -A``) where the source cannot serve it any more, where it is not for this receive, or
where it was begun with flags that are not wanted now. dataset_plan.py plans the rest of the dataset accordingly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from zvault.core.model import Base, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive, TransferAction, TransferStep
from zvault.core.replication.stream_flags import SentFlags

ResumeFault = Literal[
    "snapshot-gone", "base-gone", "replaced", "corrupt", "flags", "changed", "refused", "damaged", "other"
]
"""Why a resume token was given up, as the metric says it."""

_FAULTS: tuple[tuple[str, ResumeFault], ...] = (
    ("incremental source", "base-gone"),
    ("no longer the same snapshot", "replaced"),
    ("no longer exists", "snapshot-gone"),
    ("gone from the source", "snapshot-gone"),
    ("corrupt", "corrupt"),
    ("it was begun with", "flags"),
    ("was changed since", "changed"),
    ("did not take it", "refused"),
    ("is damaged", "damaged"),
)


def classify_resume_fault(reason: str) -> ResumeFault:
    """The short word for why a token was given up, from the words that zfs or zvault found for it."""
    return next((word for phrase, word in _FAULTS if phrase in reason), "other")


def check_resume_token(
    token: InterruptedReceive, source: Dataset, vault: Dataset, wanted: SentFlags, before: SentFlags | None
) -> InterruptedReceive:
    """The same token, with a problem if the flags it was begun with no longer go with those ``wanted``.

    A token tells ``-L`` only where there are large blocks, so that it does not is no proof: what the dataset has on
    record from when it was begun (``before``) is. Only for a full stream is this decided here: to what follows on
    something, ``send_record.find_flag_conflict`` applies.
    """
    begun = token.flags
    if token.problem or begun is None:
        return token
    if begun.raw != source.encrypted:
        how = "with -w, and the dataset is not encrypted" if begun.raw else "without -w, and goes raw now"
        return replace(token, problem=f"it was begun {how}")
    if wanted.raw:
        return token
    large = begun.large_blocks or (before is not None and before.large_blocks)
    known = begun.large_blocks or before is not None
    if not vault.snapshots and known and large != wanted.large_blocks:
        how = "with -L, and that is off now" if large else "without -L, and that is on now"
        return replace(token, problem=f"it was begun {how}")
    return token


def explain_useless_token(
    interrupted: InterruptedReceive,
    source: Dataset,
    target: DatasetName,
    vault: Dataset | None,
    base: tuple[Base, Snapshot] | None,
    branched: Snapshot | None,
) -> str:
    """Why a token must be given up, or "" where the receive can go on. ``target`` is where
    the backup belongs; ``vault`` what lies there, ``base`` that of both sides, and ``branched`` the snapshot of which
    the vault's dataset is a clone.
    """
    if interrupted.problem:
        return interrupted.problem
    if all(snap.guid != interrupted.to_guid for snap in source.snapshots):
        return "the snapshot it was sending is gone from the source"
    if strays := interrupted.strays(source.name.pool, _list_stream_bases(vault, branched)):
        return strays
    if vault is None or not vault.snapshots:
        return ""
    changed = base is None or base[1].guid != vault.snapshots[-1].guid or vault.written
    return f"{target} was changed since it began" if changed else ""


def _list_stream_bases(vault: Dataset | None, branched: Snapshot | None) -> set[int]:
    """The GUIDs that a stream into the vault's dataset can start from, 0 for one in full."""
    if vault is not None and vault.snapshots:
        return {vault.snapshots[-1].guid}
    return {0} if branched is None else {branched.guid}


def make_resume_step(interrupted: InterruptedReceive, source: Dataset, vault: Dataset | None) -> TransferStep:
    """The stream that goes on with an interrupted receive, whose snapshot the source has."""
    to = next(snap for snap in source.snapshots if snap.guid == interrupted.to_guid)
    reason = f"an interrupted receive of {to.snapname} waits on the vault"
    reason += f", {interrupted.progress}" if interrupted.progress else ""
    over = vault is not None and vault.placeholder
    return TransferStep(TransferAction.RESUME, to, token=interrupted.token, reason=reason, over=over)
