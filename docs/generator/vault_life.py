"""The states of a vault in docs/explanation/vaults.md, drawn from the table in core/policy/vault_life.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from generator.marked_part import with_part
from generator.state_tables import states, transitions
from zvault.core.policy.vault_life import (
    BEEN_UP,
    RESTARTABLE_STATES,
    VAULT_TRANSITIONS,
    VaultEvent,
    VaultLife,
)
from zvault.core.transitions import StateTransition

PAGE = Path(__file__).resolve().parent.parent / "explanation" / "vaults.md"
BEGIN = "<!-- Made by docs/generate.py from zvault/core/policy/vault_life.py. Do not edit up to the end mark. -->\n"
END = "<!-- The end of what docs/generate.py makes. -->\n"

GROUPS = {"anew": ("comes up anew", RESTARTABLE_STATES), "been_up": ("has been up", BEEN_UP)}


def vaults() -> str:
    """The page, with its part between the two marks made again."""
    part = f"\n{_drawing()}\n{states(VaultLife)}\n{transitions(VAULT_TRANSITIONS)}\n"
    return with_part(PAGE, BEGIN, part, END)


def _drawing() -> str:
    lines = ["```mermaid", "flowchart TD"]
    for name, (title, members) in GROUPS.items():
        nodes = [f"        {_node(life)}" for life in members]
        lines += [f'    subgraph {name}["{title}"]', *nodes, "    end"]
    grouped = {*RESTARTABLE_STATES, *BEEN_UP}
    lines += [f"    {_node(life)}" for life in VaultLife if life not in grouped]
    for row in VAULT_TRANSITIONS:
        target = row.target.name.lower()
        lines += [f'    {source} -->|"{row.event.value}"| {target}' for source in _sources(row)]
    return "\n".join([*lines, "```", ""])


def _node(life: VaultLife) -> str:
    return f'{life.name.lower()}("{life.label}")'


def _sources(row: StateTransition[VaultLife, VaultEvent]) -> Iterator[str]:
    """The states an event starts from: a group where it starts from all of its states, else each by itself."""
    left = list(row.sources)
    for name, (_, members) in GROUPS.items():
        if set(members) <= set(left):
            yield name
            left = [life for life in left if life not in members]
    for life in left:
        yield life.name.lower()
