"""The page of a folder in a mounted snapshot: the command to copy, and what happens where nothing answers."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.daemon.page.page_documents import files_page
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import DeadlineExceeded
from zvault.core.names import SnapshotName
from zvault.daemon.page import file_source
from zvault.daemon.page.file_source import FOLDERS_AT_ONCE, FileSource
from zvault.daemon.page.files_view import make_restore_command, quote_shell_word
from zvault.ops.context import Context
from zvault.ops.state.activity import ActiveMount
from zvault.ops.state.environment import Environment, WallClock

SNAPSHOT = SnapshotName("cold/tank@a")


@given(st.binary(min_size=1, max_size=12).filter(lambda it: b"\0" not in it))
def test_a_shell_reads_back_any_name_and_a_terminal_is_told_nothing(name: bytes):
    word = quote_shell_word(name)
    assert word.isprintable()
    told = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], stdout=subprocess.PIPE, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert told.stdout == name


def test_the_command_restores_one_file_or_all():
    page = files_page("x y")
    assert (
        make_restore_command(page, b"")
        == "mkdir -p /root/restored && zvaultctl restore 'x y' 'x y' /root/restored"
    )
    assert make_restore_command(page, b"-a/b'c").endswith(""" --file='-a/b'"'"'c'""")
    assert make_restore_command(page, b"1\n2").endswith(" --file=$'1\\0122'")


class Runner:
    """Does what it is told to, instead of listing."""

    def __init__(self) -> None:
        self.asked = 0
        self.hangs = True

    async def run(self, argv: Any, **_: Any) -> Any:
        self.asked += 1
        if self.hangs:
            raise DeadlineExceeded("it hangs")
        raise AssertionError(argv)


def source(tmp_path: Path, runner: Any, **page: Any) -> FileSource:
    guarded = {"user": "a", "password": f"file:{tmp_path}/p", **page}
    config = Config.model_validate({"page": guarded})
    context = Context.of(Environment(config, Paths(tmp_path, tmp_path, tmp_path, tmp_path), runner, "host"))
    context.activity.mounts["0a"] = ActiveMount("b", SNAPSHOT, "/mnt/look", 5.0)
    return FileSource(context)


async def test_what_hangs_is_left_alone_for_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now, runner = 1000.0, Runner()
    monkeypatch.setattr(WallClock, "monotonic", lambda _: now)
    it = source(tmp_path, runner, files=True)
    found = await it.page("0a\x000\0")
    assert found is not None
    assert "its pool may hang" in found["error"]
    asked = []
    for _ in range(40):
        now += 30
        found = await it.page("0a\x000\0")
        assert found is not None
        assert found["entries"] == []
        asked.append(runner.asked)
    # At 0, 60, 180, 420 and 900 of 1,200 seconds.
    assert runner.asked == 5
    assert asked[:6] == [1, 2, 2, 2, 2, 3]


async def test_few_are_listed_at_a_time(tmp_path: Path):
    runner = Runner()
    it = source(tmp_path, runner, files=True)
    it._at_work = FOLDERS_AT_ONCE
    found = await it.page("0a\x000\0")
    assert found is not None
    assert "others are being listed" in found["error"]
    assert runner.asked == 0


async def test_nothing_is_listed_but_what_is_mounted_and_where_that_is_wanted(tmp_path: Path):
    runner = Runner()
    assert await source(tmp_path, runner).page("0a\x000\0") is None
    it = source(tmp_path, runner, files=True)
    for subject in ("", "0b\x000\0", "0a\x00x\0", "0a\x00-1\0", "0a\x000\0!", "0a\x000\0YQ"):
        assert await it.page(subject) is None, subject
    assert runner.asked == 0
    assert it.mounts("other") == []
    assert [one["snapshot"] for one in it.mounts("b")] == [SNAPSHOT]
    assert b64encode(b"a") == b"YQ=="
    assert file_source.LIST_FOLDER_DEADLINE < 8


@pytest.mark.parametrize("page", [{}, {"listen": "127.0.0.1:9713"}])
def test_files_take_a_page_for_certain_users(page: Any):
    with pytest.raises(ValueError, match="set user and password, or header and proxies"):
        Config.model_validate({"page": {"files": True, **page}})
