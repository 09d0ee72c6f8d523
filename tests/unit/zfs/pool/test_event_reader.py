"""What changed, by the kernel's events, as 2.3.9 posts them (seen in the lab)."""

import json
import resource
from pathlib import Path

import pytest

from tests.unit.zfs.event_pool import FakePool
from tests.unit.zfs.event_world import FakeRing
from zvault.zfs.pool.event_child import SEEK_END, EventRoom, announce_events
from zvault.zfs.pool.event_reader import (
    HISTORY_EVENT,
    MOST_CHANGED_DATASETS,
    MOST_NAMES,
    MOST_OF_ONE,
    ChangedDatasets,
    ChangeReader,
    KernelEvent,
    choose_event_room,
)


def logged(dataset: str, name: str) -> KernelEvent:
    return KernelEvent(1, HISTORY_EVENT, "tank", dataset, name)


@pytest.mark.parametrize(
    ("event", "datasets", "pools"),
    [
        (logged("tank/a", "create"), {"tank/a": None}, set()),
        (logged("tank/a", "destroy"), {"tank/a": None}, set()),
        (logged("tank/a", "receive"), {"tank/a": None}, set()),
        (logged("tank/a", "set"), {"tank/a": set()}, set()),
        (logged("tank/a@1", "snapshot"), {"tank/a": {"@1"}}, set()),
        (logged("tank/a@1", "hold"), {"tank/a": set()}, set()),
        (logged("tank/a@1", "set"), {"tank/a": set()}, set()),
        (logged("tank/a", "bookmark"), {"tank/a": {"#"}}, set()),
        (logged("tank/a", "remove bookmark"), {"tank/a": {"#"}}, set()),
        (
            logged("tank/a", "bookmark")._replace(details="name=b creation_txg=9 source_guid=12"),
            {"tank/a": {"#"}},
            {"tank"},
        ),
        (logged("tank/a b@1", "destroy"), {"tank/a b": {"@1"}}, set()),
        (logged("tank/a/%recv", "receive"), {"tank/a": set()}, set()),
        (logged("tank/a/%recv", "clone swap"), {"tank/a": set()}, set()),
        (logged("tank/a/%rollback", "clone swap"), {"tank/a": None}, set()),
        (logged("tank/a/%recv", "what no OpenZFS does yet"), {"tank/a": None}, {"tank"}),
        (logged("tank/a", "rename"), {"tank/a": None}, {"tank"}),
        (logged("tank/a@1", "rename"), {"tank/a": None}, {"tank"}),
        (logged("tank/a", "promote"), {"tank/a": None}, {"tank"}),
        (logged("tank/a", "what no OpenZFS does yet"), {"tank/a": None}, {"tank"}),
        (logged("", "scan setup"), {}, set()),
        (logged("", "reguid"), {}, {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.pool_import", "tank"), {}, {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.pool_export", "tank"), {}, {"tank"}),
        (KernelEvent(1, "sysevent.fs.zfs.config_sync", "tank"), {}, set()),
        (KernelEvent(1, "ereport.fs.zfs.io_failure", "tank"), {}, {"tank"}),
        (KernelEvent(1, "ereport.fs.zfs.checksum", "tank"), {}, set()),
    ],
)
def test_what_an_event_tells(
    event: KernelEvent, datasets: dict[str, set[str] | None], pools: set[str]
) -> None:
    found = ChangedDatasets()
    found.note(event)
    assert (found.lost, found.datasets, found.pools) == (False, datasets, pools)
    assert ChangedDatasets.of(json.loads(json.dumps(found.document()))) == found


def test_of_too_many_snapshots_no_names_are_noted() -> None:
    found = ChangedDatasets()
    for number in range(MOST_NAMES + 1):
        found.note(logged(f"tank/{number // 50}@{number % 50}", "destroy"))
    last = f"tank/{MOST_NAMES // 50}"
    assert [name for name, of in found.datasets.items() if of is None] == [last]
    assert found.names == MOST_NAMES
    found.note(logged("tank/0@50", "destroy"))
    assert found.datasets["tank/0"] is None
    found.note(logged(f"{last}@9", "destroy"))
    found.note(logged("tank/new@1", "destroy"))
    assert found.datasets["tank/new"] == {"@1"}


def test_what_several_events_tell_of_one_dataset() -> None:
    found = ChangedDatasets()
    for event in (logged("tank/a@1", "snapshot"), logged("tank/a@2", "hold"), logged("tank/a", "bookmark")):
        found.note(event)
    assert found.datasets == {"tank/a": {"@1", "#"}}
    for name in ("create", "set"):
        found.note(logged("tank/a", name))
    assert found.datasets == {"tank/a": None}
    for number in range(MOST_OF_ONE + 1):
        found.note(logged(f"tank/b@{number}", "destroy"))
    assert found.datasets["tank/b"] is None


def test_what_was_before_the_reader_began_is_not_known_and_what_comes_then_is() -> None:
    pool = FakePool()
    pool.create(0, 0)
    reader = ChangeReader(FakeRing(pool))
    assert reader.take() == ChangedDatasets(lost=True, missed=True)
    pool.snapshot(1, 0)
    assert reader.take() == ChangedDatasets(
        datasets={"tank/a": {f"@{next(iter(pool.datasets['tank/a'].points))[1:]}"}}
    )
    assert reader.take() == ChangedDatasets()


def test_nothing_is_known_while_the_kernel_has_no_event_by_which_a_loss_would_show() -> None:
    pool = FakePool()
    reader = ChangeReader(FakeRing(pool))
    assert reader.take() == ChangedDatasets(lost=True, missed=True)
    pool.snapshot(1, 0)
    pool.forget_events()
    assert reader.take() == ChangedDatasets(lost=True, missed=True)
    pool.scrub()
    assert reader.take() == ChangedDatasets(lost=True, missed=True)
    assert reader.take() == ChangedDatasets()


