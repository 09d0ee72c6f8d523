"""What is taken for unchanged is the same on both sides, whatever happened to either; against a model of contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lag import measure_dataset_lag
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.unchanged_datasets import (
    UnchangedDatasets,
    explain_needed_snapshot,
    has_same_properties,
)

NAME, TARGET = DatasetName("tank/a"), DatasetName("cold/a")


def ours(snapshot: Snapshot) -> bool:
    return snapshot.snapname.startswith("zvault")


@dataclass
class Side:
    """A dataset: what its head holds, and each snapshot with what it holds. ``written`` is as ZFS counts it: of a
    change since the newest snapshot, also one that was taken back.
    """

    name: DatasetName
    head: int = 0
    written: int = 0
    snapshots: list[tuple[Snapshot, int]] = field(default_factory=list)

    def listed(self) -> Dataset:
        return Dataset(
            self.name,
            1,
            "filesystem",
            written=self.written,
            snapshots=tuple(snap for snap, _ in self.snapshots),
        )


class Contents(RuleBasedStateMachine):
    """A source and its vault, to which anything happens between runs that skip what is unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.vault = Side(NAME), Side(TARGET)
        self.clock = 0
        self.until: dict[int, float] = {}
        self.history: list[tuple[int, int]] = [(0, 0)]  # from when the source held what

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def now_holds(self, contents: int) -> None:
        self.source.head = contents
        self.history.append((self.clock, contents))

    @rule()
    def write(self) -> None:
        self.source.written += 512
        self.now_holds(self.tick())

    @rule(mine=st.booleans())
    def snapshot(self, mine: bool) -> None:
        at = self.tick()
        kind = "zvault" if mine else "other"
        self.source.snapshots.append((Snapshot(NAME, f"{kind}{at}", at, at, at), self.source.head))
        self.source.written = 0

    @precondition(lambda self: self.source.snapshots)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        self.tick()
        place = data.draw(st.integers(0, len(self.source.snapshots) - 1))
        del self.source.snapshots[place + 1 :]
        self.source.written = 0
        self.now_holds(self.source.snapshots[-1][1])

    @precondition(lambda self: self.source.snapshots)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        """What was written since the snapshot before counts from then on."""
        self.tick()
        place = data.draw(st.integers(0, len(self.source.snapshots) - 1))
        newest = place == len(self.source.snapshots) - 1
        _, contents = self.source.snapshots.pop(place)
        before = self.source.snapshots[-1][1] if self.source.snapshots else None
        if newest and contents != before:
            self.source.written += 512

    @rule()
    def receive(self) -> None:
        """Another's stream, with a snapshot that is named like zvault's."""
        at = self.tick()
        self.now_holds(at)
        self.source.snapshots.append((Snapshot(NAME, f"zvault{at}", at, at, at), at))
        self.source.written = 0

    @rule()
    def write_to_the_vault(self) -> None:
        self.vault.written += 512
        self.vault.head = -self.tick()

    @rule()
    def snapshot_the_vault(self) -> None:
        at = self.tick()
        self.vault.snapshots.append((Snapshot(TARGET, f"other{at}", 10**6 + at, at, at), self.vault.head))
        self.vault.written = 0

    def stands(self) -> Snapshot | None:
        pair = DatasetPair(self.source.listed(), TARGET, self.vault.listed())
        return None if explain_needed_snapshot(pair, ours) else pair.source.newest()

    @rule(sent=st.booleans())
    def run(self, sent: bool) -> None:
        """A run: what is unchanged is noted, all else snapshotted, and sent unless the stream breaks or is refused."""
        self.tick()
        found = self.stands()
        if found is not None:
            self.until[found.guid] = self.clock
            return
        self.snapshot(mine=True)
        shared = {snap.guid for snap, _ in self.source.snapshots}
        diverged = self.vault.written or (
            self.vault.snapshots and self.vault.snapshots[-1][0].guid not in shared
        )
        if sent and not diverged:
            there = {snap.guid for snap, _ in self.vault.snapshots}
            news = [one for one in self.source.snapshots if one[0].guid not in there and ours(one[0])]
            self.vault.snapshots += [(replace(snap, dataset=TARGET), held) for snap, held in news]
            self.vault.head = self.vault.snapshots[-1][1]

    @invariant()
    def unchanged_is_the_same_on_both_sides(self) -> None:
        found = self.stands()
        if found is not None:
            assert self.source.head == self.vault.head == dict(self.by_guid())[found.guid]

    def by_guid(self) -> list[tuple[int, int]]:
        return [(snap.guid, held) for snap, held in self.vault.snapshots]

    @invariant()
    def lag_is_never_better_than_the_truth(self) -> None:
        """The vault has what the source held at the moment that the lag counts from."""
        wanted = [snap for snap, _ in self.source.snapshots if ours(snap)]
        guids = {snap.guid for snap, _ in self.vault.snapshots}
        lag = measure_dataset_lag(wanted, guids, unchanged=self.until)
        covered = lag.covered(self.clock)
        if covered is None or lag.newest_on_vault is None:
            return
        then = [contents for at, contents in self.history if at <= covered][-1]
        assert dict(self.by_guid())[lag.newest_on_vault.guid] == then
        assert lag.age(self.clock) == self.clock - covered >= 0


