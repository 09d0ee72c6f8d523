"""What the record says of a backup's datasets, given its ``send`` table; core/replication/send_record.py decides."""

from __future__ import annotations

from zvault.config.schema import Backup
from zvault.core.model import Dataset, Tree
from zvault.core.replication import resume_receive, send_record
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.stream_flags import SentFlags


def choose_sent_flags(backup: Backup, source: Dataset) -> SentFlags:
    """Return the flags that the backup's ``send`` table comes to for one dataset."""
    send = backup.send
    asked = SentFlags(send.large_blocks, send.compressed, send.embedded, send.raw)
    return asked.amounting_to(encrypted=source.encrypted)


def find_sent_flags(vault: Tree, source: Dataset, there: Dataset) -> SentFlags | None:
    """The flags on record of a vault's dataset that follows ``source``, None where there is none."""
    parent = there.name.parent
    return send_record.find_recorded_flags(there, source, vault.get(parent) if parent is not None else None)


def find_backup_conflict(backup: Backup, vault: Tree, pair: DatasetPair) -> FlagConflict | None:
    """Why the vault's dataset cannot be followed with the flags that are wanted now, if it cannot."""
    if pair.vault is None or pair.base is None:
        return None
    before = find_sent_flags(vault, pair.source, pair.vault)
    return send_record.find_flag_conflict(
        pair.source, pair.vault, choose_sent_flags(backup, pair.source), before
    )


def is_key_unproven(vault: Tree, pair: DatasetPair) -> bool:
    """True if only the pools can tell whether the vault's dataset has the key of its source, and it matters."""
    return (
        pair.vault is not None
        and pair.base is not None
        and send_record.needs_proof_of_key(
            pair.source, pair.vault, find_sent_flags(vault, pair.source, pair.vault)
        )
    )


def check_backup_token(
    backup: Backup, vault: Tree, pair: DatasetPair, token: InterruptedReceive
) -> InterruptedReceive:
    """The token, with a problem where its flags no longer go with what is wanted."""
    if pair.vault is None:
        return token
    before = find_sent_flags(vault, pair.source, pair.vault)
    return resume_receive.check_resume_token(
        token, pair.source, pair.vault, choose_sent_flags(backup, pair.source), before
    )
