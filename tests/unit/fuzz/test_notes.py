"""The note beside a shared vault's lease, which whoever has the bucket's keys may have written."""

from __future__ import annotations

from tests.unit.fuzz.mutation import mutated, seeds
from tests.unit.fuzz.target import MIB, target
from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.run_decision import DueRun, SharingHost, UnreadableNote, decide_run
from zvault.core.sharing.shared_note import NoteDamaged, SharedNote

REAL = seeds("notes")
ME = SharingHost("b", ("a", "b"), 300.0, ElectionState.STANDING_BY)


def test_the_seeds_are_notes() -> None:
    assert [(note.holding, len(note.runs)) for note in map(SharedNote.of_bytes, REAL)] == [
        (False, 0),
        (True, 2),
    ]


@target(mutated(REAL), NoteDamaged, cap=4 * MIB)
def test_notes(data: bytes) -> None:
    """What is taken for a note can be decided by, and be written again by a host that has the vault."""
    note = SharedNote.of_bytes(data)
    for name in [*note.runs, "filer"]:
        seen = ForeignWatch[SharedNote | UnreadableNote].begin(note, "etag", 1000.0, 5.0)
        assert decide_run(DueRun(name, 900.0, 3600.0), ME, seen, None, 1000.0).reason
    later = note.written("b", max(1, note.epoch), 5.0).begun("filer", 6.0)
    assert SharedNote.of_bytes(later.as_bytes()).same_as(later)