TestContents = Contents.TestCase


# One by one

SNAP = Snapshot(NAME, "zvault1", 7, 3, 100)


def pair(
    source: Callable[[Dataset], Dataset] = lambda it: it, vault: Callable[[Dataset], Dataset] = lambda it: it
) -> DatasetPair:
    there = Dataset(TARGET, 2, "filesystem", snapshots=(replace(SNAP, dataset=TARGET, createtxg=9),))
    return DatasetPair(source(Dataset(NAME, 1, "filesystem", snapshots=(SNAP,))), TARGET, vault(there))


def test_the_newest_on_both_sides_stands_for_now() -> None:
    assert explain_needed_snapshot(pair(), ours) == ""


OTHER = Snapshot(NAME, "other2", 8, 4, 200)
ELSEWHERE = replace(OTHER, dataset=TARGET)


@pytest.mark.parametrize(
    "changed",
    [
        pair(lambda it: replace(it, written=1)),
        pair(lambda it: replace(it, encrypted=True)),
        pair(lambda it: replace(it, snapshots=())),
        pair(lambda it: replace(it, snapshots=(SNAP, OTHER))),
        pair(vault=lambda it: replace(it, written=1)),
        pair(vault=lambda it: replace(it, snapshots=())),
        pair(vault=lambda it: replace(it, snapshots=(*it.snapshots, ELSEWHERE))),
        pair(vault=lambda it: replace(it, resume_token="1-abc")),
        DatasetPair(pair().source, TARGET, None),
        pair(lambda it: replace(it, snapshots=(OTHER,)), lambda it: replace(it, snapshots=(ELSEWHERE,))),
    ],
)
def test_nothing_stands_for_what_may_have_changed(changed: DatasetPair) -> None:
    assert explain_needed_snapshot(changed, ours) != ""


@pytest.mark.parametrize(
    ("later", "still"),
    [
        (pair().source, True),
        (None, True),
        (replace(pair().source, written=1), False),
        (replace(pair().source, snapshots=(SNAP, OTHER)), False),
        (replace(pair().source, snapshots=()), False),
    ],
)
def test_what_was_written_before_the_snapshot_was_made_is_seen(later: Dataset | None, still: bool) -> None:
    found = UnchangedDatasets(100.0, {NAME: SNAP})
    assert found.holds(Tree({NAME: later} if later is not None else {})) is still


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy")),
)
def test_properties_are_the_same_or_not(here: dict[str, str], there: dict[str, str]) -> None:
    assert has_same_properties(here, there) == (here == there)
    assert has_same_properties(here | {"version": "5", "quota": "1", "org.zvault:sent": "x"}, here)
    assert not has_same_properties(here | {"mountpoint": "/x"}, here)
