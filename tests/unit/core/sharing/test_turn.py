"""The states of a host that shares a vault: what the table holds, and that the page is of it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from zvault.core.sharing.turn import (
    TABLE,
    TRANSITIONS,
    WRITING,
    Event,
    Turn,
    after,
    found,
    may,
)
from zvault.core.transitions import IllegalTransition

PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "several-hosts.md"
BY_LABEL = {turn.label: turn for turn in Turn}


def test_an_event_leads_from_a_state_to_one_other() -> None:
    assert len(TABLE) == sum(len(row.sources) for row in TRANSITIONS)
    assert all(source is not target for (source, _), target in TABLE.items())


def test_the_page_is_of_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    states = set(re.findall(rf"^\| ({'|'.join(BY_LABEL)}) \| [^|]+ \|$", text, re.M))
    assert states == set(BY_LABEL)
    rows = re.findall(rf"^\| ([a-z ]+) \| ([a-z ,]+) \| ({'|'.join(BY_LABEL)}) \| [^|]+ \|$", text, re.M)
    drawn = {
        (BY_LABEL[source], Event(event)): BY_LABEL[target]
        for event, sources, target in rows
        for source in sources.split(", ")
    }
    assert drawn == TABLE


@pytest.mark.parametrize(("turn", "event"), list(product(Turn, Event)))
def test_what_the_table_has_not_is_refused(turn: Turn, event: Event) -> None:
    if may(turn, event):
        assert after(turn, event) is TABLE[turn, event]
    else:
        with pytest.raises(IllegalTransition, match=turn.label):
            after(turn, event)


@pytest.mark.parametrize("turn", list(Turn))
def test_from_each_state_a_host_comes_to_stand_by_and_to_hold_the_vault(turn: Turn) -> None:
    reached, fresh = {turn}, {turn}
    while fresh:
        fresh = {target for (source, _), target in TABLE.items() if source in fresh} - reached
        reached |= fresh
    assert {Turn.STANDING_BY, Turn.HOLDING} <= reached


def test_only_a_host_that_asked_and_got_the_lease_may_write() -> None:
    entries = {(source, event) for (source, event), target in TABLE.items() if target in WRITING}
    assert {pair for pair in entries if pair[0] not in WRITING} == {(Turn.ASKING, Event.GOT)}


def test_a_host_that_lost_the_vault_writes_again_only_after_it_cleaned_up() -> None:
    assert {event for turn, event in TABLE if turn is Turn.SHUT_OUT} == {Event.CLEANED}


def test_after_a_start_the_state_is_what_is_found() -> None:
    assert found(lease_ours=True, was_writing=True) is Turn.HOLDING
    assert found(lease_ours=True, was_writing=False) is Turn.CUT_OFF
    assert found(lease_ours=False, was_writing=True) is Turn.SHUT_OUT
    assert found(lease_ours=False, was_writing=False) is Turn.STANDING_BY
