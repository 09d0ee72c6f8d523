"""Which change of the send flags a chain of streams survives and what counts as a record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.send_record import (
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
