"""Traits of restored files against the snapshot's, and how what differs is told."""

import stat

from zvault.core.integrity.restore_comparison import (
    KEPT_MISMATCHES,
    FileTraits,
    RestoreComparison,
    RestoreMismatch,
    list_differing_traits,
    make_incomplete_error,
    make_uncompared_error,
)

PLAIN = FileTraits(stat.S_IFREG | 0o4755, 0, 10, 5, 1_500_000_000_000_000_001, xattrs={"user.a": b"x"})


def test_each_trait_is_told_with_both_sides() -> None:
    assert list(list_differing_traits(PLAIN, PLAIN)) == []
    other = FileTraits(
        stat.S_IFREG | 0o700, 0, 0, 6, 1_500_000_000_000_000_002, xattrs={"system.posix_acl_access": b"\1"}
    )
    assert list(list_differing_traits(PLAIN, other)) == [
        ("mode", "4755", "0700"),
        ("owner", "0:10", "0:0"),
        ("modification time", "1500000000.000000001", "1500000000.000000002"),
        ("size", "5", "6"),
        ("ACL system.posix_acl_access", "not set", "01"),
        ("extended attribute user.a", "78", "not set"),
    ]
    link = FileTraits(stat.S_IFLNK | 0o777, 0, 0, 3, 1, link=b"a\n")
    assert list(list_differing_traits(PLAIN, link)) == [("type", "file", "symbolic link")]
    assert list(list_differing_traits(link, FileTraits(stat.S_IFLNK | 0o777, 0, 0, 9, 1, link=b"b"))) == [
        ("link target", r"a\n", "b")
    ]
    node = FileTraits(stat.S_IFCHR | 0o600, 0, 0, 0, 1, device=259)
    assert list(list_differing_traits(node, FileTraits(stat.S_IFCHR | 0o600, 0, 0, 0, 1, device=260))) == [
        ("device number", "259", "260")
    ]
    folder = FileTraits(stat.S_IFDIR | 0o2775, 0, 0, 3, 1)
    assert list(list_differing_traits(folder, FileTraits(stat.S_IFDIR | 0o2775, 0, 0, 99, 1))) == [], (
        "no size of content"
    )


def test_no_more_are_kept_than_can_be_told() -> None:
    compared = RestoreComparison()
    assert compared.result == "same"
    kept = compared.add(
        [RestoreMismatch("/r", str(number), "missing", "file") for number in range(KEPT_MISMATCHES + 5)]
    )
    assert len(kept) == len(compared.differences) == KEPT_MISMATCHES
    assert compared.more == 5
    assert compared.result == "differs"
    error = make_incomplete_error("/r", compared)
    assert error.reason == "differs"
    assert error.what == f"restored to /r, but {KEPT_MISMATCHES + 5} things are not as in the snapshot"
    assert error.why.startswith("/r: 0: missing: not there, was file; ")
    assert error.why.endswith(f"; and {KEPT_MISMATCHES + 2} more")
    compared.commands += [f"zfs mount {name}" for name in "abcd"]
    assert (
        make_incomplete_error("/r", compared).next
        == "'zfs mount a'; 'zfs mount b'; 'zfs mount c'; and 1 more"
    )


def test_what_could_not_be_compared_is_told_by_name_and_reason() -> None:
    compared = RestoreComparison(
        unread={"tank/a": "I/O error", "tank/b": "its key is not loaded"}, failed={"tank/a"}
    )
    error = make_uncompared_error("tank/check", compared)
    assert "1 dataset could not be compared" in error.what
    assert error.why == "tank/a: I/O error"
    assert error.next
    assert error.reason == "not-compared"
