"""A folder of a mounted snapshot, as its program lists it: whatever lies in it leads nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from zvault.system import list_folder
from zvault.system.list_folder import answer_question, encode_question, list_folder_argv

SNAPSHOT = "cold/a b@zvault_1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder, and a list of mounts that has the snapshot there."""
    it = tmp_path / "look"
    it.mkdir()
    device = it.stat().st_dev
    (tmp_path / "mounts").write_text(
        "22 1 0:21 / / rw - ext4 /dev/vda1 rw\n"
        f"30 22 {os.major(device)}:{os.minor(device)} / {it} ro - zfs cold/a\\040b@zvault_1 ro\n"
    )
    return it


def listed(folder: Path, path: bytes = b"", first: int = 0, count: int = 100, **more: Any) -> dict[str, Any]:
    asked = json.loads(encode_question(SNAPSHOT, str(folder), path, first, count))
    return answer_question({**asked, **more}, folder.parent / "mounts")


def names(found: dict[str, Any]) -> list[bytes]:
    return [b64decode(one["name"]) for one in found["entries"]]


def test_folders_come_first_and_names_have_any_bytes(folder: Path):
    for name in (b"b", b"a\nb\x1b[31m", b"\xff\xfe", b"-rf", b".zfs"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x" * 5)
    (folder / "z").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    found = listed(folder)
    assert names(found) == [b"z", b"-rf", b"a\nb\x1b[31m", b"b", b"link", b"pipe", b"\xff\xfe"]
    assert (found["total"], found["more"]) == (7, False)
    by_name = {b64decode(one["name"]): one for one in found["entries"]}
    assert (by_name[b"b"]["kind"], by_name[b"b"]["size"]) == ("file", 5)
    assert (by_name[b"link"]["kind"], b64decode(by_name[b"link"]["link"])) == ("link", b"/etc/passwd")
    assert by_name[b"pipe"]["kind"] == "pipe"


def test_no_way_leads_out_of_it(folder: Path):
    (folder / "out").symlink_to("/etc")
    (folder / "loop").symlink_to(".")
    (folder / "file").write_text("")
    (folder / "sub").mkdir()
    for path in (
        b"..",
        b"sub/../..",
        b"out",
        b"loop",
        b"loop/sub",
        b"file",
        b"none",
        b".zfs",
        b"/".join([b"sub"] * 300),
    ):
        assert set(listed(folder, path)) == {"error"}, path
    assert listed(folder, b"sub\0x") == {"error": "this is no path of a snapshot"}
    assert listed(folder, b"//sub/") == {"entries": [], "total": 0, "more": False}


def test_what_else_is_mounted_there_is_not_listed(folder: Path):
    (folder / "secret").write_text("")
    mounts = folder.parent / "mounts"
    assert "not mounted" in listed(folder, snapshot="cold/a b@zvault_2")["error"]
    assert (
        "not mounted"
        in answer_question(json.loads(encode_question(SNAPSHOT, str(folder.parent), b"", 0, 9)), mounts)[
            "error"
        ]
    )
    # Something else was mounted over it since.
    mounts.write_text(mounts.read_text() + f"31 30 0:99 / {folder} rw - tmpfs tmpfs rw\n")
    assert "not mounted" in listed(folder)["error"]


def test_what_is_mounted_below_it_is_not_entered(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "sub").mkdir()
    real, other = os.fstat, (folder / "sub").stat().st_ino

    def fstat(fd: int) -> Any:
        found = real(fd)
        return Path("/proc/self").stat() if found.st_ino == other else found

    monkeypatch.setattr("zvault.system.list_folder.os.fstat", fstat)
    assert listed(folder, b"sub") == {"error": "something else is mounted there"}


def test_a_large_folder_comes_page_by_page_and_not_endlessly(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for number in range(120):
        (folder / f"{number:03}").write_text("")
    assert names(listed(folder, first=50, count=3)) == [b"050", b"051", b"052"]
    assert names(listed(folder, first=500, count=3)) == []
    monkeypatch.setattr(list_folder, "LOOKED_AT", 100)
    found = listed(folder)
    assert (len(found["entries"]), found["total"], found["more"]) == (100, 100, True)


def test_the_program_answers_in_json(folder: Path):
    done = subprocess.run(
        list_folder_argv(),
        input=encode_question(SNAPSHOT, str(folder), b"", 0, 5),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert "not mounted" in json.loads(done.stdout)["error"]
