"""A pool that is older than when it was last seen: found at an import, kept while it grows, over when it is back."""

from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.integrity.put_back import PoolProgress, PoolTxgs, describe_older, follow_pool

SEEN = PoolProgress(500, 1_795_000_000.0)


def look(before: PoolProgress | None, txg: int, *, imported: bool = False) -> PoolProgress:
    after = follow_pool(before, PoolTxgs(txg, txg), 1_795_003_600.0, imported=imported)
    assert after is not None
    return after


def test_an_import_with_an_older_transaction_group_finds_it() -> None:
    older = look(SEEN, 303, imported=True)
    assert older.is_older
    assert (older.txg, older.at, older.since) == (500, SEEN.at, 303)
    told = describe_older(older, UTC)
    assert told == (
        "it is older than when it was last seen (2026-11-18 11:06): its store was put back;"
        " of what age the newest snapshot in it is, is not known"
    )
    assert not look(SEEN, 501, imported=True).is_older


def test_one_that_was_imported_by_hand_is_found_by_the_next_look() -> None:
    assert look(SEEN, 303).is_older


def test_it_stays_older_while_it_grows_past_what_was_seen() -> None:
    now = look(SEEN, 303, imported=True)
    for txg in (400, 499, 600, 900):
        now = look(now, txg)
        assert now.is_older
    assert look(now, 905, imported=True).is_older, "zvault saw how it came to that"


def test_the_store_as_it_was_ends_it() -> None:
    back = look(look(SEEN, 303, imported=True), 504, imported=True)
    assert not back.is_older
    assert describe_older(back, UTC) == ""


def test_whoever_accepts_it_goes_on_from_what_is_there() -> None:
    accepted = look(SEEN, 303, imported=True).accept(1_795_007_200.0)
    assert (accepted.is_older, accepted.txg) == (False, 303)
    assert not look(accepted, 306, imported=True).is_older
    assert look(accepted, 200, imported=True).is_older


def test_what_is_not_on_the_devices_yet_is_never_what_was_seen() -> None:
    assert follow_pool(None, PoolTxgs(9, None), 1.0, imported=True) is None
    assert look(SEEN, 700).txg == 700
    assert follow_pool(SEEN, PoolTxgs(702, 698), 1.0, imported=False) == PoolProgress(698, 1.0)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30))
def test_a_pool_that_only_grows_is_never_older(steps: list[tuple[int, bool]]) -> None:
    now, txg = None, 4
    for more, imported in steps:
        txg += more
        now = follow_pool(now, PoolTxgs(txg + 2, txg), float(txg), imported=imported)
        assert now is not None
        assert not now.is_older
