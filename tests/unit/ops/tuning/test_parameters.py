"""Notes of what is tuned, where they are read: what cannot be read is told, never zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.ops.tuning.parameters import HOST, VAULTS, complaints, held_by
from zvault.system.state_files import LeaseStore

HELD = {"held": {"a": {"before": "1", "ours": ["2"]}}, "troubles": {"b": "b is not set"}}


@pytest.fixture
def leases(tmp_path: Path) -> LeaseStore:
    store = LeaseStore(tmp_path, boot_id="this")
    store.put(VAULTS + "cold", {"module": {"a": "2", "b": "3"}, "rotational": []})
    store.put(HOST, HELD)
    return store


def test_what_is_held_for_a_vault_and_what_is_not(leases: LeaseStore):
    assert (held_by(leases, "cold"), held_by(leases, "warm")) == (1, 0)
    assert complaints(leases) == ["b is not set; 'zvaultctl tune show' explains it"]


def test_another_boots_notes_tell_of_nothing(leases: LeaseStore):
    later = LeaseStore(leases.directory, boot_id="another")
    assert (held_by(later, "cold"), complaints(later)) == (0, [])


def test_a_note_that_cannot_be_read_is_told_and_not_zero(leases: LeaseStore):
    (leases.directory / HOST).write_text("{")
    assert held_by(leases, "cold") is None
    (said,) = complaints(leases)
    assert "cannot be read" in said
