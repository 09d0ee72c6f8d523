"""Which resume tokens are still good, and the label of why one is not."""

import pytest

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.replication.resume_receive import check_resume_token, classify_resume_fault
from zvault.core.replication.stream_flags import SentFlags

SNAP = Snapshot(DatasetName("cold/a"), "s1", 1, 1, 1)
ALL = SentFlags(large_blocks=True, compressed=True, embedded=True)
RAW = SentFlags(large_blocks=True, compressed=True, raw=True)
NONE = SentFlags()


def source(*, encrypted: bool = False) -> Dataset:
    return Dataset(DatasetName("tank/a"), 0x1F, "filesystem", encrypted=encrypted)


def vault(*, empty: bool = False) -> Dataset:
    points = () if empty else (SNAP,)
    return Dataset(DatasetName("cold/a"), 2, "filesystem", snapshots=points)


def token(one: SentFlags | None, problem: str = "") -> InterruptedReceive:
    return InterruptedReceive("1-abc", 7, problem, flags=one)


@pytest.mark.parametrize(
    ("begun", "empty", "wanted", "before", "problem"),
    [
        # A full stream: there is no chain yet, so what is wanted now decides.
        (SentFlags(large_blocks=True), True, NONE, None, "it was begun with -L"),
        (NONE, True, NONE, ALL, "it was begun with -L"),
        (NONE, True, ALL, NONE, "it was begun without -L"),
        # Without large blocks a token does not tell -L, whatever was asked for.
        (NONE, True, ALL, ALL, ""),
        (NONE, True, ALL, None, ""),
        (NONE, True, SentFlags(large_blocks=True), ALL, ""),
        # What follows on something is for the misfit to judge: its token is kept until the flags are set back.
        (SentFlags(large_blocks=True), False, NONE, ALL, ""),
        (RAW, True, ALL, None, "it was begun with -w"),
        (None, True, ALL, None, ""),
    ],
)
def test_a_token_whose_flags_are_no_longer_wanted(
    begun: SentFlags | None, empty: bool, wanted: SentFlags, before: SentFlags | None, problem: str
) -> None:
    found = check_resume_token(token(begun), source(), vault(empty=empty), wanted, before)
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)
    assert classify_resume_fault(found.problem) == ("flags" if problem else "other")


def test_a_token_that_is_not_raw_is_of_no_use_to_what_is_encrypted() -> None:
    found = check_resume_token(token(ALL), source(encrypted=True), vault(empty=True), RAW, None)
    assert found.problem == "it was begun without -w, and goes raw now"
    assert check_resume_token(token(RAW), source(encrypted=True), vault(empty=True), RAW, None) == token(RAW)


def test_what_zfs_has_against_a_token_comes_first() -> None:
    assert (
        check_resume_token(token(RAW, "it is corrupt"), source(), vault(), ALL, None).problem
        == "it is corrupt"
    )


@pytest.mark.parametrize(
    ("words", "label"),
    [
        ("'tank/a@3' used in the initial send no longer exists", "snapshot-gone"),
        ("'tank/a@3' is no longer the same snapshot used in the initial send", "replaced"),
        ("incremental source 0x262cc8291db92232 no longer exists", "base-gone"),
        ("resume token is corrupt (incorrect checksum)", "corrupt"),
        ("cold/a was changed since it began", "changed"),
        ("ZFS did not take it: cannot receive resume stream: kernel modules must be upgraded", "refused"),
        ("it is damaged, and cannot be brought whole: checksum mismatch", "damaged"),
        ("something new", "other"),
    ],
)
def test_the_words_of_zfs_2_3_9_as_a_label(words: str, label: str) -> None:
    assert classify_resume_fault(words) == label


def test_how_far_a_token_got() -> None:
    assert InterruptedReceive("1-abc", 7, done=3 << 20, left=1 << 20).progress == "at 3M of 4M"
    assert InterruptedReceive("1-abc", 7).progress == ""
