"""Blocks picked out of a stream, and put where they lie: on files in the place of devices."""

from __future__ import annotations

import io
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.integrity.block_pointer import BlockPointer, Dva, compute_fletcher4, compute_sha256
from zvault.zfs.gate.records import MAGIC
from zvault.zfs.repair.block_writer import (
    FRONT_LABELS_SIZE,
    PoolBlock,
    RepairFolder,
    RepairTask,
    check_pieces,
    collect_pieces,
    main,
    write_pieces,
)
from zvault.zfs.repair.streamed_blocks import BadStream, pick_streamed_blocks

BEGIN, OBJECT, FREE, WRITE, END, SPILL, EMBEDDED = 0, 1, 4, 3, 5, 7, 8


def record(kind: int, body: bytes = b"", payload: bytes = b"") -> bytes:
    length = len(payload) if kind == BEGIN else 0
    return struct.pack("<II", kind, length) + body.ljust(304, b"\0") + payload


def write(number: int, offset: int, data: bytes, *, logical: int | None = None) -> bytes:
    """``logical``: it is compressed."""
    size = len(data) if logical is None else logical
    body = struct.pack("<QI4xQQQBBB", number, 19, offset, size, 1, 7, 0, int(logical is not None)).ljust(
        88, b"\0"
    )
    return record(WRITE, body + struct.pack("<Q", 0 if logical is None else len(data)), data)


def other(number: int) -> list[bytes]:
    """One of each kind that has a payload."""
    bonus = struct.pack("<QIIII", number, 19, 44, 4096, 13)
    raw = struct.pack("<QIIIIBBBBI", number, 19, 44, 4096, 13, 0, 0, 0, 0, 320)
    embedded = struct.pack("<QQQQBB6xII", number, 0, 512, 1, 0, 0, 512, 21)
    spill = struct.pack("<QQQBB6xQ", number, 512, 1, 0, 0, 96)
    return [
        record(OBJECT, bonus, b"b" * 16),
        record(OBJECT, raw, b"r" * 320),
        record(EMBEDDED, embedded, b"e" * 24),
        record(SPILL, spill, b"s" * 96),
        record(SPILL, spill[:32], b"s" * 512),
        record(FREE),
    ]


def stream(*records: bytes, payload: bytes = b"") -> io.BytesIO:
    begin = record(BEGIN, struct.pack("<Q", MAGIC), payload)
    return io.BytesIO(begin + b"".join(records) + record(END))


def piece(number: int, offset: int, data: bytes, *dvas: Dva, logical: int | None = None) -> PoolBlock:
    pointer = BlockPointer(
        dvas or (Dva(0, 0x1000 * (number + offset)),),
        0,
        "fletcher4",
        "lz4",
        "unencrypted",
        big_endian=False,
        gang=False,
        logical=len(data) if logical is None else logical,
        physical=len(data),
        birth=7,
        words=compute_fletcher4(data, "<"),
    )
    return PoolBlock(number, offset, pointer)


def test_all_kinds_of_records_are_passed_over():
    found = list(
        pick_streamed_blocks(
            stream(*other(3), write(3, 0, b"x" * 512), *other(4), payload=b"n" * 40), {(3, 0)}
        )
    )
    assert [(one.number, one.offset, one.logical, one.data) for one in found] == [(3, 0, 512, b"x" * 512)]


@given(st.integers(0, 2000))
def test_a_stream_that_is_cut_off_is_told(at):
    whole = stream(*other(3), write(3, 0, b"x" * 512)).getvalue()
    with pytest.raises(BadStream):
        list(pick_streamed_blocks(io.BytesIO(whole[: min(at, len(whole) - 1)]), set()))


def test_what_is_no_stream_is_told():
    with pytest.raises(BadStream):
        list(pick_streamed_blocks(io.BytesIO(b"\1" * 4096), set()))


@pytest.fixture
def folder(tmp_path: Path) -> RepairFolder:
    path = tmp_path / "pieces"
    path.mkdir()
    return RepairFolder(path)


