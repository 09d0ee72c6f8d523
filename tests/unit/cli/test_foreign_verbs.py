"""Who types a verb that there is not is told the one that does it, in lines that fit."""

from __future__ import annotations

from collections import Counter

import pytest
from typer.testing import CliRunner

from zvault.cli.app import VERB_COMMANDS, VERB_GROUPS, assemble_app
from zvault.cli.foreign_verbs import FOREIGN_VERBS, explain_unknown_verb

APP = assemble_app()
VERBS = {*VERB_COMMANDS, *VERB_GROUPS}
WORDS = [word for words in FOREIGN_VERBS for word in words]


def refuse(*words: str) -> str:
    said = CliRunner().invoke(APP, words)
    assert said.exit_code == 2
    assert [line for line in said.output.splitlines() if len(line) > 80] == []
    return " ".join(said.output.partition("Error: ")[2].split())


def test_each_word_has_one_meaning_and_is_no_verb() -> None:
    assert [word for word, times in Counter(WORDS).items() if times > 1] == []
    assert VERBS & {*WORDS} == set()


@pytest.mark.parametrize("words", FOREIGN_VERBS, ids=lambda words: words[0])
def test_a_word_leads_to_what_does_it(words: tuple[str, ...]) -> None:
    for word in words:
        for spelled in {word, word.upper(), word.replace("-", "_")}:
            assert refuse(spelled, "tank") == f"No such command '{spelled}': {FOREIGN_VERBS[words]}"


@pytest.mark.parametrize(
    ("typed", "meant"), [("statsu", "status"), ("chek-config", "check-config"), ("valt", "vault")]
)
def test_a_slip_leads_to_the_verb(typed: str, meant: str) -> None:
    assert refuse(typed) == f"No such command '{typed}': did you mean '{meant}'?"


def test_a_slip_below_a_group_does_too() -> None:
    assert refuse("vault", "grwo", "cold") == "No such command 'grwo': did you mean 'grow'?"
    assert refuse("vault", "xyzzy") == "No such command 'xyzzy'."


def test_other_words_lead_nowhere() -> None:
    assert refuse("xyzzy") == "No such command 'xyzzy'."
    assert explain_unknown_verb("", VERBS) == ""
