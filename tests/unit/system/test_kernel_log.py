"""The kernel's log. A pipe in packet mode stands for /dev/kmsg: one read, one record."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.unit.patience import PATIENCE, eventually
from zvault.system import kernel_log
from zvault.system.kernel_log import KernelLog, KernelRecord, follow_kernel_log, parse_kernel_record


@pytest.mark.parametrize(
    ("raw", "record"),
    [
        (
            b"6,339,5140900,-;NET: Registered protocol family 10\n",
            KernelRecord(339, True, "NET: Registered protocol family 10"),
        ),
        (
            b"3,7,1,-,caller=T1;block nbd0: a;b\n SUBSYSTEM=block\n DEVICE=b43:0\n",
            KernelRecord(7, True, "block nbd0: a;b"),
        ),
        (
            b"30,340,5690716,-;systemd[1]: INFO: task x:1 blocked\n",
            KernelRecord(340, False, "systemd[1]: INFO: task x:1 blocked"),
        ),
    ],
)
def test_a_record_and_who_wrote_it(raw: bytes, record: KernelRecord):
    assert parse_kernel_record(raw) == record


@pytest.fixture
def log() -> Iterator[tuple[KernelLog, int]]:
    read, write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    opened = KernelLog.__new__(KernelLog)
    opened.fd = read
    yield opened, write
    opened.close()
    with contextlib.suppress(OSError):
        os.close(write)


def test_reading_never_waits(log: tuple[KernelLog, int]):
    opened, write = log
    assert list(opened.read()) == []
    os.write(write, b"6,1,0,-;one\n")
    os.write(write, b"nonsense")
    os.write(write, b"6,2,0,-;two\n")
    assert [record.text for record in opened.read()] == ["one", "two"]
    assert list(opened.read()) == []


async def test_records_are_passed_on_and_silence_is_told(
    log: tuple[KernelLog, int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kernel_log, "QUIET_TIME", PATIENCE)
    opened, write = log
    heard: list[str] = []
    os.write(write, b"6,1,0,-;was there\n")
    following = asyncio.create_task(
        follow_kernel_log(opened, lambda record: heard.append(record.text), lambda: heard.append(""))
    )
    await eventually(lambda: heard == ["was there"])
    monkeypatch.setattr(kernel_log, "QUIET_TIME", 0.05)
    os.write(write, b"6,2,0,-;comes\n")
    await eventually(lambda: "" in heard)
    assert heard == ["was there", "comes", ""]
    await asyncio.sleep(0.15)
    assert heard == ["was there", "comes", ""], "silence is told once"
    os.write(write, b"6,3,0,-;later\n")
    await eventually(lambda: heard[3:] == ["later", ""])
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


def test_a_log_that_systemd_has_opened_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(kernel_log, "FIRST_GIVEN", read - 1)
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDNAMES", "other:kmsg")
    os.write(write, b"6,339,5140900,-;text")
    log = KernelLog()
    assert [record.text for record in log.read()] == ["text"]
    log.close()
    os.close(read)
    os.close(write)
    monkeypatch.setenv("LISTEN_PID", "1")
    assert kernel_log._given() is None
