"""What the kernel's log says of storage that stands still. The reports are real ones, cut short."""

from __future__ import annotations

import pytest

from zvault.core.diagnosis.hung_tasks import MOST_HUNG_TASK_LINES, HungTaskReader
from zvault.core.diagnosis.stalls import StallSign

ZFS = """\
INFO: task zfs:427 blocked in I/O wait for more than 122 seconds.
      Tainted: P           O        7.2.13-umlzfs1 #1
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:zfs             state:D stack:0     pid:427   tgid:427   ppid:264    task_flags:0x480100 flags:0x00000000
Call Trace:
 [<605bd24d>] schedule+0x3d/0x5f
 [<605bd2a1>] io_schedule+0x20/0x45
 [<120e4117a>] cv_wait_common+0xa9/0x10c [spl]
 [<1215daa5a>] txg_wait_synced_flags+0x12c/0x15b [zfs]
 [<6004f585>] userspace+0x689/0x727"""
TXG_SYNC = """\
INFO: task txg_sync:413 blocked for more than 120 seconds.
Call Trace:
 [<605bd24d>] schedule+0x3d/0x5f"""
JOURNAL = """\
INFO: task jbd2/nbd3-8:99 blocked for more than 120 seconds.
Call Trace:
 schedule+0x3d/0x5f"""
FOREIGN = """\
INFO: task rsync:31 blocked for more than 120 seconds.
Call Trace:
 nfs_wait_bit_killable+0x1e/0x90 [nfs]"""


def signs(*texts: str) -> list[StallSign]:
    reader = HungTaskReader()
    found = [sign for text in texts for line in text.splitlines() for sign in reader.feed(line)]
    return [*found, *reader.flush()]


def test_the_stack_says_that_it_hangs_in_openzfs():
    (sign,) = signs(ZFS)
    assert (sign.kind, sign.pid, sign.zfs, sign.devices) == ("hung_task", 427, True, ())
    assert sign.text == "zfs (process 427) has hung in OpenZFS for more than 2m 2s"


def test_a_thread_of_openzfs_is_known_by_its_name():
    (sign,) = signs(TXG_SYNC)
    assert sign.zfs
    assert sign.text == "txg_sync (process 413) has hung in OpenZFS for more than 2m"


def test_a_device_in_a_name_says_whose_it_is():
    (sign,) = signs(JOURNAL)
    assert (sign.devices, sign.zfs) == (("nbd3",), False)


def test_what_hangs_elsewhere_is_not_ours():
    assert signs(FOREIGN) == []


def test_the_next_report_ends_the_one_before():
    assert [sign.pid for sign in signs(ZFS, FOREIGN, TXG_SYNC, JOURNAL)] == [427, 413, 99]
    # A line of the one must not speak for the other.
    (sign,) = signs(FOREIGN, ZFS)
    assert sign.pid == 427


def test_a_report_that_never_ends_is_given_up():
    reader = HungTaskReader()
    lines = ZFS.splitlines() + [" something else"] * MOST_HUNG_TASK_LINES
    assert [sign.pid for line in lines for sign in reader.feed(line)] == [427]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "block nbd0: Possible stuck request 00000000d9f2b1c4: control (write@4096,4096B). Runtime 90 seconds",
            "nbd0 has not answered for 1m 30s",
        ),
        ("block nbd12: Connection timed out, retrying (1/2 alive)", "nbd12 has not answered in time"),
    ],
)
def test_a_request_that_is_stuck(line: str, text: str):
    (sign,) = signs(line)
    assert (sign.kind, sign.text) == ("stuck_request", text)
    assert sign.devices == (text.split(maxsplit=1)[0],)


@pytest.mark.parametrize(
    "line", ["block nbd0: NBD_DISCONNECT", "nbd0: detected capacity change", "", "INFO: task"]
)
def test_all_else_is_no_sign(line: str):
    assert signs(line) == []
