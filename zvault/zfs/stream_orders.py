"""What each stream that zvault asks for has to be, as the gate is told (gate/check.py). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.errors import ResumeRefused
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import SnapshotName
from zvault.core.replication.plan_model import TransferAction, TransferStep, list_sent_by
from zvault.core.replication.restore_order import RestoreStream
from zvault.core.replication.stream_flags import SentFlags
from zvault.zfs.gate import records
from zvault.zfs.gate.check import ANY_VALUE, StreamOrder
from zvault.zfs.gate.check import OrderedSnapshot as Ordered
from zvault.zfs.gate.resume_token import BadToken, decode_token
from zvault.zfs.stream_argv import SendFlags

_KINDS = {"filesystem": records.FILESYSTEM, "volume": records.VOLUME}

HARMLESS_FEATURES = (
    records.SA_SPILL
    | records.LZ4
    | records.LARGE_DNODE
    | records.ZSTD
    | records.SWITCH_TO_LARGE_BLOCKS
    | records.LONGNAME
    | records.LARGE_MICROZAP
)
"""Features that depend on what is in the dataset: ``zfs send`` has no flag for them."""


def list_stream_features(flags: SentFlags, *, encrypted: bool) -> tuple[int, int]:
    """The feature bits that a stream with these flags must have, and those that it may have besides.

    Raw (``-w``) is as large, as compressed and as embedded as it is on the disk; and only of an encrypted dataset is
    the stream marked as raw.
    """
    may = HARMLESS_FEATURES
    chosen = {
        records.LARGE_BLOCKS: flags.large_blocks,
        records.COMPRESSED: flags.compressed,
        records.EMBED_DATA: flags.embedded,
    }
    for bit, on in chosen.items():
        may |= bit if on or flags.raw else 0
    return (records.RAW if flags.raw and encrypted else 0), may


def make_step_order(step: TransferStep, source: Dataset, flags: SendFlags) -> StreamOrder:
    """The stream of a step, as ``stream_argv.send_argv`` asks for it. Raises ResumeRefused."""
    if step.kind is TransferAction.RESUME and step.token is not None:
        return make_resumed_order(step.token, step.to, source)
    sent = SentFlags(flags.large_blocks, flags.compressed, flags.embedded, flags.raw)
    must, may = list_stream_features(sent, encrypted=source.encrypted)
    return StreamOrder(
        step.to.dataset,
        _KINDS[source.type],
        0 if step.base is None else step.base.guid,
        _ordered(list_sent_by(step, source.snapshots)),
        package=flags.properties or step.intermediates,
        properties=flags.properties,
        raw=flags.raw,
        must=must,
        may=may,
        clone=step.origin is not None,
    )


def make_restore_order(one: RestoreStream, source: Dataset, *, properties: bool = True) -> StreamOrder:
    """The stream of a restore, as ``stream_argv.restore_send_argv`` asks for it; ``source`` is the vault's dataset."""
    raw = source.encrypted
    must, may = list_stream_features(SentFlags(True, True, not raw, raw), encrypted=raw)
    return StreamOrder(
        one.snapshot.dataset,
        _KINDS[source.type],
        0 if one.base is None else one.base.guid,
        _ordered([one.snapshot]),
        package=raw or properties,
        properties=raw or properties,
        raw=raw,
        must=must,
        may=may,
        clone=one.origin is not None,
    )


def make_heal_order(snapshot: SnapshotName, guid: int, flags: SendFlags) -> StreamOrder:
    """The stream of a healing: nothing is received, so it may be of any type and start from anything."""
    sent = SentFlags(flags.large_blocks, flags.compressed, flags.embedded, flags.raw)
    must, may = list_stream_features(sent, encrypted=flags.raw)
    ordered = (Ordered(guid, snapshot.snapname),)
    return StreamOrder(snapshot.dataset, ANY_VALUE, ANY_VALUE, ordered, must=must, may=may, clone=True)


def make_resumed_order(token: str, to: Snapshot, source: Dataset) -> StreamOrder:
    """The stream that goes on where a token says, which was held against the plan before. Raises ResumeRefused."""
    try:
        told = decode_token(token)
    except BadToken as error:
        raise ResumeRefused("a stream cannot be resumed", f"its resume token is corrupt: {error}") from None
    must, may = list_stream_features(told.flags, encrypted=source.encrypted)
    if source.encrypted:
        must |= records.RAW
    return StreamOrder(
        to.dataset,
        _KINDS[source.type],
        told.from_guid,
        _ordered([to]),
        must=must | records.RESUMING,
        may=may,
        clone=told.from_guid != 0,
    )


def _ordered(snapshots: Sequence[Snapshot]) -> tuple[Ordered, ...]:
    return tuple(Ordered(one.guid, one.snapname) for one in snapshots)
