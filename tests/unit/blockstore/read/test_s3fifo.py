"""The policy does what the paper's pseudocode does, and what it is chosen for."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from zvault.blockstore.read.s3fifo import FifoState, S3Fifo


class Reference:
    """Algorithm 1 of the paper, with lists; the newest in front."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.small_size = max(1, capacity // 10)
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghosts: list[int] = []
        self.freq: dict[int, int] = {}

    def read(self, key: int) -> list[int]:
        if key in self.small or key in self.main:
            self.freq[key] = min(self.freq[key] + 1, 3)
            return []
        gone = []
        while len(self.small) + len(self.main) >= self.capacity:
            gone += (
                self.evict_small()
                if len(self.small) >= self.small_size or not self.main
                else self.evict_main()
            )
        if key in self.ghosts:
            self.ghosts.remove(key)
            self.main.insert(0, key)
        else:
            self.small.insert(0, key)
        self.freq[key] = 0
        return gone

    def evict_small(self) -> list[int]:
        key = self.small.pop()
        if self.freq[key] > 1:
            self.main.insert(0, key)
            self.freq[key] = 0
            return []
        self.ghosts.insert(0, key)
        del self.ghosts[self.capacity - self.small_size :]
        return [key]

    def evict_main(self) -> list[int]:
        key = self.main.pop()
        if self.freq[key] > 0:
            self.main.insert(0, key)
            self.freq[key] -= 1
            return []
        return [key]


@given(capacity=st.integers(1, 40), keys=st.integers(1, 100), seed=st.integers(0, 1000))
def test_it_evicts_what_the_paper_evicts(capacity: int, keys: int, seed: int) -> None:
    chance = random.Random(seed)
    policy: S3Fifo[int] = S3Fifo(capacity)
    reference = Reference(capacity)
    for _ in range(400):
        key = int(chance.random() ** 3 * keys)
        here = key in reference.small or key in reference.main
        assert (key in policy) == here
        assert policy.touch(key) == here
        gone = [] if here else policy.insert(key)
        assert gone == reference.read(key)
        assert len(policy) <= capacity


calls = st.lists(
    st.tuples(st.sampled_from(["touch", "insert", "remove", "resize", "again"]), st.integers(0, 30))
)


@given(capacity=st.integers(0, 20), calls=calls)
def test_what_it_says_it_keeps_is_what_it_was_given_and_did_not_drop(
    capacity: int, calls: list[tuple[str, int]]
) -> None:
    policy: S3Fifo[int] = S3Fifo(capacity)
    kept: set[int] = set()
    for name, key in calls:
        match name:
            case "touch":
                assert policy.touch(key) == (key in kept)
            case "insert":
                gone = policy.insert(key)
                assert len(gone) == len(set(gone))
                assert set(gone) <= kept
                kept = (kept | {key}) - set(gone) if capacity else kept
            case "remove":
                policy.remove(key)
                kept.discard(key)
            case "resize":
                capacity = key
                kept -= set(policy.resize(capacity))
            case "again":
                state = policy.state()
                policy = S3Fifo(capacity)
                assert policy.restore(state) == []
                assert policy.state() == state
        assert len(policy) == len(kept) <= capacity
        assert all(key in policy for key in kept)
        assert len(policy.state().ghosts) <= capacity
        assert not set(policy.state().ghosts) & kept


@given(capacity=st.integers(2, 200), scan=st.integers(0, 2000), seed=st.integers(0, 100))
def test_a_scan_does_not_push_out_what_was_hit_twice(capacity: int, scan: int, seed: int) -> None:
    policy: S3Fifo[int] = S3Fifo(capacity)
    hot = list(range(capacity - max(1, capacity // 10)))
    for key in hot:
        policy.insert(key)
        policy.touch(key)
        policy.touch(key)
    for key in range(10_000, 10_000 + scan):
        policy.insert(key)
        if key % 3 == seed % 3:
            policy.touch(key)
    assert all(key in policy for key in hot)


def test_what_comes_back_soon_is_kept_longer() -> None:
    policy: S3Fifo[int] = S3Fifo(100)
    for key in range(150):
        policy.insert(key)
    assert 20 not in policy
    policy.insert(20)
    for key in range(1000, 2000):
        policy.insert(key)
    assert 20 in policy


def test_restoring_more_than_there_is_room_for_keeps_the_main_queue() -> None:
    policy: S3Fifo[str] = S3Fifo(3)
    gone = policy.restore(
        FifoState([("a", 0), ("b", 0), ("c", 0)], [("a", 1), ("d", 3), ("e", 1)], ["e", "f"])
    )
    assert gone == ["a", "b"]
    assert [key for key in "abcde" if key in policy] == ["c", "d", "e"]
