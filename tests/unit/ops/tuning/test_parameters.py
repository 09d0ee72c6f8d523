"""Notes of what is tuned, where they are read: what cannot be read is told, never zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.ops.tuning.parameters import (
    HOST,
    TUNING_LEASE_PREFIX,
    count_held_parameters,
    list_tuning_complaints,
)
from zvault.system.lease_store import LeaseStore

HELD = {"held": {"a": {"before": "1", "ours": ["2"]}}, "troubles": {"b": "b is not set"}}


@pytest.fixture
def leases(tmp_path: Path) -> LeaseStore:
    store = LeaseStore(tmp_path, boot_id="this")
    store.put(TUNING_LEASE_PREFIX + "cold", {"module": {"a": "2", "b": "3"}, "rotational": []})
    store.put(HOST, HELD)
    return store


def test_what_is_held_for_a_vault_and_what_is_not(leases: LeaseStore):
    assert (count_held_parameters(leases, "cold"), count_held_parameters(leases, "warm")) == (1, 0)
    assert list_tuning_complaints(leases) == ["b is not set; 'zvaultctl tune show' explains it"]


def test_another_boots_notes_tell_of_nothing(leases: LeaseStore):
    later = LeaseStore(leases.directory, boot_id="another")
    assert (count_held_parameters(later, "cold"), list_tuning_complaints(later)) == (0, [])


def test_a_note_that_cannot_be_read_is_told_and_not_zero(leases: LeaseStore):
    (leases.directory / HOST).write_text("{")
    assert count_held_parameters(leases, "cold") is None
    (said,) = list_tuning_complaints(leases)
    assert "cannot be read" in said
