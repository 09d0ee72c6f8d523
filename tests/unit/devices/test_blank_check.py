"""Whether a file holds nothing, by the real blkid and cmp."""

import shutil
from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed
from zvault.devices.blank_check import describe_content
from zvault.devices.blank_check import is_blank as examine
from zvault.system.process.runner import HostRunner

MIB = 1 << 20

pytestmark = pytest.mark.skipif(shutil.which("blkid") is None, reason="blkid is not on PATH")


def file(path: Path, size: int, data: bytes = b"", at: int = 0) -> str:
    with path.open("wb") as handle:
        handle.truncate(size)
        handle.seek(at)
        handle.write(data)
    return str(path)


@pytest.mark.parametrize("size", [512, MIB, MIB + 512, 5 * MIB])
async def test_zeros_are_nothing(tmp_path: Path, size: int):
    assert await examine(file(tmp_path / "a b ü", size), HostRunner()) == (True, "nothing")


@pytest.mark.parametrize("at", [0, MIB - 1, 4 * MIB, 5 * MIB - 1])
async def test_one_byte_at_either_end_is_something(tmp_path: Path, at: int):
    found = await examine(file(tmp_path / "a", 5 * MIB, b"x", at), HostRunner())
    assert found == (False, "data of no kind that blkid knows")


async def test_a_known_signature_is_named(tmp_path: Path):
    swap = file(tmp_path / "a", MIB, b"SWAPSPACE2", 4086)
    with Path(swap).open("r+b") as handle:
        handle.seek(1024)
        handle.write((1).to_bytes(4, "little") + (255).to_bytes(4, "little"))
    blank, what = await examine(swap, HostRunner())
    assert not blank
    assert "swap" in what


@pytest.mark.parametrize("size", [None, 0])
async def test_what_cannot_be_examined_is_not_blank(tmp_path: Path, size: int | None):
    path = tmp_path / "a"
    if size is not None:
        file(path, size)
    with pytest.raises(ToolFailed, match="cannot be examined"):
        await examine(str(path), HostRunner())


def test_describe():
    assert describe_content("TYPE=zfs_member\nLABEL=cold\nVERSION=5000\n") == 'zfs_member "cold"'
    assert describe_content("TYPE=ext4\n") == "ext4"
    assert describe_content("PTUUID=x\nPTTYPE=gpt\n") == "a gpt partition table"
    assert describe_content("USAGE=x\n") == "a signature that blkid knows"
