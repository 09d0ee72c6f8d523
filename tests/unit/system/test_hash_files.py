"""The scripts that list and hash run for real here: names of any bytes, files of any size, and what is missing."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from zvault.core.integrity.verification import (
    HASHED_PIECE,
    ContentRange,
    KeyRange,
    KeySpread,
    select_content_ranges,
)
from zvault.system import hash_files

NAMES = [
    b"plain", b"sp ace", b"new\nline", b"back\\slash\\n", b"\xff\xfebad", b"-dash", b"q'uote\"", b"end\n", b" lead",
    b"d/e/f", b"\\\n", b"$(x)`y`", b"%s\\0",
]  # fmt: skip


def run(argv: list[str], stdin: bytes = b"") -> str:
    done = subprocess.run(argv, capture_output=True, input=stdin, check=True, timeout=60)
    assert not done.stderr
    return done.stdout.decode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "the root's"
    for name in NAMES:
        path = os.path.join(os.fsencode(top), name)  # noqa: PTH118 - of bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(b"this is " + name)
    (top / ".zfs").mkdir()
    (top / ".zfs" / "hidden").write_text("no")
    (top / "link").symlink_to("to\nwhere")
    return top


def hashed(root: Path, wanted: list[ContentRange]) -> dict[ContentRange, str]:
    found: dict[ContentRange, str] = {}
    for batch in hash_files.split_in_hash_batches(wanted):
        found |= hash_files.parse_hashes(batch, run(hash_files.hash_argv(str(root), batch)))
    return found


def test_every_name_is_listed_and_hashed(root: Path) -> None:
    listed = hash_files.parse_list(
        run(hash_files.list_argv(str(root), KeySpread.of(77), KeyRange(), everything=False))
    )
    assert sorted(one.path for one in listed) == sorted(NAMES)
    wanted = [*select_content_ranges(listed, KeySpread.of(77), KeyRange())]
    assert hashed(root, wanted) == {one: hashlib.sha256(b"this is " + one.path).hexdigest() for one in wanted}


def test_the_parts_of_the_ring_are_the_same_here_and_in_awk(root: Path) -> None:
    mix, met = KeySpread.of(123_456_789_012), []
    for part in KeyRange(60_000, 65_521).parts(7):
        listed = hash_files.parse_list(run(hash_files.list_argv(str(root), mix, part, everything=False)))
        assert all(part.has(mix.key(one.number)) for one in listed)
        met += [one.path for one in listed]
    assert sorted(met) == sorted(NAMES)


def test_folders_and_links_are_listed_where_all_is(root: Path) -> None:
    listed = hash_files.parse_list(
        run(hash_files.list_argv(str(root), KeySpread.of(7), KeyRange(), everything=True))
    )
    assert {one.path: one.link for one in listed if one.kind == "l"} == {b"link": b"to\nwhere"}
    assert {one.path for one in listed if one.kind == "d"} == {b"d", b"d/e"}
    only = hash_files.parse_list(
        run(hash_files.list_argv(str(root), KeySpread.of(7), KeyRange(), everything=True, name="d/e/[f]?*"))
    )
    assert only == []


def test_a_large_file_is_hashed_by_pieces(root: Path) -> None:
    data = os.urandom(3000) * ((HASHED_PIECE + 5000) // 3000)
    (root / "big\n").write_bytes(data)
    wanted = [
        ContentRange(b"big\n", HASHED_PIECE, 0, HASHED_PIECE),
        ContentRange(b"big\n", len(data) - HASHED_PIECE, HASHED_PIECE, HASHED_PIECE),
    ]
    assert list(hashed(root, wanted).values()) == [
        hashlib.sha256(part).hexdigest() for part in (data[:HASHED_PIECE], data[HASHED_PIECE:])
    ]


def test_of_a_volume_the_device_itself_is_hashed(root: Path) -> None:
    device = root / "plain"
    piece = ContentRange(b"", 13, 0, HASHED_PIECE)
    assert hashed(device, [piece]) == {piece: hashlib.sha256(b"this is plain").hexdigest()}
    assert str(piece) == "bytes 0 to 13"


def test_what_is_missing_has_no_hash_and_is_complained_of(root: Path) -> None:
    batch = [ContentRange(b"plain", 5), ContentRange(b"gone", 5)]
    done = subprocess.run(hash_files.hash_argv(str(root), batch), capture_output=True, text=True, timeout=60)
    assert list(hash_files.parse_hashes(batch, done.stdout)) == batch[:1]
    assert hash_files.list_read_complaints(done.stderr)
    alone = [ContentRange(b"gone", 5, 0, HASHED_PIECE)]
    done = subprocess.run(hash_files.hash_argv(str(root), alone), capture_output=True, text=True, timeout=60)
    assert hash_files.list_read_complaints(done.stderr)


def test_batches_keep_within_one_script_and_never_mix() -> None:
    many = [ContentRange(b"n" * 200, 1) for _ in range(1000)] + [
        ContentRange(b"x", HASHED_PIECE, n * HASHED_PIECE, HASHED_PIECE) for n in range(9)
    ]
    found = list(hash_files.split_in_hash_batches(many))
    assert [one for batch in found for one in batch] == many
    for batch in found:
        assert len({one.length for one in batch}) == 1
        assert len(hash_files.hash_argv("/r", batch)[2]) < 100_000
        assert sum(one.size for one in batch) <= hash_files.HASH_BATCH
