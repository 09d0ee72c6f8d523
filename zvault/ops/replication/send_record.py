"""What the record says of a backup's datasets, given its ``send`` table; core/replication/send_record.py decides."""

from __future__ import annotations

from zvault.config.schema import Backup
from zvault.core.model import Dataset, Tree
from zvault.core.replication import send_record
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import Interrupted
from zvault.core.replication.send_record import FlagConflict
from zvault.core.replication.stream_flags import SentFlags


def wanted(backup: Backup, source: Dataset) -> SentFlags:
    """Return the flags that the backup's ``send`` table comes to for one dataset."""
    send = backup.send
    asked = SentFlags(send.large_blocks, send.compressed, send.embedded, send.raw)
    return asked.amounting_to(encrypted=source.encrypted)


def recorded(vault: Tree, source: Dataset, there: Dataset) -> SentFlags | None:
    """The flags on record of a vault's dataset that follows ``source``, None where there is none."""
    parent = there.name.parent
    return send_record.recorded(there, source, vault.get(parent) if parent is not None else None)


def misfit(backup: Backup, vault: Tree, pair: DatasetPair) -> FlagConflict | None:
    """Why the vault's dataset cannot be followed with the flags that are wanted now, if it cannot."""
    if pair.vault is None or pair.base is None:
        return None
    before = recorded(vault, pair.source, pair.vault)
    return send_record.misfit(pair.source, pair.vault, wanted(backup, pair.source), before)


def judged(backup: Backup, vault: Tree, pair: DatasetPair, token: Interrupted) -> Interrupted:
    """The token, with a problem where its flags no longer go with what is wanted."""
    if pair.vault is None:
        return token
    before = recorded(vault, pair.source, pair.vault)
    return send_record.judged(token, pair.source, pair.vault, wanted(backup, pair.source), before)
