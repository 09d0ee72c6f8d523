"""What must not be done beside datasets that cannot be listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.unlisted_datasets import (
    describe_unlisted,
    explain_unlisted_source,
    explain_unlisted_target,
    find_doubtful,
    hides_others,
    is_in_unlisted,
)

BAD = {DatasetName("tank/bad"): "I/O error"}


def dataset(name: str, *guids: int) -> Dataset:
    at = DatasetName(name)
    return Dataset(
        at, hash(name) & 0xFFFF, "filesystem", snapshots=tuple(Snapshot(at, f"s{g}", g, g, g) for g in guids)
    )


SOURCE, TARGET = dataset("tank/a", 1, 2), DatasetName("cold/a")


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (DatasetPair(SOURCE, TARGET, dataset("cold/a", 1)), ""),
        (DatasetPair(SOURCE, TARGET, None), ""),
        (DatasetPair(SOURCE, TARGET, dataset("cold/b", 1)), "lies at cold/b, and is not moved"),
        (DatasetPair(SOURCE, TARGET, dataset("cold/a", 9)), "shares nothing with tank/a"),
        (DatasetPair(SOURCE, TARGET, replace(dataset("cold/a"), placeholder=True)), ""),
        (DatasetPair(SOURCE, TARGET, replace(dataset("cold/a"), resume_token="1-a")), ""),
        (DatasetPair(replace(SOURCE, origin=SnapshotName("tank/bad/x@s")), TARGET, None), "is a clone of"),
        (DatasetPair(replace(SOURCE, origin=SnapshotName("tank/good@s")), TARGET, None), ""),
    ],
)
def test_only_what_may_be_anothers_is_doubtful(pair: DatasetPair, words: str) -> None:
    found = find_doubtful([pair], BAD)
    assert list(found) == (["tank/a"] if words else [])
    if words:
        assert words in found["tank/a"].problem
        assert "tank/bad cannot be listed (I/O error)" in found["tank/a"].problem
        assert "zpool status tank" in found["tank/a"].advice


def test_nothing_is_doubtful_where_all_is_listed() -> None:
    assert find_doubtful([DatasetPair(SOURCE, TARGET, dataset("cold/b", 1))], {}) == {}


def test_what_lies_below_it_is_as_unknown() -> None:
    assert is_in_unlisted(DatasetName("tank/bad"), BAD)
    assert is_in_unlisted(DatasetName("tank/bad/x"), BAD)
    assert not is_in_unlisted(DatasetName("tank/badly"), BAD)


def test_but_not_what_is_listed_there_all_the_same() -> None:
    assert not is_in_unlisted(DatasetName("tank/bad/x"), BAD, ["tank/bad/x"])
    assert is_in_unlisted(DatasetName("tank/bad/y"), BAD, ["tank/bad/x"])
    assert is_in_unlisted(DatasetName("tank/bad/x/y"), BAD, ["tank/bad/x"])


def test_below_a_root_nothing_is_hidden() -> None:
    assert hides_others(DatasetName("tank/bad"), ["tank", "tank/badly"])
    assert not hides_others(DatasetName("tank/bad"), ["tank/bad/x"])


def test_it_is_named_with_what_to_do() -> None:
    assert describe_unlisted(BAD | {DatasetName("tank/b2"): "?"}) == (
        "tank/bad cannot be listed (I/O error), nor can 1 more"
    )
    told = explain_unlisted_source(DatasetName("tank/bad"), "I/O error")
    assert told.problem.startswith("tank/bad cannot be listed (I/O error)")
    assert "'zpool status tank'" in told.advice
    told = explain_unlisted_target(DatasetName("tank/bad/x"), BAD)
    assert told.problem.startswith("tank/bad on the vault cannot be listed (I/O error)")
    told = explain_unlisted_target(DatasetName("tank/bad/x"), {DatasetName("tank"): "?"} | BAD)
    assert told.problem.startswith("tank/bad on the vault"), "the nearest of several"
