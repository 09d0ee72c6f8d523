"""What 'zfs diff' prints, as changes below the dataset's root; nothing that it does not print is believed."""

from __future__ import annotations

import pytest

from zvault.zfs.diff import PathChange, parse_diff

PRINTED = (
    "M\t/\t/tank/my\\0040home/\n"
    "+\tF\t/tank/my\\0040home/a\\0012b\n"
    "-\t@\t/tank/my\\0040home/gone\n"
    "R\tF\t/tank/my\\0040home/old\t/tank/my\\0040home/d/\\0377new\n"
    "M\tF\t/tank/my\\0040home/linked\t(+1)\n"
)


def test_the_kinds_of_change() -> None:
    assert parse_diff(PRINTED, "/tank/my home") == [
        PathChange("modified", "d", b""),
        PathChange("created", "f", b"a\nb"),
        PathChange("removed", "l", b"gone"),
        PathChange("renamed", "f", b"old", b"d/\xffnew"),
        PathChange("modified", "f", b"linked"),
    ]


def test_seen_from_the_other_end() -> None:
    made, renamed = PathChange("created", "f", b"a"), PathChange("renamed", "f", b"a", b"b")
    assert made.invert() == PathChange("removed", "f", b"a")
    assert renamed.invert() == PathChange("renamed", "f", b"b", b"a")


def test_the_dataset_of_a_root_file_system() -> None:
    assert parse_diff("M\tF\t/etc/passwd\n", "/") == [PathChange("modified", "f", b"etc/passwd")]


@pytest.mark.parametrize(
    "text",
    ["M\tF\n", "X\tF\t/tank/a\n", "M\tF\t/elsewhere/a\n", "M\tF\t/tankard\n", "M\tF\t/tank/\\q\n", "no\n"],
)
def test_what_it_does_not_print(text: str) -> None:
    with pytest.raises((ValueError, KeyError, IndexError)):
        parse_diff(text, "/tank")
