"""The process that compares two trees runs for real: every kind of difference, and none where there is none."""

import os
import shutil
from pathlib import Path

import pytest

from zvault.system.file_trees.tree_worker import start_tree_worker


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "sub" / "deep" / "a\nb").write_bytes(os.urandom(3 << 20))
    (top / "sub" / b"\xff\xfe".decode(errors="surrogateescape")).write_text("odd name")
    (top / "one").write_text("two names")
    os.link(top / "one", top / "sub" / "two")
    os.link(top / "one", top / "sub" / "three")
    (top / "link").symlink_to("no\nwhere")
    os.mkfifo(top / "fifo")
    os.setxattr(top / "one", "user.note", b"mine")
    (top / ".zfs").mkdir()
    return top


def names_in(root: Path) -> list[bytes]:
    return [os.fsencode(path.name) for path in root.iterdir() if path.name != ".zfs"]


@pytest.fixture
async def copy(root: Path, tmp_path: Path) -> Path:
    there = tmp_path / "copy"
    there.mkdir()
    async with start_tree_worker(str(root), str(there)) as worker:
        assert (await worker.copy(names_in(root), overwrite=False)).failures == 0
    shutil.copystat(root, there)
    return there


async def compared(root: Path, folder: Path, names: list[bytes] | None = None) -> dict[str, str]:
    found: dict[str, str] = {}
    last = None
    async with start_tree_worker(str(root), str(folder)) as worker:
        async for last in worker.compare(names):
            if last.unlike is not None:
                path, what, wanted, there = last.unlike
                found[path] = f"{found[path]}, {what}" if path in found else f"{what}: {wanted} / {there}"
    assert last is not None
    assert last.done
    assert last.files <= 7, "directories are not counted"
    return found


async def test_what_was_copied_is_the_same(root: Path, copy: Path) -> None:
    assert await compared(root, copy) == {}
    (copy / "more").write_text("was there before")
    names = names_in(root)
    assert await compared(root, copy, names) == {}
    assert "more" in await compared(root, copy)
    assert set(await compared(root, copy / "sub", [b"sub/deep"])) == set()


async def test_each_difference_is_told_by_its_path(root: Path, copy: Path) -> None:
    data = bytearray((copy / "sub" / "deep" / "a\nb").read_bytes())
    data[2_000_000] ^= 1
    times = (copy / "sub" / "deep" / "a\nb").stat()
    (copy / "sub" / "deep" / "a\nb").write_bytes(data)
    os.utime(copy / "sub" / "deep" / "a\nb", ns=(times.st_atime_ns, times.st_mtime_ns))
    (copy / "sub" / "three").unlink()
    shutil.copy2(copy / "one", copy / "sub" / "three")
    os.setxattr(copy / "one", "user.note", b"other")
    (copy / "link").unlink()
    (copy / "link").symlink_to("elsewhere")
    (copy / "fifo").unlink()
    (copy / "fifo").mkdir()
    stamp = (copy / "link").lstat().st_mtime_ns
    os.utime(root / "link", ns=(stamp, stamp), follow_symlinks=False)
    for one in ("", "sub"):
        seen = (root / one).stat()
        os.utime(copy / one, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    found = await compared(root, copy)
    assert found.pop(r"sub/deep/a\nb") == "content:  / it differs from byte 2000000 on"
    assert found.pop("link") == r"link target: no\nwhere / elsewhere"
    assert found.pop("fifo") == "type: fifo / directory"
    assert found.pop("one").startswith("extended attribute user.note: 6d696e65 / 6f74686572")
    assert found.pop("sub/two").startswith("extended attribute")
    assert found.pop("sub/three") == "hard link: the same file as one / a file of its own"
    assert found == {}


async def test_what_is_missing_or_has_other_traits(root: Path, copy: Path) -> None:
    shutil.rmtree(copy / "sub")
    (copy / "one").chmod(0o600)
    os.utime(copy / "fifo", ns=(5, 1_000_000_001))
    (root / "fifo").chmod(0o4755)
    seen = root.stat()
    os.utime(copy, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    found = await compared(root, copy)
    assert found.pop("sub") == "missing: directory with 5 below it / "
    assert found.pop("one") == "mode: 0644 / 0600"
    assert found.pop("fifo") == "mode: 4755 / 0644, modification time"
    assert found == {}
