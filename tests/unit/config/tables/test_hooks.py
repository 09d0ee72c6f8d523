"""How hooks are written, and what the error says when they are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config
from zvault.config.tables.hooks import Hook

BASE = '[vault.cold]\npool = "cold"\n[backup.tank]\nsource = "tank"\nvault = "cold"\n'

WRONG = [
    ('before = "sync"', "must be an array of hooks, each an array of words; no shell reads them"),
    ('before = ["psql", "-c", "CHECKPOINT"]', "each hook is an array of its own: write [["),
    ('before = [["sync"], "sync"]', "each hook is an array of its own"),
    ("before = [[]]", "before[0].run: names no program"),
    ('before = [[""]]', "before[0].run: names no program"),
    ('before = [["psql -c CHECKPOINT"]]', 'before[0].run: "psql -c CHECKPOINT" is no program'),
    ("before = [[1]]", "before[0].run[0]: must be a string, not the integer 1"),
    ("before = [3]", "must be a table, not the integer 3"),
    ("before = [{}]", 'before[0].run: is missing; for example run = ["runuser"'),
    ('before = [{ run = "sync" }]', "before[0].run: must be an array, not the string"),
    (
        'before = [{ run = ["sync"], time_out = "1s" }]',
        'before[0].time_out: unknown key; did you mean "timeout"?',
    ),
    (
        'before = [{ run = ["sync"], timeout = 30 }]',
        "before[0].timeout: must be a string (duration",
    ),
    ('before = [{ run = ["sync"], timeout = "0s" }]', "before[0].timeout: must be more than 0s"),
    (
        'before = [{ run = ["sync"], on_failure = "goon" }]',
        'before[0].on_failure: must be one of "stop", "go-on", not the string "goon"; did you mean "go-on"?',
    ),
    ('before = [{ run = ["sync"], environment = { "A B" = "x" } }]', 'environment: "A B" is no name for a'),
    (
        'before = [{ run = ["sync"], environment = { ZVAULT_RUN = "x" } }]',
        'environment: "ZVAULT_RUN" begins with ZVAULT_',
    ),
    ('before = [{ run = ["sync"], environment = { A = 1 } }]', "environment.A: must be a string, not the in"),
    ('befor = [["sync"]]', 'befor: unknown key; did you mean "before"?'),
]


@pytest.mark.parametrize("table", ["hooks", "snapshot.hooks"])
@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_what_is_wrong(problems: Callable[..., list[str]], table: str, text: str, message: str) -> None:
    (line,) = problems(f"{BASE}[backup.tank.{table}]\n{text}\n")
    assert line.startswith(f"zvault.toml:7: backup.tank.{table}.")
    assert message in line


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (
            "hooks",
            'before = [{ run = ["sync"], hold = true }]',
            "hold stands in [backup.NAME.snapshot.hooks] only",
        ),
        ("hooks", 'after = [{ run = ["sync"], hold = true }]', "this one has nothing to hold"),
        ("snapshot.hooks", 'after = [{ run = ["sync"], hold = true }]', "this one has nothing to hold"),
    ],
)
def test_only_a_hook_before_the_snapshot_is_held(
    problems: Callable[..., list[str]], table: str, text: str, message: str
) -> None:
    (line,) = problems(f"{BASE}[backup.tank.{table}]\n{text}\n")
    assert message in line


def test_both_ways_to_write_a_hook(good: Callable[..., Config]) -> None:
    backup = good(
        BASE
        + 'hooks = { after = [["notify", "a b", ""]] }\n'
        + "[backup.tank.snapshot.hooks]\n"
        + 'before = [["freeze"], { run = ["flush", "-x"], timeout = "2m", on_failure = "go-on" }]\n'
        + "[[backup.tank.snapshot.hooks.after]]\n"
        + 'run = ["thaw"]\n'
        + 'environment = { LEVEL = "1" }\n'
    ).backup["tank"]
    assert backup.hooks.before == []
    assert backup.hooks.after == [Hook(run=["notify", "a b", ""])]
    first, second = backup.snapshot.hooks.before
    assert (first.run, first.timeout, first.environment, first.on_failure) == (["freeze"], 30.0, {}, "stop")
    assert (second.run, second.timeout, second.on_failure) == (["flush", "-x"], 120.0, "go-on")
    assert backup.snapshot.hooks.after[0].environment == {"LEVEL": "1"}
