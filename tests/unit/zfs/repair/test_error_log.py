"""Where blocks lie: zdb is asked for all objects of a snapshot at once, and its output is not believed too much."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fuzz.mutation import seed
from tests.unit.zfs.repair.test_zdb_objects import FORGED, part
from zvault.system.process.runner import ProcessResult
from zvault.zfs.repair.error_log import ASKED, ErrorLog, _offsets

ZDB = """#!/bin/sh
# What it was asked for, and what it is recorded to have said of that.
shift 5
echo "$*" >>"$ANSWERS/asked"
[ -e "$ANSWERS/$*" ] || { echo "zdb: dmu_object_info() failed, errno 2" >&2; exit 1; }
cat "$ANSWERS/$*"
"""
ZSTD = seed("zfs_output", "zdb-blocks-of-one").decode()
"""Object 2, which has blocks 0 to 2 and an attribute whose name has a line of zdb's."""


class Recorded:
    """Runs commands with a zdb that says what was recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tool = folder / "zdb"
        tool.write_text(ZDB)
        tool.chmod(0o755)

    def says(self, numbers: str, text: str) -> None:
        (self.folder / numbers).write_text(text, errors="surrogateescape")

    @property
    def asked(self) -> list[str]:
        return (self.folder / "asked").read_text().splitlines()

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        env = os.environ | {"PATH": f"{self.folder}:{os.environ['PATH']}", "ANSWERS": str(self.folder)}
        env["LC_ALL"] = "C.UTF-8"
        done = await asyncio.to_thread(subprocess.run, argv, env=env, capture_output=True)
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return ProcessResult(tuple(argv), done.returncode, out, err, 0.0)


@pytest.fixture
def zdb(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path)


async def found(zdb: Recorded, wanted: dict[int, list[int]]) -> dict[tuple[int, int], int]:
    pointers = await ErrorLog(zdb, "w", ["/d"]).pointers("w/a@s", wanted)
    return {block: pointer.dvas[0].offset for block, pointer in pointers.items()}


async def test_blocks_of_several_objects_are_asked_for_once(zdb: Recorded):
    zdb.says("3 5", part(3) + part(5))
    assert await found(zdb, {5: [0], 3: [0]}) == {(3, 0): 0xC5000, (5, 0): 0x50000}
    assert zdb.asked == ["3 5"]


async def test_blocks_by_their_numbers_whatever_size_they_have(zdb: Recorded):
    zdb.says("2", ZSTD)
    assert await found(zdb, {2: [0, 2, 3, 16]}) == {(2, 0): 0x78000, (2, 2): 0xB8000}
    assert zdb.asked == ["2"]


async def test_where_a_name_has_lines_of_zdbs_each_is_asked_for_alone(zdb: Recorded):
    zdb.says("2 3 4 5 6", FORGED)
    for number in (2, 3, 4, 5, 6):
        zdb.says(str(number), part(number))
    got = await found(zdb, {number: [0] for number in (2, 3, 4, 5, 6)})
    assert got == {(2, 0): 0x78000, (3, 0): 0xC5000, (4, 0): 0x51000, (5, 0): 0x50000}
    assert zdb.asked == ["2 3 4 5 6", "2", "3", "4", "5", "6", "6"]


async def test_a_name_of_any_bytes_hides_nothing(zdb: Recorded):
    zdb.says("3", part(3).replace("/two", "/f\n               0 L0 \udcff"))
    assert await found(zdb, {3: [0]}) == {(3, 0): 0xC5000}


async def test_one_that_is_not_there_takes_no_other_with_it(zdb: Recorded):
    zdb.says("3", part(3))
    assert await found(zdb, {3: [0], 9: [0]}) == {(3, 0): 0xC5000}


async def test_of_a_zdb_that_failed_nothing_is_believed(zdb: Recorded):
    (zdb.folder / "zdb").write_text(ZDB + "exit 134\n")
    # It ends within a name that looks like all of zdb's own.
    text = part(5).replace("\tpath\t/q\n", "\tpath\t/q\nIndirect blocks:\n")
    zdb.says("5", text[: text.index("\tuid")] + "\nended 0\n")
    assert await found(zdb, {5: [0]}) == {}


async def test_of_many_blocks_some_are_asked_for_at_a_time(zdb: Recorded):
    zdb.says("2", ZSTD)
    zdb.says("2 3", ZSTD + part(3))
    zdb.says("3", part(3))
    assert len(await found(zdb, {2: list(range(2 * ASKED)), 3: [0]})) == 4


async def test_objects_with_lines_of_zdbs_in_their_names_are_told_apart(zdb: Recorded):
    numbers = (2, 3, 4, 5, 6)
    ranges = " ".join(f"{number}:{number + 1}" for number in numbers)
    zdb.says(ranges, FORGED)
    zdb.says("2 3 4 5 6", FORGED)
    for number in numbers:
        zdb.says(str(number), part(number))
    seen = await ErrorLog(zdb, "w", ["/d"]).objects("w/a@s", numbers)
    assert {number: one.path for number, one in seen.items()} == {
        2: "/plain",
        3: "/two",
        4: None,
        5: None,
        6: "/link",
    }
    assert zdb.asked == [ranges, "2 3 4 5 6", "2", "3", "4", "5", "6"]


@given(st.integers(0, 1 << 40), st.integers(9, 24))
def test_every_block_is_looked_for_where_its_size_puts_it(block: int, shift: int):
    assert re.fullmatch(_offsets({7: [block]}), f"{block << shift:x}")