def test_more_datasets_than_are_worth_noting_are_all_of_them() -> None:
    found = ChangedDatasets()
    for number in range(MOST_CHANGED_DATASETS + 1):
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
        assert number == SEEK_END
        self.done.append("behind the newest")
        return True


def test_whoever_waits_for_events_is_behind_them_before_they_are_read() -> None:
    """What comes after that ends the next wait, so none stays unread; a wait that fails counts as an event."""
    it = Waiting()
    with pytest.raises(StopAsyncIteration):
        announce_events(
            it, lambda: it.done.append("read"), lambda seconds: it.done.append(f"pauses {seconds:g}")
        )
    once = ["waits", "pauses 0.1", "behind the newest", "read"]
    assert it.done == [*once, *once, "waits"]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("datasets", "memory", "kept"),
    [
        (0, GIB, 512),
        (100, 16 * GIB, 512),
        (129, 16 * GIB, 1024),
        (3000, 16 * GIB, 16384),
        (3000, 2 * GIB, 4096),
        (100_000, 64 * GIB, 32768),
        (100_000, 128 << 20, 512),
    ],
)
def test_how_many_events_the_kernel_should_keep(datasets: int, memory: int, kept: int) -> None:
    assert choose_event_room(datasets, memory) == kept


def test_the_kernel_keeps_more_events_as_long_as_many_datasets_are_followed(tmp_path: Path) -> None:
    parameter = tmp_path / "zfs_zevent_len_max"
    parameter.write_text("512\n")
    room = EventRoom(str(tmp_path / "note"), str(parameter), 16 * GIB)
    for datasets, kept in ((10, "512\n"), (1000, "4096"), (10, "4096"), (3000, "16384")):
        room.fit(datasets)
        assert parameter.read_text() == kept
    room.put_back()
    assert parameter.read_text() == "512"


def test_who_comes_after_one_that_was_killed_puts_back_what_that_one_changed(tmp_path: Path) -> None:
    parameter, note = tmp_path / "zfs_zevent_len_max", str(tmp_path / "note")
    parameter.write_text("700\n")
    EventRoom(note, str(parameter), 16 * GIB).fit(1000)
    after = EventRoom(note, str(parameter), 16 * GIB)
    after.fit(3000)
    assert parameter.read_text() == "16384"
    after.put_back()
    assert parameter.read_text() == "700"
    assert not Path(note).exists()


def test_what_one_noted_before_the_host_booted_is_the_administrators_now(tmp_path: Path) -> None:
    """Set to the very number that zvaultd had set, in modprobe.d."""
    parameter, note, boot = (tmp_path / name for name in ("zfs_zevent_len_max", "note", "boot"))
    parameter.write_text("512\n")
    boot.write_text("first\n")
    EventRoom(str(note), str(parameter), 16 * GIB, str(boot)).fit(1000)
    assert parameter.read_text() == "4096"
    boot.write_text("second\n")
    EventRoom(str(note), str(parameter), 16 * GIB, str(boot)).put_back()
    assert parameter.read_text() == "4096"


def test_one_that_was_killed_between_its_note_and_the_parameter_is_put_back(tmp_path: Path) -> None:
    parameter, note = tmp_path / "zfs_zevent_len_max", str(tmp_path / "note")
    parameter.write_text("512\n")
    room = EventRoom(note, str(parameter), 16 * GIB)
    room.fit(1000)
    room.fit(3000)
    parameter.write_text("4096")  # what it was when the second was noted already
    EventRoom(note, str(parameter), 16 * GIB).put_back()
    assert parameter.read_text() == "512"


def test_what_was_noted_stays_where_there_is_no_room_to_note_more(tmp_path: Path) -> None:
    parameter, note = tmp_path / "zfs_zevent_len_max", str(tmp_path / "note")
    parameter.write_text("512\n")
    room = EventRoom(note, str(parameter), 16 * GIB)
    room.fit(1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        room.fit(3000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert parameter.read_text() == "4096"
    EventRoom(note, str(parameter), 16 * GIB).put_back()
    assert parameter.read_text() == "512"


def test_what_one_noted_before_openzfs_was_loaded_anew_counts_for_nothing(tmp_path: Path) -> None:
    parameter, note = tmp_path / "zfs_zevent_len_max", tmp_path / "note"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for text in (f"{boot} 700 4096", f"{boot} x 512", f"{boot}", "", "nonsense"):
        parameter.write_text("512\n")
        note.write_text(text)
        room = EventRoom(str(note), str(parameter), 16 * GIB)
        room.put_back()
        assert parameter.read_text() == "512\n"


@pytest.mark.parametrize("others", ["40000", "600", "nonsense"])
def test_what_somebody_else_has_set_stays(others: str, tmp_path: Path) -> None:
    parameter = tmp_path / "zfs_zevent_len_max"
    parameter.write_text("512\n")
    room = EventRoom(str(tmp_path / "note"), str(parameter), 16 * GIB)
    room.fit(1000)
    parameter.write_text(others)
    room.put_back()
    assert parameter.read_text() == others
    parameter.write_text("40000")
    another = EventRoom(str(tmp_path / "note"), str(parameter), 16 * GIB)
    another.fit(1000)
    another.put_back()
    assert parameter.read_text() == "40000"


def test_events_are_read_where_nobody_may_say_how_many_are_kept(tmp_path: Path) -> None:
    room = EventRoom(str(tmp_path / "note"), str(tmp_path / "nothing"), 16 * GIB)
    room.fit(1000)
    room.put_back()
