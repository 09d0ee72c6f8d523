"""On which folders a snapshot may be mounted: none that somebody else could lead elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from zvault.system.mount_folder import check_folder_argv, find_folder_trouble


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "with a blank"
    found.mkdir(mode=0o755)
    return found


def test_an_empty_folder_of_ones_own(folder: Path):
    assert find_folder_trouble(str(folder)) == ""
    done = subprocess.run(check_folder_argv(str(folder)), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", ["", "mnt", "/", "/mnt/../etc", "/mnt//x", "/mnt/"])
def test_only_plain_absolute_paths(path: str):
    assert find_folder_trouble(path) == "it is no plain absolute path"


def test_what_is_not_there_or_no_folder(folder: Path):
    assert "No such file" in find_folder_trouble(str(folder / "no"))
    (folder / "file").touch()
    assert find_folder_trouble(str(folder / "file")) == f"{folder}/file is no folder"
    assert "is no folder" in find_folder_trouble(str(folder / "file" / "x"))


def test_what_has_something_in_it(folder: Path):
    (folder / "file").touch()
    assert find_folder_trouble(str(folder)) == "it is not empty"


def test_no_link_anywhere_on_the_way(folder: Path):
    link = folder.parent / "link"
    link.symlink_to(folder)
    (folder / "sub").mkdir()
    assert find_folder_trouble(str(link)) == f"{link} is a symbolic link"
    assert find_folder_trouble(str(link / "sub")) == f"{link} is a symbolic link"


def test_nothing_that_others_may_write_to(folder: Path):
    inner = folder / "sub"
    inner.mkdir(mode=0o755)
    folder.chmod(0o777)
    assert find_folder_trouble(str(inner)) == f"others may write to {folder}, and could lead it elsewhere"
    folder.chmod(0o1777)
    assert find_folder_trouble(str(inner)) == "", "in a folder as /tmp nobody renames what belongs to another"
    inner.chmod(0o775)
    assert find_folder_trouble(str(inner)) == f"others may write to {inner}, and could lead it elsewhere"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_nothing_that_belongs_to_another(folder: Path):
    os.chown(folder, 12345, 12345)
    assert find_folder_trouble(str(folder)) == f"{folder} belongs to user 12345, who could lead it elsewhere"


def test_nothing_where_something_is_mounted():
    assert find_folder_trouble("/proc") == "something is mounted there"
