from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zvault.system.file_trees.target_disks import keep_target_disks


def test_of_each_file_system_one_folder_is_kept(tmp_path: Path) -> None:
    with keep_target_disks() as disks:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            folder = os.open(tmp_path / name, os.O_RDONLY)
            disks.note(folder)
            os.close(folder)
        elsewhere = os.open("/proc", os.O_RDONLY)
        disks.note(elsewhere)
        os.close(elsewhere)
        kept = list(disks.folders.values())
        assert list(disks.folders) == [tmp_path.stat().st_dev, Path("/proc").stat().st_dev]
        disks.write_out()
    for folder in kept:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(folder)


def test_what_the_kernel_could_not_write_is_an_error(tmp_path: Path) -> None:
    with keep_target_disks() as disks:
        # The kernel refuses to sync what is open for its path alone. The lab has a disk that fails: test_restore_exact.
        folder = os.open(tmp_path, os.O_PATH)
        disks.note(folder)
        os.close(folder)
        with pytest.raises(OSError, match="could not be written to disk: Bad file descriptor") as raised:
            disks.write_out()
        assert raised.value.errno == errno.EBADF
