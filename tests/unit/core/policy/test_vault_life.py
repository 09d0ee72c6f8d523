"""The states of a vault: what the table holds, what follows from it, and that the drawing is of it."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from zvault.core.policy.vault_life import (
    VAULT_TABLE,
    VAULT_TRANSITIONS,
    WITHHELD_STATES,
    IdleNeed,
    LeftoverRecord,
    VaultAdoption,
    VaultEvent,
    VaultLife,
    VaultLifeFacts,
    decide_adoption,
    decide_idle_care,
    is_withheld,
    may_happen,
    move_vault,
)
from zvault.core.transitions import IllegalTransition

PAGE = Path(__file__).resolve().parents[4] / "docs" / "explanation" / "vaults.md"
MOVING = [VaultLife.COMING_UP, VaultLife.COMING_BACK, VaultLife.GOING_DOWN]
AT_REST = [life for life in VaultLife if life not in MOVING]
IDLE = VaultLifeFacts()
PINNED, ALWAYS = VaultLifeFacts(pinned=True), VaultLifeFacts(always=True)


def drawn() -> dict[tuple[VaultLife, VaultEvent], VaultLife]:
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
    by_label = {life.label: life for life in VaultLife}
    lives = {name: by_label[label] for name, label in labels.items()}
    assert set(lives.values()) == set(VaultLife)
    assert len(set(edges)) == len(edges)
    return {(lives[source], VaultEvent(event)): lives[target] for source, event, target in edges}


def test_the_drawing_is_the_table():
    assert drawn() == VAULT_TABLE


def test_no_two_rows_are_about_the_same():
    assert len(VAULT_TABLE) == sum(len(row.sources) for row in VAULT_TRANSITIONS)
    assert {row.event for row in VAULT_TRANSITIONS} == set(VaultEvent)
    assert len({life.label for life in VaultLife}) == len(VaultLife)


def test_every_state_can_be_reached_and_left_for_up_and_down():
    def reached(start: VaultLife) -> set[VaultLife]:
        found = {start}
        while more := {target for (source, _), target in VAULT_TABLE.items() if source in found} - found:
            found |= more
        return found

    assert reached(VaultLife.UNKNOWN) == set(VaultLife)
    for life in VaultLife:
        assert {VaultLife.UP, VaultLife.DOWN} <= reached(life)


@pytest.mark.parametrize("life", MOVING)
def test_a_move_ends_before_another_begins(life: VaultLife):
    ends = {VaultEvent.CAME_UP, VaultEvent.FAIL, VaultEvent.WENT_DOWN}
    assert {event for event in VaultEvent if may_happen(life, event)} <= ends
    assert len([event for event in VaultEvent if may_happen(life, event)]) == 2


@pytest.mark.parametrize("life", AT_REST)
def test_at_rest_it_can_be_brought_up_and_taken_down_but_not_below_its_users(life: VaultLife):
    assert move_vault(life, VaultEvent.BRING_UP, IDLE) in {VaultLife.COMING_UP, VaultLife.COMING_BACK}
    assert move_vault(life, VaultEvent.TAKE_DOWN, IDLE) is VaultLife.GOING_DOWN
    with pytest.raises(IllegalTransition, match="while something uses it"):
        move_vault(life, VaultEvent.TAKE_DOWN, VaultLifeFacts(users=True))


def test_what_the_table_does_not_have_is_refused():
    for life, event in set(product(VaultLife, VaultEvent)) - set(VAULT_TABLE):
        with pytest.raises(IllegalTransition, match=life.label):
            move_vault(life, event, IDLE)


def test_what_zvault_exported_itself_is_never_taken_for_exported_by_hand():
    assert not may_happen(VaultLife.EXPORTED, VaultEvent.FIND_EXPORTED)
    assert VAULT_TABLE[VaultLife.EXPORTED, VaultEvent.BRING_UP] is VaultLife.COMING_UP, (
        "from where a failure is tried again"
    )
    assert not may_happen(VAULT_TABLE[VaultLife.COMING_UP, VaultEvent.FAIL], VaultEvent.FIND_EXPORTED)


@pytest.mark.parametrize("life", sorted(WITHHELD_STATES, key=str))
@pytest.mark.parametrize("facts", [PINNED, ALWAYS])
def test_what_a_person_chose_is_not_brought_up_by_itself(life: VaultLife, facts: VaultLifeFacts):
    assert is_withheld(life, facts)
    assert not is_withheld(life, IDLE)
    for exported in (False, True):
        assert (
            decide_idle_care(life, facts, well=False, exported=exported, left_over=True) is IdleNeed.NOTHING
        )
    assert decide_idle_care(life, facts, well=True, exported=False, left_over=False) is IdleNeed.NOTE_IMPORTED


@pytest.mark.parametrize(
    "facts", [VaultLifeFacts(users=True, pinned=True), VaultLifeFacts(asleep=True, always=True)]
)
def test_nothing_is_done_below_users_or_before_a_sleep(facts: VaultLifeFacts):
    for life, well, exported in product(VaultLife, (False, True), (False, True)):
        assert decide_idle_care(life, facts, well=well, exported=exported, left_over=True) is IdleNeed.NOTHING


@pytest.mark.parametrize(
    ("life", "facts", "well", "exported", "then"),
    [
        (VaultLife.UP, PINNED, True, False, IdleNeed.NOTHING),
        (VaultLife.UP, PINNED, False, False, IdleNeed.BRING_UP),
        (VaultLife.UP, ALWAYS, False, True, IdleNeed.LEAVE_EXPORTED),
        (VaultLife.LOST, ALWAYS, False, True, IdleNeed.LEAVE_EXPORTED),
        (VaultLife.FAILED, ALWAYS, False, True, IdleNeed.BRING_UP),
        (VaultLife.EXPORTED, PINNED, False, True, IdleNeed.BRING_UP),
        (VaultLife.DOWN, ALWAYS, False, False, IdleNeed.BRING_UP),
        (VaultLife.HALF_DOWN, IDLE, False, False, IdleNeed.TAKE_DOWN),
        (VaultLife.UP, IDLE, True, False, IdleNeed.TAKE_DOWN),
    ],
)
def test_what_it_needs(life: VaultLife, facts: VaultLifeFacts, well: bool, exported: bool, then: IdleNeed):
    assert decide_idle_care(life, facts, well=well, exported=exported, left_over=True) is then


def test_one_that_is_not_to_be_up_is_left_unless_something_failed():
    for life in VaultLife:
        assert decide_idle_care(life, IDLE, well=False, exported=False, left_over=False) is IdleNeed.NOTHING


@pytest.mark.parametrize(
    ("left", "always", "needed", "then"),
    [
        (None, False, True, VaultAdoption.NOTHING),
        (LeftoverRecord(stale=True, pinned=True), False, True, VaultAdoption.FORGET),
        (None, True, False, VaultAdoption.BRING_UP),
        (LeftoverRecord(stale=True), True, False, VaultAdoption.BRING_UP),
        (LeftoverRecord(), True, False, VaultAdoption.BRING_UP),
        (LeftoverRecord(pinned=True), False, True, VaultAdoption.PIN),
        (LeftoverRecord(), False, True, VaultAdoption.WAIT),
        (LeftoverRecord(), False, False, VaultAdoption.TAKE_DOWN),
    ],
)
def test_what_a_new_zvaultd_does_with_it(
    left: LeftoverRecord | None, always: bool, needed: bool, then: VaultAdoption
):
    assert decide_adoption(left, always=always, needed=needed) is then
