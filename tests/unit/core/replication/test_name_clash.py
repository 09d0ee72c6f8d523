"""Which snapshots that a run made clash with others on the vault, and which of those made are still its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import START, dataset, snap, snapname, tree
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.name_clash import find_clashes, list_still_own


@given(st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)), st.booleans())
def test_what_clashes_is_what_was_made_and_is_another_on_the_vault(
    made: set[int], same: set[int], other: set[int], common: bool
) -> None:
    there = [snap(n) for n in same] + [replace(snap(n), guid=900 + n) for n in other - same]
    source, vault = dataset("tank", *map(snap, range(7))), dataset("tank", *there)
    pair: Any = SimpleNamespace(source=source, vault=vault, base=(1, 1) if common else None)
    found = find_clashes({snap(n).name for n in made}, [pair])
    assert found == [snap(n).name for n in sorted(made & (other - same)) if common]


FATES = ["stays", "gone", "received from the vault", "received from elsewhere", "another renamed"]


@given(st.lists(st.lists(st.sampled_from(FATES), min_size=1, max_size=6), max_size=3))
def test_of_what_was_made_only_what_is_still_that_counts(calls: list[list[str]]) -> None:
    there, on_vault, made, originals, strangers = tree(), tree(), [], [], 0
    for number, fates in enumerate(calls):
        short, names = snapname(number), []
        for place, fate in enumerate(fates):
            of, guid = DatasetName(f"tank/{number}-{place}"), 1000 * number + place
            names.append(f"{of}@{short}")
            txg = {"stays": 50 + number, "another renamed": 1 + place}.get(fate, 100 + 10 * number + place)
            now = Snapshot(of, short, guid, txg, START)
            there.datasets[of] = dataset(of, *([now] if fate != "gone" else []))
            if fate == "received from the vault":
                target = DatasetName(f"cold/{of}")
                on_vault.datasets[target] = dataset(target, replace(now, dataset=target, createtxg=1))
            if fate == "stays":
                originals.append(now)
        made.append(names)
        others = sum(fate in {"received from elsewhere", "another renamed"} for fate in fates)
        strangers += others and others >= fates.count("stays")
    found = list_still_own(made, there, on_vault)
    vaults = {one.guid for of in on_vault for one in of.snapshots}
    assert not any(one.guid in vaults for one in found)
    if not strangers:
        assert found == originals
