"""What is ordered of each kind of stream is what OpenZFS sends then, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.zfs.gate.hostile_bytes import token
from tests.unit.zfs.gate.real_heads import HEADS
from zvault.core.errors import ResumeRefused
from zvault.core.model import Bookmark, Dataset, DatasetType, Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.restore_order import RestoreStream
from zvault.zfs.gate.check import StreamCheck, StreamOrder
from zvault.zfs.gate.records import RECORD, BadStream
from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.stream_orders import make_heal_order, make_restore_order, make_resumed_order, make_step_order

FLAGS = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
RAW = SendFlags(large_blocks=True, compressed=True, embedded=False, raw=True, properties=True)


def source(name: str, *guids: int, kind: DatasetType = "filesystem", encrypted: bool = False) -> Dataset:
    dataset = DatasetName(name)
    first = {"tank/a": 1, "tank/c": 4, "tank/enc": 1}[name]
    snapshots = tuple(
        Snapshot(dataset, f"s{first + place}", guid, 10 * first + place, 1)
        for place, guid in enumerate(guids)
    )
    return Dataset(dataset, 7, kind, snapshots=snapshots, encrypted=encrypted)


A = source("tank/a", 1726508938390326858, 8815666385147926065, 17364591955687936715)
C = source("tank/c", 15170612538055966235)
ENC = source("tank/enc", 2812700956555180340, 5255439936461937920, encrypted=True)
S1, S2, S3 = A.snapshots
MARK = Bookmark(A.name, "b1", S1.guid, S1.createtxg, 1)
RESUMED = token(
    {
        "object": 3,
        "offset": 0x140000,
        "bytes": 5,
        "toguid": S1.guid,
        "toname": "tank/a@s1",
        "compressok": True,
        "embedok": True,
    }
)

FULL = TransferStep(TransferAction.FULL, S1)
ORDERS = {
    "full": make_step_order(FULL, A, replace(FLAGS, properties=False)),
    "full_p": make_step_order(FULL, A, FLAGS),
    "I": make_step_order(
        TransferStep(TransferAction.INCREMENTAL, S3, S1, intermediates=True),
        A,
        replace(FLAGS, properties=False),
    ),
    "I_p": make_step_order(TransferStep(TransferAction.INCREMENTAL, S3, S1, intermediates=True), A, FLAGS),
    "bm_p": make_step_order(TransferStep(TransferAction.INCREMENTAL, S3, MARK), A, FLAGS),
    "clone_p": make_step_order(
        TransferStep(TransferAction.INCREMENTAL, C.snapshots[0], S2, origin=SnapshotName("cold/a@s2")),
        C,
        FLAGS,
    ),
    "raw_p": make_step_order(TransferStep(TransferAction.FULL, ENC.snapshots[0]), ENC, RAW),
    "raw_inc": make_step_order(
        TransferStep(TransferAction.INCREMENTAL, ENC.snapshots[1], ENC.snapshots[0]), ENC, RAW
    ),
    "b": make_restore_order(RestoreStream(S1), A),
    "resume": make_resumed_order(RESUMED, S1, A),
}


def admit(order: StreamOrder, head: bytes) -> None:
    """Give a check all of a head. Raises BadStream."""
    check, at = StreamCheck(order), 0
    while at < len(head):
        record = head[at : at + RECORD]
        begins, size = check.record(record)
        at += RECORD + size
        if begins:
            check.begin(record, head[at - size : at])


@pytest.mark.parametrize("name", ORDERS)
def test_what_openzfs_sends_is_what_was_ordered(name: str) -> None:
    admit(ORDERS[name], HEADS[name])


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("other", HEADS)
def test_no_other_stream_will_do(name: str, other: str) -> None:
    # "b" differs from "full_p" by the properties in it, which either may have.
    if name == other or {name, other} == {"b", "full_p"}:
        return
    with pytest.raises(BadStream):
        admit(ORDERS[name], HEADS[other])


def test_an_encrypted_dataset_is_raw_or_refused() -> None:
    plain = ORDERS["raw_p"]._replace(must=0)
    with pytest.raises(BadStream, match="-w"):
        admit(plain, HEADS["raw_p"])
    lying = ORDERS["raw_p"]._replace(must=ORDERS["raw_p"].must | ORDERS["resume"].must)
    with pytest.raises(BadStream, match="lacks"):
        admit(lying, HEADS["raw_p"])


def test_a_healing_takes_a_stream_of_its_snapshot_from_any_base() -> None:
    order = make_heal_order(SnapshotName("tank/a@s1"), S1.guid, replace(FLAGS, properties=False))
    admit(order, HEADS["full"])
    for other in ("full_p", "R", "clone_p", "resume"):
        with pytest.raises(BadStream):
            admit(order, HEADS[other])


def test_a_stream_is_not_resumed_by_what_is_no_token() -> None:
    with pytest.raises(ResumeRefused, match="corrupt"):
        make_step_order(TransferStep(TransferAction.RESUME, S1, token="1-abc"), A, FLAGS)
