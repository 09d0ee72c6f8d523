"""The states of a host that shares a vault: what the table holds, and that the page is of it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from zvault.core.sharing.election import (
    ELECTION_TABLE,
    ELECTION_TRANSITIONS,
    ElectionEvent,
    ElectionState,
    after,
    may,
)
from zvault.core.transitions import IllegalTransition

PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "several-hosts.md"
BY_LABEL = {turn.label: turn for turn in ElectionState}


def test_an_event_leads_from_a_state_to_one_other() -> None:
    assert len(ELECTION_TABLE) == sum(len(row.sources) for row in ELECTION_TRANSITIONS)
    assert all(source is not target for (source, _), target in ELECTION_TABLE.items())


def test_the_page_is_of_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    states = set(re.findall(rf"^\| ({'|'.join(BY_LABEL)}) \| [^|]+ \|$", text, re.M))
    assert states == set(BY_LABEL)
    rows = re.findall(rf"^\| ([a-z ]+) \| ([a-z ,]+) \| ({'|'.join(BY_LABEL)}) \| [^|]+ \|$", text, re.M)
    drawn = {
        (BY_LABEL[source], ElectionEvent(event)): BY_LABEL[target]
        for event, sources, target in rows
        for source in sources.split(", ")
    }
    assert drawn == ELECTION_TABLE


@pytest.mark.parametrize(("turn", "event"), list(product(ElectionState, ElectionEvent)))
def test_what_the_table_has_not_is_refused(turn: ElectionState, event: ElectionEvent) -> None:
    if may(turn, event):
        assert after(turn, event) is ELECTION_TABLE[turn, event]
    else:
        with pytest.raises(IllegalTransition, match=turn.label):
            after(turn, event)


@pytest.mark.parametrize("turn", list(ElectionState))
def test_from_each_state_a_host_comes_to_stand_by_and_to_hold_the_vault(turn: ElectionState) -> None:
    reached, fresh = {turn}, {turn}
    while fresh:
        fresh = {target for (source, _), target in ELECTION_TABLE.items() if source in fresh} - reached
        reached |= fresh
    assert {ElectionState.STANDING_BY, ElectionState.HOLDING} <= reached


WRITING_STATES = {ElectionState.HOLDING, ElectionState.RELEASING}
"""In which this host's server may run, and its note be written."""


def test_only_a_host_that_asked_and_got_the_lease_may_write() -> None:
    entries = {
        (source, event) for (source, event), target in ELECTION_TABLE.items() if target in WRITING_STATES
    }
    assert {pair for pair in entries if pair[0] not in WRITING_STATES} == {
        (ElectionState.ASKING, ElectionEvent.GOT)
    }


def test_a_host_that_lost_the_vault_writes_again_only_after_it_cleaned_up() -> None:
    assert {event for turn, event in ELECTION_TABLE if turn is ElectionState.SHUT_OUT} == {
        ElectionEvent.CLEANED
    }
