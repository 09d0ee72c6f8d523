"""Every --help fits a terminal of 80 columns, and nothing in it is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from tests.unit.cli.conftest import Ctl
from zvault.cli.app import VERB_COMMANDS, VERB_GROUPS, assemble_app
from zvault.cli.help_text import VERB_SECTIONS

APP = assemble_app()
ROOT: Any = typer.main.get_command(APP)


def list_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from list_commands(below, (*words, name))


COMMANDS = list(list_commands(ROOT))


def show_help(*words: str) -> list[str]:
    shown = CliRunner().invoke(APP, [*words, "--help"], terminal_width=80)
    assert shown.exit_code == 0
    return shown.output.splitlines()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_line_is_whole_at_80_columns(words: tuple[str, ...]) -> None:
    lines = show_help(*words)
    assert [line for line in lines if len(line) > 80] == []
    # click's own dots stand for what it cut; in a usage line they say that there may be several.
    assert [line for line in lines if line.rstrip().endswith("...") and not line.startswith("Usage:")] == []


def test_every_verb_is_in_one_section_on_one_line() -> None:
    listed = [name for verbs in VERB_SECTIONS.values() for name in verbs]
    assert Counter(listed) == Counter([*VERB_COMMANDS, *VERB_GROUPS])
    lines = show_help()
    for title, verbs in VERB_SECTIONS.items():
        at = lines.index(f"{title}:")
        assert [line.split()[0] for line in lines[at + 1 : at + 1 + len(verbs)]] == list(verbs)
        for name, text in verbs.items():
            assert any(line.split(None, 1) == [name, text] for line in lines)


def test_below_a_group_each_verb_has_its_whole_first_sentence() -> None:
    for group in VERB_GROUPS:
        text = " ".join(" ".join(show_help(group)).split())
        for name, command in ROOT.commands[group].commands.items():
            first = " ".join(command.help.split("\n\n")[0].split()).rstrip(".")
            assert f"{name} {first.split('. ')[0]}" in text


def test_one_letter_means_one_thing(ctl: Ctl) -> None:
    """Of zvaultctl itself -H asked other hosts, of its verbs it is for scripts."""
    letters: dict[str, set[str]] = {}
    for words in COMMANDS:
        command = ROOT
        for word in words:
            command = command.commands[word]
        for param in command.params:
            for short in (one for one in param.opts if len(one) == 2 and one[0] == "-"):
                letters.setdefault(short, set()).add(
                    next(one for one in param.opts if one != short) if len(param.opts) > 1 else ""
                )
    assert letters["-H"] == {"--scripted"}
    assert ctl("-H", "a,b", "status").code == 2