def test_only_bytes_with_the_checksum_are_picked(folder: RepairFolder):
    good, padded = os.urandom(1024), os.urandom(600) + bytes(424)
    here, there, changed = (
        piece(3, 0, good),
        piece(3, 8192, padded, logical=8192),
        piece(4, 0, os.urandom(1024)),
    )
    folder.begin(RepairTask([here, there, changed], {}))
    collect_pieces(
        stream(
            write(4, 0, os.urandom(1024)),
            write(3, 0, good),
            write(3, 8192, padded[:600], logical=8192),
            write(3, 8192, os.urandom(600), logical=8192),
        ),
        folder,
    )
    assert [folder.has(one) for one in (here, there, changed)] == [True, True, False]
    assert folder.bytes_of(there) == padded


def forge(data: bytes) -> bytes:
    """Other bytes with the same four sums: the fourth difference of its words is zero for every cubic weight."""
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    for at, change in enumerate((1, -4, 6, -4, 1)):
        words[at] += change
    return struct.pack(f"<{len(words)}I", *words)


def test_what_one_other_host_sends_is_not_believed_for_its_fletcher_sums(folder: RepairFolder):
    honest = struct.pack("<128I", *range(1000, 1128))
    forged = forge(honest)
    wanted = piece(3, 0, honest)
    assert honest != forged
    assert wanted.pointer.fits(forged)
    folder.begin(RepairTask([wanted], {}))
    collect_pieces(stream(write(3, 0, forged)), folder, "hostile")
    collect_pieces(stream(write(3, 0, forged)), folder, "hostile")
    assert (folder.has(wanted), folder.lacks_confirmation(wanted)) == (False, True)
    collect_pieces(stream(write(3, 0, honest)), folder, "honest")
    assert (folder.has(wanted), folder.lacks_confirmation(wanted)) == (False, True), "two hosts, two contents"
    collect_pieces(stream(write(3, 0, honest)), folder, "another")
    assert folder.bytes_of(wanted) == honest
    assert not folder.lacks_confirmation(wanted)


def test_this_hosts_own_copy_and_a_cryptographic_checksum_need_no_second_host(folder: RepairFolder):
    data = os.urandom(512)
    own, signed = piece(3, 0, data), piece(4, 0, data)
    signed = replace(
        signed, pointer=replace(signed.pointer, checksum="sha256", words=compute_sha256(data, "<"))
    )
    folder.begin(RepairTask([own, signed], {}))
    collect_pieces(stream(write(3, 0, data), write(4, 0, data)), folder, "other")
    assert [folder.has(one) for one in (own, signed)] == [False, True]
    collect_pieces(stream(write(3, 0, data)), folder)
    assert folder.has(own)


def test_two_births_of_one_block_are_told_apart(folder: RepairFolder):
    old, new = os.urandom(512), os.urandom(512)
    first, second = piece(3, 0, old, Dva(0, 0)), piece(3, 0, new, Dva(0, 512))
    folder.begin(RepairTask([first, second], {}))
    collect_pieces(stream(write(3, 0, new)), folder)
    assert (folder.has(first), folder.has(second)) == (False, True)
    folder.begin(RepairTask([first], {}))
    collect_pieces(stream(write(3, 0, old)), folder)
    assert folder.bytes_of(first) == old


def test_it_ends_when_it_has_everything(folder: RepairFolder):
    data = os.urandom(512)
    folder.begin(RepairTask([piece(3, 0, data)], {}))
    it = stream(write(3, 0, data), *other(4))
    collect_pieces(it, folder)
    assert it.tell() == 2 * 312 + 512


