"""What changed, by the kernel's events, as 2.3.9 posts them (seen in the lab)."""

import pytest

from tests.unit.zfs.event_world import FakePool, FakeRing
from zvault.zfs.pool.change_child import END, tell
from zvault.zfs.pool.change_reader import HISTORY, MOST, Changed, ChangeReader, KernelEvent


def logged(dataset: str, name: str) -> KernelEvent:
    return KernelEvent(1, HISTORY, "tank", dataset, name)


@pytest.mark.parametrize(
    ("event", "datasets", "pools"),
    [
        (logged("tank/a", "create"), {"tank/a"}, set()),
        (logged("tank/a@1", "snapshot"), {"tank/a"}, set()),
        (logged("tank/a@1", "hold"), {"tank/a"}, set()),
        (logged("tank/a", "bookmark"), {"tank/a"}, set()),
        (logged("tank/a b@1", "destroy"), {"tank/a b"}, set()),
        (logged("tank/a/%recv", "receive"), {"tank/a"}, set()),
        (logged("tank/a/%rollback", "clone swap"), {"tank/a"}, set()),
        (logged("tank/a", "rename"), {"tank/a"}, {"tank"}),
        (logged("tank/a@1", "rename"), {"tank/a"}, {"tank"}),
        (logged("tank/a", "promote"), {"tank/a"}, {"tank"}),
        (logged("tank/a", "what no OpenZFS does yet"), {"tank/a"}, {"tank"}),
        (logged("", "scan setup"), set(), set()),
        (logged("", "reguid"), set(), {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.pool_import", "tank"), set(), {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.pool_export", "tank"), set(), {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.config_sync", "tank"), set(), set()),
        (KernelEvent(1, "ereport.fs.zfs.io_failure", "tank"), set(), {"tank"}),
        (KernelEvent(1, "ereport.fs.zfs.checksum", "tank"), set(), set()),
    ],
)
def test_what_an_event_tells(event: KernelEvent, datasets: set[str], pools: set[str]) -> None:
    found = Changed()
    found.note(event)
    assert (found.lost, found.datasets, found.pools) == (False, datasets, pools)
    assert Changed.of(found.document()) == found


def test_what_was_before_the_reader_began_is_not_known_and_what_comes_then_is() -> None:
    pool = FakePool()
    pool.create(0, 0)
    reader = ChangeReader(FakeRing(pool))
    assert reader.take() == Changed(lost=True, missed=True)
    pool.snapshot(1, 0)
    assert reader.take() == Changed(datasets={"tank/a"})
    assert reader.take() == Changed()


def test_nothing_is_known_while_the_kernel_has_no_event_by_which_a_loss_would_show() -> None:
    pool = FakePool()
    reader = ChangeReader(FakeRing(pool))
    assert reader.take() == Changed(lost=True, missed=True)
    pool.snapshot(1, 0)
    pool.forget_events()
    assert reader.take() == Changed(lost=True, missed=True)
    pool.scrub()
    assert reader.take() == Changed(lost=True, missed=True)
    assert reader.take() == Changed()


def test_more_datasets_than_are_worth_noting_are_all_of_them() -> None:
    found = Changed()
    for number in range(MOST + 1):
        found.note(logged(f"tank/{number}", "create"))
    assert found.lost
    assert not found.datasets


class Waiting:
    """What a thread waits with: two events come, and then it is at its end."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def wait(self) -> None:
        self.done.append("waits")
        if self.done.count("waits") == 2:
            raise InterruptedError("a signal came")
        if self.done.count("waits") == 3:
            raise StopAsyncIteration

    def seek(self, number: int) -> bool:
        assert number == END
        self.done.append("behind the newest")
        return True


def test_whoever_waits_for_events_is_behind_them_before_they_are_read() -> None:
    """What comes after that ends the next wait, so none stays unread; a wait that fails counts as an event."""
    it = Waiting()
    with pytest.raises(StopAsyncIteration):
        tell(it, lambda: it.done.append("read"), lambda seconds: it.done.append(f"pauses {seconds:g}"))
    once = ["waits", "pauses 1", "behind the newest", "read"]
    assert it.done == [*once, *once, "waits"]
