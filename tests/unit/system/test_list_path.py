"""The scripts of one path: what they list, and that no link and no name leads them astray."""

from __future__ import annotations

import os
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest

from zvault.system.hash_files import LINK_ON_THE_WAY, content_argv, parse_list, path_argv

NAMES = [
    b"plain",
    b"two\nlines",
    b"\xff\xfe",
    b"back\\slash",
    b"-n",
    b"it's",
    b"\x1b[31mred",
    b" a  b ",
    b"$(id)",
]


def listed(root: Path, path: bytes, most: int | None = 100) -> dict[bytes, str]:
    done = subprocess.run(path_argv(str(root), path, most), capture_output=True, check=True)
    assert done.stderr == b""
    return {one.path: one.kind for one in parse_list(done.stdout.decode())}


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_listed_and_read(tmp_path: Path, name: bytes) -> None:
    folder = tmp_path / "a b" / os.fsdecode(name)
    folder.mkdir(parents=True)
    (folder / os.fsdecode(name)).write_bytes(b"content\0")
    (folder / "link").symlink_to("/etc")
    path = b"a b/" + name
    assert listed(tmp_path, path) == {b"": "d", name: "f", b"link": "l"}
    assert listed(tmp_path, path, None) == {b"": "d"}
    read = subprocess.run(content_argv(str(tmp_path), path + b"/" + name, 4), capture_output=True, check=True)
    assert b64decode(read.stdout) == b"cont"


def test_the_root_is_without_zfs_s_folder(tmp_path: Path) -> None:
    for folder in (".zfs/snapshot", "sub/.zfs"):
        (tmp_path / folder).mkdir(parents=True)
    assert listed(tmp_path, b"") == {b"": "d", b"sub": "d"}
    assert listed(tmp_path, b"sub") == {b"": "d", b".zfs": "d"}
    assert listed(tmp_path, b"sub/.zfs") == {b"": "d"}


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (b"none", b"none/below", b"file/below"):
        assert listed(tmp_path, path) == {}


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "dangling").symlink_to("nowhere")
    assert listed(tmp_path, b"out") == {b"": "l"}
    assert listed(tmp_path, b"in/dangling") == {b"": "l"}
    for argv in (
        path_argv(str(tmp_path), b"out/passwd", 9),
        content_argv(str(tmp_path), b"out/passwd", 9),
        content_argv(str(tmp_path), b"out", 9),
    ):
        done = subprocess.run(argv, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (LINK_ON_THE_WAY, b"")


def test_a_folder_of_many_is_cut(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"f{number}").touch()
    assert len(listed(tmp_path, b"", 10)) == 11