def disk(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.write_bytes(os.urandom(FRONT_LABELS_SIZE + 65536))
    return path


def test_every_copy_that_is_wrong_is_written_and_nothing_else(folder: RepairFolder, tmp_path: Path):
    disks = [disk(tmp_path, name) for name in "abc"]
    data = os.urandom(1024)
    one = piece(3, 0, data, Dva(0, 4096), Dva(1, 8192))
    sound = piece(3, 1024, data, Dva(1, 8192))
    folder.begin(RepairTask([one, sound], {}))
    collect_pieces(stream(write(3, 0, data), write(3, 1024, data)), folder)
    before = [path.read_bytes() for path in disks]
    # The first vdev is a mirror, of whose devices one is right.
    with disks[1].open("r+b") as file:
        file.seek(FRONT_LABELS_SIZE + 4096)
        file.write(data)
    vdevs = {0: [str(disks[0]), str(disks[1])], 1: [str(disks[2])]}
    folder.begin(RepairTask([one, sound], vdevs))
    assert check_pieces(folder) == [False, False]
    assert write_pieces(folder) == ["written", "sound"]
    assert check_pieces(folder) == [True, True]
    for path, was, offset in zip(disks, before, (4096, 4096, 8192), strict=True):
        at = FRONT_LABELS_SIZE + offset
        assert path.read_bytes() == was[:at] + data + was[at + 1024 :]
    assert write_pieces(folder) == ["sound", "sound"]


def test_bytes_that_do_not_fit_are_never_written(
    folder: RepairFolder, tmp_path: Path, capsys: pytest.CaptureFixture
):
    path, data = disk(tmp_path, "a"), os.urandom(512)
    one = piece(3, 0, data, Dva(0, 0))
    folder.begin(RepairTask([one], {0: [str(path)]}))
    folder.keep(one, os.urandom(512))
    before = path.read_bytes()
    assert main(["put", str(folder.path)]) == 1
    assert path.read_bytes() == before
    assert "do not have the block's checksum" in capsys.readouterr().err


def test_a_block_on_a_device_that_nobody_named_is_told(folder: RepairFolder, capsys: pytest.CaptureFixture):
    one = piece(3, 0, os.urandom(512), Dva(4, 0))
    folder.begin(RepairTask([one], {}))
    assert main(["look", str(folder.path)]) == 1
    assert "vdev 4" in capsys.readouterr().err


def test_a_device_that_takes_nothing_is_told_of_that_block_alone(
    folder: RepairFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, data = disk(tmp_path, "a"), os.urandom(512)
    bad, good = piece(3, 0, data, Dva(0, 0)), piece(3, 512, data, Dva(0, 4096))
    folder.begin(RepairTask([bad, good], {0: [str(path)]}))
    for one in (bad, good):
        folder.keep(one, data)
    real = os.pwrite

    def refuses(fd: int, content: bytes, at: int) -> int:
        if at == FRONT_LABELS_SIZE:
            raise OSError(5, "Input/output error")
        return real(fd, content, at)

    monkeypatch.setattr(os, "pwrite", refuses)
    assert write_pieces(folder) == ["lost", "written"]


def test_a_block_is_written_to_the_copies_whose_device_takes_it(
    folder: RepairFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From one that is right OpenZFS reads, and repairs the others by itself."""
    disks, data = [disk(tmp_path, name) for name in "ab"], os.urandom(512)
    one = piece(3, 0, data, Dva(0, 0), Dva(1, 8192))
    folder.begin(RepairTask([one], {0: [str(disks[0])], 1: [str(disks[1])]}))
    folder.keep(one, data)
    real = os.pwrite

    def refuses(fd: int, content: bytes, at: int) -> int:
        if at == FRONT_LABELS_SIZE:
            raise OSError(5, "Input/output error")
        return real(fd, content, at)

    monkeypatch.setattr(os, "pwrite", refuses)
    assert write_pieces(folder) == ["written"]
    assert disks[1].read_bytes()[FRONT_LABELS_SIZE + 8192 :][:512] == data


def test_a_device_that_is_not_there_is_told(folder: RepairFolder, capsys: pytest.CaptureFixture):
    folder.begin(RepairTask([], {0: ["/nowhere/at/all"]}))
    assert main(["put", str(folder.path)]) == 1
    assert "/nowhere/at/all" in capsys.readouterr().err
