"""The states of a host that shares a vault in docs/explanation/several-hosts.md, from core/sharing/turn.py."""

from __future__ import annotations

from pathlib import Path

from zvault.core.sharing.turn import TRANSITIONS, Turn

PAGE = Path(__file__).resolve().parent.parent / "explanation" / "several-hosts.md"
BEGIN = (
    "<!-- Made by docs/generate.py from zvault/core/sharing/turn.py. Do not edit up to the end mark. -->\n"
)
END = "<!-- The end of what docs/generate.py makes. -->\n"


def several_hosts() -> str:
    """The page, with its part between the two marks made again."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_states()}\n{_transitions()}\n{END}{after}"


def _states() -> str:
    rows = [f"| {turn.label} | {turn.meaning} |" for turn in Turn]
    return "\n".join(["| state | what it means |", "|---|---|", *rows, ""])


def _transitions() -> str:
    rows = [
        f"| {row.event.value} | {', '.join(turn.label for turn in row.sources)} | {row.target.label}"
        f" | {row.meaning} |"
        for row in TRANSITIONS
    ]
    return "\n".join(["| event | from | to | when |", "|---|---|---|---|", *rows, ""])
