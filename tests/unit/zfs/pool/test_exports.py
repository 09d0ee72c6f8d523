"""Who exports a pool is found by its command line, and old processes are not read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.zfs.pool import exports
from zvault.zfs.pool.exports import ExportWatch


def process(proc: Path, pid: int, *words: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cmdline").write_text("".join(f"{word}\0" for word in words))


def test_an_export_under_way_is_seen_by_its_process(tmp_path: Path) -> None:
    process(tmp_path, 10, "zpool", "export", "other")
    process(tmp_path, 11, "zpool", "list", "cold")
    process(tmp_path, 12, "zpool", "export", "-f", "cold")
    (tmp_path / "self").mkdir()
    (tmp_path / "13").mkdir()  # it ended between two looks
    found = ExportWatch(tmp_path)
    assert [found.find_exporter(pool) for pool in ("cold", "other", "col")] == [12, 10, None]
    (tmp_path / "12" / "cmdline").unlink()
    (tmp_path / "12").rmdir()
    assert found.find_exporter("cold") is None
    assert ExportWatch(tmp_path / "nothing").find_exporter("cold") is None


def test_a_new_process_may_still_become_one(tmp_path: Path) -> None:
    found = ExportWatch(tmp_path)
    process(tmp_path, 10, "/usr/bin/python3", "zvaultd")  # a child before it is zpool
    assert found.find_exporter("cold") is None
    process(tmp_path, 10, "zpool", "export", "cold")
    assert found.find_exporter("cold") == 10
    assert found.find_exporter("cold") == 10


def test_old_processes_are_not_read_again_but_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(exports.time, "monotonic", lambda: now)
    found = ExportWatch(tmp_path)
    process(tmp_path, 10, "sh")
    assert found.find_exporter("cold") is None
    now += exports.PROCESS_SETTLED
    process(tmp_path, 10, "zpool", "export", "cold")
    assert found.find_exporter("cold") is None
    assert found.everywhere("cold") == 10
    assert found.find_exporter("cold") == 10, "it is known from now on"


def test_a_number_that_is_given_anew_is_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(exports.time, "monotonic", lambda: now)
    found = ExportWatch(tmp_path)
    process(tmp_path, 10, "sh")
    found.find_exporter("cold")
    now += exports.PROCESS_SETTLED
    (tmp_path / "10" / "cmdline").unlink()
    (tmp_path / "10").rmdir()
    found.find_exporter("cold")
    process(tmp_path, 10, "zpool", "export", "cold")
    assert found.find_exporter("cold") == 10
