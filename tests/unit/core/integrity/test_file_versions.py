"""Versions fold what did not change; patterns mean what a shell's would."""

import pytest

from zvault.core.integrity.file_versions import fold_versions, matches_path
from zvault.core.integrity.verification import TreeEntry
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName


def snap(number: int) -> Snapshot:
    return Snapshot(DatasetName("cold/a"), f"s{number}", number, number, number)


def entry(number: int, mtime: str) -> TreeEntry:
    return TreeEntry(number, "f", "644", "0:0", 1, mtime, b"a")


def test_a_file_that_came_changed_went_and_came_back():
    first, second = entry(7, "1.0"), entry(7, "2.0")
    states = [{}, {b"a": first}, {b"a": first}, {b"a": second}, {}, {b"a": second}]
    found = fold_versions([(snap(n), state) for n, state in enumerate(states)])
    assert [(one.first.snapname, one.last.snapname, one.count, one.entry) for one in found] == [
        ("s5", "s5", 1, second),
        ("s3", "s3", 1, second),
        ("s1", "s2", 2, first),
    ]


@pytest.mark.parametrize(
    ("pattern", "path", "meant"),
    [
        ("*.pdf", b"docs/a/thesis.pdf", True),
        ("*.pdf", b"thesis.pdf.old", False),
        ("docs/*.pdf", b"docs/thesis.pdf", True),
        ("docs/*.pdf", b"docs/a/thesis.pdf", False),
        ("/docs/**/*.pdf", b"docs/a/b/thesis.pdf", True),
        ("docs/**", b"docs/a/b", True),
        ("a?c", b"x/abc", True),
        ("[a]", b"[a]", True),
        ("[a]", b"a", False),
        ("a*", b"a\nb", True),
        ("caf\udce9", b"caf\xe9", True),
    ],
)
def test_patterns(pattern, path, meant):
    assert matches_path(pattern, path) is meant
