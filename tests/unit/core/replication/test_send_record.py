"""Which change of the send flags a chain of streams survives, what counts as a record, and which tokens still do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.core.replication.send_record import (
    check_resume_token,
    classify_resume_fault,
    find_flag_conflict,
    find_recorded_flags,
    format_send_record,
)
from zvault.core.replication.stream_flags import SentFlags

GUID = 0x1F
SNAP = Snapshot(DatasetName("cold/a"), "s1", 1, 1, 1)
ALL = SentFlags(large_blocks=True, compressed=True, embedded=True)
RAW = SentFlags(large_blocks=True, compressed=True, raw=True)
NONE = SentFlags()


def source(*, encrypted: bool = False, guid: int = GUID) -> Dataset:
    return Dataset(DatasetName("tank/a"), guid, "filesystem", encrypted=encrypted)


def vault(sent: str = "", *, encrypted: bool = False, empty: bool = False) -> Dataset:
    points = () if empty else (SNAP,)
    return Dataset(DatasetName("cold/a"), 2, "filesystem", encrypted=encrypted, snapshots=points, sent=sent)


flags = st.builds(SentFlags, *[st.booleans()] * 4)


@given(one=flags)
def test_letters_say_all(one: SentFlags) -> None:
    assert SentFlags.of_letters(one.letters) == one
    assert str(one).replace(" -", "").replace("-", "") in {one.letters, "no flags"}


@pytest.mark.parametrize(
    ("asked", "encrypted", "amount"),
    [
        (ALL, False, ALL),
        (NONE, False, NONE),
        (SentFlags(raw=True), False, ALL),
        (NONE, True, RAW),
        (SentFlags(raw=True, embedded=True), True, RAW),
    ],
)
def test_what_flags_amount_to(asked: SentFlags, encrypted: bool, amount: SentFlags) -> None:
    assert asked.amounting_to(encrypted=encrypted) == amount


# The record


@given(one=flags, guid=st.integers(1, 2**64 - 1))
def test_what_is_put_on_record_is_read_again(one: SentFlags, guid: int) -> None:
    here = source(guid=guid)
    assert find_recorded_flags(vault(format_send_record(here, one)), here, None) == one


@pytest.mark.parametrize("sent", ["", "-", "on", "1f"])
def test_what_is_no_record(sent: str) -> None:
    assert find_recorded_flags(vault(sent), source(), None) is None


def test_a_parents_record_is_not_its_own() -> None:
    parent = vault("aa:Lce")
    assert find_recorded_flags(vault("aa:Lce"), source(), parent) is None
    assert find_recorded_flags(vault("aa:Lce"), source(), None) is None, "it cannot be told"


def test_the_record_of_a_source_that_was_replaced_still_counts() -> None:
    assert find_recorded_flags(vault("aa:ce"), source(), vault("bb:Lce")) == SentFlags.of_letters("ce")


# What may follow


@given(before=flags, wanted=flags, encrypted=st.booleans())
def test_only_a_change_of_large_blocks_or_raw_is_refused(
    before: SentFlags, wanted: SentFlags, encrypted: bool
) -> None:
    before, wanted = (one.amounting_to(encrypted=encrypted) for one in (before, wanted))
    found = find_flag_conflict(source(encrypted=encrypted), vault(encrypted=encrypted), wanted, before)
    assert (found is None) == (before.large_blocks == wanted.large_blocks)
    assert find_flag_conflict(source(encrypted=encrypted), vault(encrypted=encrypted), wanted, None) is None


@pytest.mark.parametrize(
    ("encrypted", "there", "wanted", "before", "issue", "advice"),
    [
        (False, False, NONE, ALL, "#6224", "large_blocks = true"),
        (False, False, ALL, NONE, "#6224", "large_blocks = false"),
        (True, False, RAW, None, "#8308", "zfs rename cold/a"),
        (True, False, RAW, ALL, "#8308", "zfs rename cold/a"),
        (True, True, RAW, ALL, "#8758", "zfs rename cold/a"),
        (False, True, ALL, RAW, "#8758", "zfs rename cold/a"),
    ],
)
def test_a_refusal_names_the_issue_and_a_way_out(
    encrypted: bool, there: bool, wanted: SentFlags, before: SentFlags | None, issue: str, advice: str
) -> None:
    found = find_flag_conflict(source(encrypted=encrypted), vault(encrypted=there), wanted, before)
    assert found is not None
    assert f"OpenZFS {issue}" in found.problem or f", {issue}" in found.problem
    assert advice in found.advice


# Tokens


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
