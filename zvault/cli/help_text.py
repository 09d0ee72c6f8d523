"""How --help lists verbs: in groups, and each with a whole sentence. click itself cuts what does not fit on a line.

click's own types have no name here: newer releases of typer bring a click of their own.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from typer.core import TyperGroup

from zvault.cli.foreign_verbs import explain_unknown_verb, find_near_verb

VERB_SECTIONS = {
    "Watch": {
        "status": "How every backup and vault is",
        "lag": "How far each backup lags behind, and how far it may",
        "top": "Live: runs, their streams, vaults",
        "history": "Past runs, and why some failed",
        "list": "Datasets, or with '-t snapshot' their snapshots",
        "explain": "Why a dataset or snapshot is as it is, and what to do",
        "doctor": "The bottleneck of a vault, and the setting to change",
    },
    "Run": {
        "plan": "What a run would send and prune",
        "run": "Run a backup now, and follow it to its end",
        "follow": "Follow a run in progress",
        "prune": "Prune a backup on both sides by its keep rules, now",
        "verify": "Compare a vault with its source",
        "holds": "What zvault's holds and bookmarks are for",
    },
    "Restore": {
        "find": "Find files in a vault: every version that matches",
        "browse": "The versions of a file or folder over time",
        "diff": "What changed from one snapshot to another",
        "mount": "Mount a snapshot of a vault, to look into it",
        "restore": "Restore a dataset, or files into a folder",
    },
    "Vaults": {
        "vault": "Bring a vault up or down, show its pool and devices",
        "scrub": "Scrub a vault, or resume, pause or stop it",
        "heal": "Repair known damage from the source or another vault",
        "fit": "How well blocks fit the storage, and what it costs",
        "tune": "The module parameters that vaults want, and why",
        "blockstore": "Make, check, repair or copy block stores in buckets",
    },
    "Set up": {
        "check-config": "Check the configuration: names every problem",
        "adopt": "Go on from a replica that another tool made",
        "notify": "Whom zvaultd tells of what is wrong; send a test",
        "install-units": "Write the systemd units of a zvault from a venv",
    },
}
"""The verbs of zvaultctl by what they are for, each with what fits beside it on a line of 80 characters."""


class LeadingGroup(TyperGroup):
    """A group of verbs that says of a word that is none of them which may be meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb of a command line. Fails with a lead where it is none."""
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            lead = self.explain_unknown(args[0], self.list_commands(ctx))
            if lead:
                ctx.fail(_wrap_error(f"No such command {args[0]!r}: {lead}"))
        return super().resolve_command(ctx, args)

    def explain_unknown(self, word: str, verbs: list[str]) -> str:
        """Say what may be meant by a word; "" where nothing is known."""
        return find_near_verb(word, verbs)


class WholeHelp(LeadingGroup):
    """A group of verbs whose help has the first sentence of each verb, over as many lines as it needs."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, without those that are hidden."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, _first_sentence(command.help or ""))
            for name, command in found.items()
            if command is not None and not command.hidden
        ]
        _write_section(formatter, "Commands", rows, max((len(name) for name, _ in rows), default=0))


class GroupedHelp(LeadingGroup):
    """zvaultctl itself: its verbs by what they are for."""

    def explain_unknown(self, word: str, verbs: list[str]) -> str:
        """Say what does it too where the word is another tool's."""
        return explain_unknown_verb(word, verbs)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs that there are, section by section."""
        there = set(self.list_commands(ctx))
        room = max(len(name) for verbs in VERB_SECTIONS.values() for name in verbs)
        for title, verbs in VERB_SECTIONS.items():
            _write_section(formatter, title, [row for row in verbs.items() if row[0] in there], room)


def _wrap_error(text: str) -> str:
    """A text that click prints after a word of its own, in lines of 80 characters."""
    before = "Error: "
    wrapped = textwrap.fill(before + text, 80, break_long_words=False, break_on_hyphens=False)
    return wrapped.removeprefix(before)


def _first_sentence(text: str) -> str:
    """The first sentence of a help text, on one line."""
    words = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", words, maxsplit=1)[0].rstrip(".")


def _write_section(formatter: Any, title: str, rows: Iterable[tuple[str, str]], room: int) -> None:
    """The names of all sections are as wide as ``room``, so that their texts are below each other."""
    if rows := [(name.ljust(room), text) for name, text in rows]:
        with formatter.section(title):
            formatter.write_dl(rows)
