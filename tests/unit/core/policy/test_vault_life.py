"""The states of a vault: what the table holds, what follows from it, and that the drawing is of it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from zvault.core.policy.vault_life import (
    TABLE,
    TRANSITIONS,
    WITHHELD,
    Adoption,
    Event,
    IdleNeed,
    LeftBehind,
    Life,
    VaultFacts,
    adoption,
    after,
    care,
    may,
    withheld,
)
from zvault.core.transitions import IllegalTransition

PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "vaults.md"
MOVING = [Life.COMING_UP, Life.COMING_BACK, Life.GOING_DOWN]
AT_REST = [life for life in Life if life not in MOVING]
IDLE = VaultFacts()
PINNED, ALWAYS = VaultFacts(pinned=True), VaultFacts(always=True)


def drawn() -> dict[tuple[Life, Event], Life]:
    """The table, read back from the drawing in the documentation."""
    drawing = re.search(r"```mermaid\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert drawing is not None
    groups: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    inside: list[str] = []
    edges = []
    for line in drawing[1].splitlines():
        if found := re.fullmatch(r'\s*subgraph (\w+)\[".*"\]', line):
            inside = groups[found[1]] = []
        elif found := re.fullmatch(r'\s*(\w+)\("(.*)"\)', line):
            labels[found[1]] = found[2]
            inside.append(found[1])
        elif found := re.fullmatch(r'\s*(\w+) -->\|"(.*)"\| (\w+)', line):
            edges += [(source, found[2], found[3]) for source in groups.get(found[1], [found[1]])]
        elif line.strip() == "end":
            inside = []
    by_label = {life.label: life for life in Life}
    lives = {name: by_label[label] for name, label in labels.items()}
    assert set(lives.values()) == set(Life)
    assert len(set(edges)) == len(edges)
    return {(lives[source], Event(event)): lives[target] for source, event, target in edges}


def test_the_drawing_is_the_table():
    assert drawn() == TABLE


def test_no_two_rows_are_about_the_same():
    assert len(TABLE) == sum(len(row.sources) for row in TRANSITIONS)
    assert {row.event for row in TRANSITIONS} == set(Event)
    assert len({life.label for life in Life}) == len(Life)


def test_every_state_can_be_reached_and_left_for_up_and_down():
    def reached(start: Life) -> set[Life]:
        found = {start}
        while more := {target for (source, _), target in TABLE.items() if source in found} - found:
            found |= more
        return found

    assert reached(Life.UNKNOWN) == set(Life)
    for life in Life:
        assert {Life.UP, Life.DOWN} <= reached(life)


@pytest.mark.parametrize("life", MOVING)
def test_a_move_ends_before_another_begins(life: Life):
    ends = {Event.CAME_UP, Event.FAIL, Event.WENT_DOWN}
    assert {event for event in Event if may(life, event)} <= ends
    assert len([event for event in Event if may(life, event)]) == 2


@pytest.mark.parametrize("life", AT_REST)
def test_at_rest_it_can_be_brought_up_and_taken_down_but_not_below_its_users(life: Life):
    assert after(life, Event.BRING_UP, IDLE) in {Life.COMING_UP, Life.COMING_BACK}
    assert after(life, Event.TAKE_DOWN, IDLE) is Life.GOING_DOWN
    with pytest.raises(IllegalTransition, match="while something uses it"):
        after(life, Event.TAKE_DOWN, VaultFacts(users=True))


def test_what_the_table_does_not_have_is_refused():
    for life, event in set(product(Life, Event)) - set(TABLE):
        with pytest.raises(IllegalTransition, match=life.label):
            after(life, event, IDLE)


def test_what_zvault_exported_itself_is_never_taken_for_exported_by_hand():
    assert not may(Life.EXPORTED, Event.FIND_EXPORTED)
    assert TABLE[Life.EXPORTED, Event.BRING_UP] is Life.COMING_UP, "from where a failure is tried again"
    assert not may(TABLE[Life.COMING_UP, Event.FAIL], Event.FIND_EXPORTED)


@pytest.mark.parametrize("life", sorted(WITHHELD, key=str))
@pytest.mark.parametrize("facts", [PINNED, ALWAYS])
def test_what_a_person_chose_is_not_brought_up_by_itself(life: Life, facts: VaultFacts):
    assert withheld(life, facts)
    assert not withheld(life, IDLE)
    for exported in (False, True):
        assert care(life, facts, well=False, exported=exported, left_over=True) is IdleNeed.NOTHING
    assert care(life, facts, well=True, exported=False, left_over=False) is IdleNeed.NOTE_IMPORTED


@pytest.mark.parametrize("facts", [VaultFacts(users=True, pinned=True), VaultFacts(asleep=True, always=True)])
def test_nothing_is_done_below_users_or_before_a_sleep(facts: VaultFacts):
    for life, well, exported in product(Life, (False, True), (False, True)):
        assert care(life, facts, well=well, exported=exported, left_over=True) is IdleNeed.NOTHING


@pytest.mark.parametrize(
    ("life", "facts", "well", "exported", "then"),
    [
        (Life.UP, PINNED, True, False, IdleNeed.NOTHING),
        (Life.UP, PINNED, False, False, IdleNeed.BRING_UP),
        (Life.UP, ALWAYS, False, True, IdleNeed.LEAVE_EXPORTED),
        (Life.LOST, ALWAYS, False, True, IdleNeed.LEAVE_EXPORTED),
        (Life.FAILED, ALWAYS, False, True, IdleNeed.BRING_UP),
        (Life.EXPORTED, PINNED, False, True, IdleNeed.BRING_UP),
        (Life.DOWN, ALWAYS, False, False, IdleNeed.BRING_UP),
        (Life.HALF_DOWN, IDLE, False, False, IdleNeed.TAKE_DOWN),
        (Life.UP, IDLE, True, False, IdleNeed.TAKE_DOWN),
    ],
)
def test_what_it_needs(life: Life, facts: VaultFacts, well: bool, exported: bool, then: IdleNeed):
    assert care(life, facts, well=well, exported=exported, left_over=True) is then


def test_one_that_is_not_to_be_up_is_left_unless_something_failed():
    for life in Life:
        assert care(life, IDLE, well=False, exported=False, left_over=False) is IdleNeed.NOTHING


@pytest.mark.parametrize(
    ("left", "always", "needed", "then"),
    [
        (None, False, True, Adoption.NOTHING),
        (LeftBehind(stale=True, pinned=True), False, True, Adoption.FORGET),
        (None, True, False, Adoption.BRING_UP),
        (LeftBehind(stale=True), True, False, Adoption.BRING_UP),
        (LeftBehind(), True, False, Adoption.BRING_UP),
        (LeftBehind(pinned=True), False, True, Adoption.PIN),
        (LeftBehind(), False, True, Adoption.WAIT),
        (LeftBehind(), False, False, Adoption.TAKE_DOWN),
    ],
)
def test_what_a_new_zvaultd_does_with_it(left: LeftBehind | None, always: bool, needed: bool, then: Adoption):
    assert adoption(left, always=always, needed=needed) is then
