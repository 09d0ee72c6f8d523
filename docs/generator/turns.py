"""The states of a host that shares a vault in docs/explanation/several-hosts.md, from core/sharing/election.py."""

from __future__ import annotations

from pathlib import Path

from generator.marked_part import with_part
from generator.state_tables import states, transitions
from zvault.core.sharing.election import ELECTION_TRANSITIONS, ElectionState

PAGE = Path(__file__).resolve().parent.parent / "explanation" / "several-hosts.md"
BEGIN = "<!-- Made by docs/generate.py from zvault/core/sharing/election.py. Do not edit up to the end mark. -->\n"
END = "<!-- The end of what docs/generate.py makes. -->\n"


def several_hosts() -> str:
    """The page, with its part between the two marks made again."""
    part = f"\n{states(ElectionState)}\n{transitions(ELECTION_TRANSITIONS)}\n"
    return with_part(PAGE, BEGIN, part, END)
