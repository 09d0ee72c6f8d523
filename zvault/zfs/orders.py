"""What each stream that zvault asks for has to be, as the gate is told (gate/check.py). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.errors import ResumeRefused
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import SnapshotName
from zvault.core.replication.plan_model import Action, Step, sent_by
from zvault.core.replication.restore_order import Stream
from zvault.core.replication.stream_flags import SentFlags
from zvault.zfs.gate import records
from zvault.zfs.gate.check import ANY, Order
from zvault.zfs.gate.check import Snapshot as Ordered
from zvault.zfs.gate.resume_token import BadToken, decode
from zvault.zfs.stream import Flags

_KINDS = {"filesystem": records.FILESYSTEM, "volume": records.VOLUME}

HARMLESS = (
    records.SA_SPILL
    | records.LZ4
    | records.LARGE_DNODE
    | records.ZSTD
    | records.SWITCH_TO_LARGE_BLOCKS
    | records.LONGNAME
    | records.LARGE_MICROZAP
)
"""Features that depend on what is in the dataset: ``zfs send`` has no flag for them."""


def features(flags: SentFlags, *, encrypted: bool) -> tuple[int, int]:
    """The feature bits that a stream with these flags must have, and those that it may have besides.

    Raw (``-w``) is as large, as compressed and as embedded as it is on the disk; and only of an encrypted dataset is
    the stream marked as raw.
    """
    may = HARMLESS
    chosen = {
        records.LARGE_BLOCKS: flags.large_blocks,
        records.COMPRESSED: flags.compressed,
        records.EMBED_DATA: flags.embedded,
    }
    for bit, on in chosen.items():
        may |= bit if on or flags.raw else 0
    return (records.RAW if flags.raw and encrypted else 0), may


def step_order(step: Step, source: Dataset, flags: Flags) -> Order:
    """The stream of a step, as ``stream.send_argv`` asks for it. Raises ResumeRefused."""
    if step.kind is Action.RESUME and step.token is not None:
        return resumed_order(step.token, step.to, source)
    sent = SentFlags(flags.large_blocks, flags.compressed, flags.embedded, flags.raw)
    must, may = features(sent, encrypted=source.encrypted)
    return Order(
        step.to.dataset,
        _KINDS[source.type],
        0 if step.base is None else step.base.guid,
        _ordered(sent_by(step, source.snapshots)),
        package=flags.properties or step.intermediates,
        properties=flags.properties,
        raw=flags.raw,
        must=must,
        may=may,
        clone=step.origin is not None,
    )


def restore_order(one: Stream, source: Dataset, *, properties: bool = True) -> Order:
    """The stream of a restore, as ``stream.restore_send_argv`` asks for it; ``source`` is the vault's dataset."""
    raw = source.encrypted
    must, may = features(SentFlags(True, True, not raw, raw), encrypted=raw)
    return Order(
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


def heal_order(snapshot: SnapshotName, guid: int, flags: Flags) -> Order:
    """The stream of a healing: nothing is received, so it may be of any type and start from anything."""
    sent = SentFlags(flags.large_blocks, flags.compressed, flags.embedded, flags.raw)
    must, may = features(sent, encrypted=flags.raw)
    ordered = (Ordered(guid, snapshot.snapname),)
    return Order(snapshot.dataset, ANY, ANY, ordered, must=must, may=may, clone=True)


def resumed_order(token: str, to: Snapshot, source: Dataset) -> Order:
    """The stream that goes on where a token says, which was held against the plan before. Raises ResumeRefused."""
    try:
        told = decode(token)
    except BadToken as error:
        raise ResumeRefused("a stream cannot be resumed", f"its resume token is corrupt: {error}") from None
    must, may = features(told.flags, encrypted=source.encrypted)
    if source.encrypted:
        must |= records.RAW
    return Order(
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
