"""A crash of the kernel in its log: whose it is, and where; and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.diagnosis.kernel_crash import MOST_CRASH_LINES, CrashReader, KernelCrash

OOPS = """\
BUG: kernel NULL pointer dereference, address: 0000000000000058
#PF: supervisor read access in kernel mode
#PF: error_code(0x0000) - not-present page
PGD 0 P4D 0
Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI
CPU: 1 UID: 0 PID: 4711 Comm: zpool Tainted: P           OE      6.12.118+deb13-amd64 #1  Debian 6.12.118-1
Tainted: [P]=PROPRIETARY_MODULE, [O]=OOT_MODULE, [E]=UNSIGNED_MODULE
Hardware name: QEMU Standard PC (Q35 + ICH9, 2009)
RIP: 0010:sa_find_idx_tab+0x1a/0x90 [zfs]
Code: 00 00 48 89 f5
Call Trace:
 <TASK>
 zfs_grab_sa_handle+0x7a/0xd0 [zfs]
 zfs_obj_to_path+0x4e/0xa0 [zfs]
 </TASK>
---[ end trace 0000000000000000 ]---
"""
PANIC = """\
VERIFY3(0 == sa_setup(os, sa_obj, zfs_attr_table, ZPL_END, &table)) failed (0 == 52)
PANIC at dsl_scan.c:4217:dsl_errorscrub_sync()
Showing stack for process 812
CPU: 0 UID: 0 PID: 812 Comm: txg_sync Tainted: P           OE      6.12.118+deb13-amd64 #1  Debian 6.12.118-1
Call Trace:
 <TASK>
"""
ARM = """\
Unable to handle kernel NULL pointer dereference at virtual address 0000000000000058
Internal error: Oops: 0000000096000004 [#1] SMP
CPU: 2 PID: 99 Comm: a name Not tainted 6.12.0 #1
pc : vfs_read+0x8c/0x320
"""
NONE = """\
BUG: scheduling while atomic: kworker/0:1/12/0x00000002
watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [z_wr_iss:812]
INFO: task txg_sync:812 blocked for more than 120 seconds.
CPU: 1 UID: 0 PID: 4711 Comm: zpool Tainted: P           OE      6.12.118+deb13-amd64 #1
RIP: 0010:sa_find_idx_tab+0x1a/0x90 [zfs]
PANIC at midnight
"""


def read(text: str) -> list[KernelCrash]:
    reader = CrashReader()
    return [one for line in text.splitlines() for one in reader.feed(line)] + list(reader.flush())


@pytest.mark.parametrize(
    ("text", "crash"),
    [
        (OOPS, KernelCrash(4711, "zpool", "sa_find_idx_tab", zfs=True)),
        (PANIC, KernelCrash(812, "txg_sync", "dsl_errorscrub_sync", zfs=True)),
        (ARM, KernelCrash(99, "a name", "vfs_read", zfs=False)),
        (OOPS.replace("RIP:", "rip:"), KernelCrash(4711, "zpool", "", zfs=False)),
    ],
)
def test_whose_it_is_and_where(text: str, crash: KernelCrash) -> None:
    assert read(text) == [crash]
    assert read(NONE + text + NONE) == [crash]


def test_what_is_no_crash() -> None:
    assert read(NONE) == []


def test_each_of_two_is_told() -> None:
    assert [one.pid for one in read(OOPS + PANIC)] == [4711, 812]


def test_in_words() -> None:
    crash = KernelCrash(4711, "zpool", "sa_find_idx_tab", zfs=True)
    assert crash.describe() == "the kernel crashed (Oops) in zpool (process 4711), in sa_find_idx_tab"
    assert "'zpool status cold' (process 4711), which zvault started" in crash.describe("zpool status cold")


@given(st.lists(st.one_of(st.sampled_from((OOPS + PANIC + ARM + NONE).splitlines()), st.text(max_size=40))))
def test_no_line_breaks_it_and_no_report_goes_on_for_ever(lines: list[str]) -> None:
    reader = CrashReader()
    for line in lines:
        list(reader.feed(line))
    for _ in range(MOST_CRASH_LINES):
        list(reader.feed("nothing"))
    assert list(reader.feed("CPU: 1 PID: 4711 Comm: zpool Tainted")) == []
