"""The note: what is written is read back, and what anybody else may have put there is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.sharing.shared_note import (
    MAX_BACKUPS,
    MAX_BYTES,
    LastSharedRun,
    NoteDamaged,
    NoteNewer,
    SharedNote,
    SharedRunOutcome,
)

SECONDS = st.floats(0, 1e11, allow_nan=False) | st.integers(0, 10**11)
HOSTS = st.from_regex(r"[A-Za-z0-9_.:-]{1,20}", fullmatch=True)
BACKUPS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
RUNS = st.builds(
    LastSharedRun,
    number=st.integers(1, 1 << 53).map(lambda number: number - 1 or 1),
    host=HOSTS,
    outcome=st.sampled_from(SharedRunOutcome),
    began=SECONDS,
    ended=st.none() | SECONDS,
    lag=st.none() | st.floats(-1e6, 1e9),
    failures=st.integers(0, 1000),
    age=SECONDS,
)
NOTES = st.builds(
    SharedNote,
    host=HOSTS,
    epoch=st.integers(1, (1 << 32) - 1),
    sequence=st.integers(1, 1 << 50),
    holding=st.booleans(),
    runs=st.dictionaries(BACKUPS, RUNS, max_size=5),
)
NOTE = SharedNote("a", 7).begun("filer", 100.0).finished("filer", 160.0, done=True, lag=3.5)


def document(**changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(NOTE.as_bytes())
    return said | changes


RUN = document()["runs"]["filer"]


def entry(**changes: Any) -> dict[str, Any]:
    said = document()
    return said | {"runs": {"filer": said["runs"]["filer"] | changes}}


@given(NOTES)
def test_what_is_written_is_read_back(note: SharedNote) -> None:
    assert SharedNote.of_bytes(note.as_bytes()) == note


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_rubbish_is_refused_and_nothing_else_is_raised(data: bytes) -> None:
    with pytest.raises(NoteDamaged):
        SharedNote.of_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*document(), *document()["runs"]["filer"]]), JSON)
def test_any_value_in_the_place_of_any_other_is_refused_or_of_the_same_kind(key: str, value: object) -> None:
    said = entry(**{key: value}) if key in document()["runs"]["filer"] else document(**{key: value})
    try:
        note = SharedNote.of_bytes(json.dumps(said).encode())
    except NoteDamaged:
        return
    assert SharedNote.of_bytes(note.as_bytes()) == note


@pytest.mark.parametrize(
    "said",
    [
        document(version=0),
        document(version=True),
        document(version="1"),
        document(more=1),
        {key: value for key, value in document().items() if key != "epoch"},
        document(epoch=0),
        document(epoch=1.0),
        document(sequence=1 << 53),
        document(holding=1),
        document(host="a\nb"),
        document(host=""),
        document(host="x" * 251),
        document(runs=[]),
        document(runs={"../up": document()["runs"]["filer"]}),
        document(runs={f"b{number}": RUN for number in range(MAX_BACKUPS + 1)}),
        entry(number=0),
        entry(age=-1),
        entry(age=1e300),
        entry(outcome="perhaps"),
        entry(outcome=["done"]),
        entry(began=None),
        entry(lag="3"),
        [],
        None,
    ],
)
def test_what_is_not_right_is_refused(said: object) -> None:
    with pytest.raises(NoteDamaged):
        SharedNote.of_bytes(json.dumps(said).encode())


@pytest.mark.parametrize("number", ["9" * 5000, "1" + "0" * 30, "NaN", "Infinity", "1e999", "0." + "1" * 60])
def test_numbers_have_as_many_digits_as_they_can_have(number: str) -> None:
    text = NOTE.as_bytes().decode().replace('"lag": 3.5', f'"lag": {number}')
    assert number in text
    with pytest.raises(NoteDamaged):
        SharedNote.of_bytes(text.encode())


def test_what_is_too_large_or_too_deep_is_refused() -> None:
    for data in (NOTE.as_bytes() + b" " * MAX_BYTES, b"[" * 100_000):
        with pytest.raises(NoteDamaged):
            SharedNote.of_bytes(data)


def test_a_later_version_is_told_apart() -> None:
    with pytest.raises(NoteNewer, match="version 2, and this zvault knows up to 1"):
        SharedNote.of_bytes(json.dumps(document(version=2, runs="of another kind")).encode())


def test_what_nobody_could_read_back_is_not_written() -> None:
    with pytest.raises(NoteDamaged):
        SharedNote("a\x1b[2J", 1).as_bytes()
    with pytest.raises(NoteDamaged):
        NOTE.begun("other", -5.0).as_bytes()


def test_the_largest_note_fits() -> None:
    run = LastSharedRun(
        (1 << 53) - 1, "h" * 64, SharedRunOutcome.RUNNING, 1.7e9, 1.7e9, 1234567.123, 999, 1234567.123
    )
    many = SharedNote("h" * 64, (1 << 32) - 1, runs={f"{number:064d}": run for number in range(MAX_BACKUPS)})
    assert len(many.as_bytes()) < MAX_BYTES


def test_runs_are_counted_and_a_broken_off_one_keeps_its_number() -> None:
    note = NOTE.written("b", 8, 30.0).begun("filer", 5.0)
    run = note.last("filer")
    assert run is not None
    assert (run.number, run.host, run.outcome, run.lag) == (2, "b", SharedRunOutcome.RUNNING, 33.5)
    resumed = note.written("c", 9, 400.0).begun("filer", 900.0).last("filer")
    assert resumed is not None
    assert (resumed.number, resumed.host) == (2, "c")


def test_failures_are_counted_in_a_row() -> None:
    note = NOTE
    for failures in (1, 2):
        note = note.begun("filer", 1.0).finished("filer", 2.0, done=False, lag=None)
        run = note.last("filer")
        assert run is not None
        assert (run.failures, run.outcome) == (failures, SharedRunOutcome.FAILED)
    run = note.begun("filer", 1.0).finished("filer", 2.0, done=True, lag=1.0).last("filer")
    assert run is not None
    assert run.failures == 0


def test_a_run_that_had_not_begun_does_not_end() -> None:
    with pytest.raises(NoteDamaged, match="no run of filer had begun"):
        NOTE.finished("filer", 1.0, done=True, lag=None)


@given(NOTES, st.lists(st.floats(0, 1e6), max_size=5))
def test_what_another_host_writes_anew_keeps_its_age(note: SharedNote, waits: list[float]) -> None:
    later = note
    for wait in waits:
        later = later.written("b", note.epoch, wait)
    assert later.sequence == note.sequence + len(waits)
    for name, run in note.runs.items():
        assert later.runs[name].number == run.number
        assert later.runs[name].age == pytest.approx(run.age + sum(waits))


def test_a_host_that_was_shut_out_does_not_write() -> None:
    with pytest.raises(NoteDamaged, match="a wrote it with epoch 7, after this host's, 6"):
        NOTE.written("b", 6, 1.0)


def test_backups_that_are_configured_no_more_are_left_out() -> None:
    note = NOTE.begun("gone", 1.0)
    assert set(note.only(frozenset({"filer", "new"})).runs) == {"filer"}


def test_a_note_put_anew_after_a_lost_answer_is_known_again_and_another_is_not() -> None:
    running = NOTE.written("b", 8, 10.0).begun("filer", 5.0)
    assert running.same_as(NOTE.written("b", 8, 25.0).begun("filer", 5.0))
    assert not running.same_as(NOTE.written("b", 8, 10.0))
    assert not running.same_as(running.finished("filer", 9.0, done=True, lag=0.0))


def test_counts_at_their_end_begin_anew_so_that_nobody_can_stop_the_note() -> None:
    most = (1 << 53) - 1
    last = LastSharedRun(most, "a", SharedRunOutcome.FAILED, 0.0, failures=most, age=253402300799.0)
    note = SharedNote("a", 7, most, runs={"filer": last}).written("b", 8, 1e12).begun("filer", 1.0)
    assert SharedNote.of_bytes(note.as_bytes()).sequence == 1
    run = note.finished("filer", 2.0, done=False, lag=None).last("filer")
    assert run is not None
    assert (run.number, run.failures) == (1, most)


def test_an_epoch_that_no_block_store_can_have_is_refused() -> None:
    assert SharedNote.of_bytes(json.dumps(document(epoch=(1 << 32) - 1)).encode()).epoch == (1 << 32) - 1
    with pytest.raises(NoteDamaged, match="epoch is none"):
        SharedNote.of_bytes(json.dumps(document(epoch=1 << 32)).encode())


@given(st.floats(-60.0, 1e6), st.lists(st.tuples(st.floats(0.0, 1e5), st.booleans()), max_size=5))
def test_the_lag_goes_on_from_the_last_run_that_told_it_whatever_begins_since(
    lag: float, begins: list[tuple[float, bool]]
) -> None:
    """A run that begins, or goes on at another host, brings nothing: only its end tells another lag."""
    note = SharedNote("a", 1).begun("filer", 0.0).finished("filer", 0.0, done=True, lag=lag)
    gone = 0.0
    for since, begins_a_run in begins:
        note, gone = note.written("a", 1, since), gone + since
        note = note.begun("filer", 0.0) if begins_a_run else note
    run = note.runs["filer"]
    assert run.lag is not None
    assert run.lag + run.age == pytest.approx(lag + gone)
