"""Who writes what another tool calls it is told what it is called here, with an example that zvault takes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from zvault.config.foreign_words import (
    FOREIGN_FAMILIES,
    FOREIGN_TABLES,
    FOREIGN_VAULT_WORDS,
    FOREIGN_WORDS,
    ForeignWord,
    explain_foreign_grid,
)
from zvault.config.load_config import list_doubts, load_config
from zvault.config.paths import Paths
from zvault.config.schema import Backup, Config, Vault

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

VAULT = '[vault.cold]\npool = "cold"\n'
BACKUP = VAULT + '[backup.tank]\nsource = "tank"\nvault = "cold"\n'


def without_key(text: str, example: str) -> str:
    """The text without the line of the key that the example sets."""
    key = example.partition(" = ")[0]
    head, table, rest = text.partition("[backup.tank]\n")
    return (
        head + table + "".join(f"{line}\n" for line in rest.splitlines() if not line.startswith(f"{key} = "))
    )


@pytest.mark.parametrize("entry", FOREIGN_WORDS, ids=lambda entry: entry.words[0])
def test_each_word_leads_to_its_sentence_and_the_example_is_taken(
    problems: Problems, good: Good, entry: ForeignWord
) -> None:
    for word in entry.words:
        for spelled in {word, word.replace("_", "-"), word.upper()}:
            if spelled in Backup.model_fields:
                continue
            (line,) = problems(f"{BACKUP}{spelled} = true\n")
            assert line.startswith(
                f"zvault.toml:6: backup.tank.{spelled}: unknown key: {entry.sentence}; for example"
            )
    assert good(without_key(BACKUP, entry.example) + entry.example + "\n").backup["tank"].vault == "cold"


def test_there_are_thirty_of_one_meaning_each_and_none_is_a_key_of_zvault() -> None:
    assert len(FOREIGN_WORDS) >= 30
    words = Counter(word for entry in FOREIGN_WORDS for word in entry.words)
    assert [word for word, times in words.items() if times > 1] == []
    assert words.keys() & Backup.model_fields.keys() == set()
    assert all(word == word.lower().replace("-", "_") for word in words)


FORMED = {
    "dst_offsite": "dst_a",
    "dst_0": "dst_a",
    "dst_offsite_plan": "dst_plan",
    "dst_snapshot_plan": "dst_plan",
    "dst_a_precmd": "pre_znap_cmd",
    "dst_a_pstcmd": "pre_znap_cmd",
    "hourly_warn": "monitor",
    "weekly_crit": "monitor",
}
"""Words that other tools form, and the one that means the same."""


def test_a_word_that_is_formed_leads_where_its_family_does(problems: Problems) -> None:
    assert {pattern for pattern, _ in FOREIGN_FAMILIES} == {
        next(pattern for pattern, _ in FOREIGN_FAMILIES if re.fullmatch(pattern, word)) for word in FORMED
    }
    for word, known in FORMED.items():
        (entry,) = [entry for entry in FOREIGN_WORDS if known in entry.words]
        for spelled in {word, word.replace("_", "-")}:
            (line,) = problems(f"{BACKUP}{spelled} = true\n")
            assert f"{spelled}: unknown key: {entry.sentence}; for example" in line


def test_what_is_meant_for_one_side_of_keep_is_told_there_too(problems: Problems) -> None:
    (line,) = problems(f"{BACKUP}keep = {{ hourly = 24 }}\n")
    assert line.startswith(
        "zvault.toml:6: backup.tank.keep.hourly: unknown key: how many are kept is said for each side"
    )
    (line,) = problems(f"{BACKUP}keep = {{ source = {{ grid = 1 }} }}\n")
    assert "backup.tank.keep.source.grid: unknown key: zvault has no grids" in line


def test_other_tables_have_their_own_words(problems: Problems) -> None:
    (line,) = problems(f'{VAULT}compression = "lz4"\n')
    assert "streams of another host" not in line
    (line,) = problems(f"{BACKUP}send = {{ compress = true }}\n")
    assert line.endswith('send.compress: unknown key; did you mean "compressed"?')


@pytest.mark.parametrize("entry", FOREIGN_VAULT_WORDS, ids=lambda entry: entry.words[0])
def test_each_word_in_a_vault_leads_to_its_sentence_and_the_example_is_taken(
    problems: Problems, good: Good, entry: ForeignWord
) -> None:
    assert Vault.model_fields.keys() & {*entry.words} == set()
    for word in entry.words:
        (line,) = problems(f"{VAULT}{word} = true\n")
        assert line.startswith(
            f"zvault.toml:3: vault.cold.{word}: unknown key: {entry.sentence}; for example"
        )
    assert good(VAULT + entry.example + "\n").vault["cold"].pool == "cold"


@pytest.mark.parametrize("entry", FOREIGN_TABLES, ids=lambda entry: entry.words[0])
def test_each_table_leads_to_its_sentence_and_the_example_is_taken(
    problems: Problems, good: Good, entry: ForeignWord
) -> None:
    for word in entry.words:
        for header in (f"[{word}]", f"[{word}.x]"):
            (line,) = problems(f"{header}\nx = 1\n")
            assert line.startswith(f"zvault.toml:1: {word}: unknown key: {entry.sentence}; for example [")
    good(entry.example if "[backup" not in entry.example else f"{VAULT}{entry.example}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[vault.cold]\npool = "cold"\nschedule = "daily"\n', "[backup.NAME]"),
        ('[vault.cold]\npool = "cold"\nretries = 3\n', "[backup.NAME]"),
        ('[vault.cold]\npool = "cold"\nnbd = "tcp:nas:10809/x"\n', "[[vault.cold.device]]"),
        ('[vault.cold]\npool = "cold"\ntimezone = "UTC"\n', "[daemon]"),
        (f'{BACKUP}pool = "cold"\n', "[vault.NAME]"),
        (f'{BACKUP}rbd = "rbd/cold"\n', "[[vault.NAME.device]]"),
        (f'{BACKUP}send = {{ pool = "cold" }}\n', "[vault.NAME]"),
        (f'{VAULT}[host.filer1]\nevery = "1h"\n', "[backup.NAME]"),
        ('every = "1h"\n', "[backup.NAME]"),
    ],
)
def test_a_key_of_another_table_is_told_where_it_belongs(problems: Problems, text: str, place: str) -> None:
    """``retries`` in a vault was answered with all that is known there, ``nbd`` too."""
    (line,) = problems(text)
    assert line.endswith(f": unknown key here; it belongs to {place}")


def test_of_tables_those_are_known_that_are_resolved_first(problems: Problems) -> None:
    (line,) = problems("[xyzzy]\n")
    assert line.endswith("known here: daemon, page, host, vault, backup, notify, defaults, template")
    (line,) = problems("[defualts]\n")
    assert line.endswith('did you mean "defaults"?')


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('["tank/data"]\nuse_template = "production"', 'is a [backup.NAME] with source = "tank/data" here'),
        ("[template_production]\nhourly = 36", "a template of sanoid's"),
        ('[[jobs]]\nname = "snap"', "what is a job of zrepl's is a [backup.NAME] here"),
        ("[global]\nlogging = []", "what is a job of zrepl's is a [backup.NAME] here"),
    ],
)
def test_another_tool_s_file_written_as_toml(problems: Problems, table: str, said: str) -> None:
    (line,) = problems(table)
    assert line.startswith("zvault.toml:1: ")
    assert said in line
    assert "docs/how-to/come-from-elsewhere.md" in line


SANOID = """
[tank/data]
        use_template = production
        recursive = yes

[template_production]
        frequently = 0
        hourly = 36
        daily = 30
        autosnap = yes
        autoprune = yes
"""
ZREPL = """
global:
  logging:
    - type: syslog
jobs:
- name: snapjob
  type: snap
  filesystems: {
      "tank/data<": true,
  }
"""
ZNAPZEND = "src_plan=7d=>1h,30d=>4h,90d=>1d\ndst_a_plan=7d=>1h\nenabled=on\n"


@pytest.mark.parametrize(
    ("text", "tool"), [(SANOID, "a sanoid.conf"), (ZREPL, "a zrepl.yml"), (ZNAPZEND, "a plan of znapzend")]
)
def test_another_tool_s_file_as_it_is(problems: Problems, text: str, tool: str) -> None:
    (line,) = problems(text)
    assert line.startswith(
        f"zvault.toml: is {tool}, which zvault does not read: 'zvaultctl adopt SOURCE REPLICA'"
    )


@pytest.mark.parametrize(
    "text",
    [
        BACKUP + "schedule = hourly\n",
        BACKUP + "keep = {\n",
        "[backup.tank/data]\nsource = 'x'\n",
        "[vault.cold]\n[vault.cold]\n",
    ],
)
def test_a_slip_in_toml_is_not_taken_for_another_tool_s_file(problems: Problems, text: str) -> None:
    (line,) = problems(text)
    assert "is not valid TOML" in line


@pytest.mark.parametrize(
    "value", ["1x1h(keep=all) | 24x1h | 14x1d", "24x1h", "7d=>1h,30d=>4h", "10,1d1w,1w1m,1m1y"]
)
def test_a_grid_is_told_from_other_texts(problems: Problems, value: str) -> None:
    (line,) = problems(f'{BACKUP}keep = "{value}"\n')
    assert "backup.tank.keep: must be a table, not the string" in line
    assert "zvault has no grids, it counts periods for each side: keep = {" in line
    assert explain_foreign_grid("hourly") == explain_foreign_grid(24) == ""


def test_a_host_before_a_colon(problems: Problems, good: Good, paths: Paths) -> None:
    (line,) = problems(VAULT + '[backup.a]\nsource = "root@filer1:tank/data"\nvault = "cold"\n')
    assert 'another host is written as in "ssh://root@filer1/tank/data"' in line
    # A pool may be called so: that is no error, and told all the same.
    good(VAULT + '[backup.a]\nsource = "filer1:tank/data"\nvault = "cold"\n')
    (doubt,) = list_doubts(paths, load_config(paths))
    assert doubt.startswith(
        'backup.a.source: is a pool "filer1:tank" of this host; if filer1 is a host, write'
    )
    assert '"ssh://filer1/tank/data"' in doubt


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('every = "hourly"', 'by the clock, write schedule = "hourly" in place of every'),
        ('every = "30 2 * * *"', 'by the clock, write schedule = "30 2 * * *" in place of every'),
        ('schedule = "*-*-* 02:00:00"', "as systemd.time(7) has it: write the five fields of cron"),
        ('snapshot = "zvault"', 'must be a table, not the string "zvault": write snapshot = { prefix = '),
        ("keep = { source = 3 }", "must be a table, not the integer 3: write source = { last = 3 }"),
    ],
)
def test_values_of_the_wrong_kind_are_told_with_an_example(problems: Problems, line: str, said: str) -> None:
    (told,) = problems(f"{BACKUP}{line}\n")
    assert said in told


@pytest.mark.parametrize(
    ("line", "has"),
    [
        ('exclude = "tank/tmp"', lambda one: one.exclude == ["tank/tmp"]),
        ('include = "tank/home/**"', lambda one: one.include == ["tank/home/**"]),
        ('also = "autosnap_*"', lambda one: one.also == ["autosnap_*"]),
        ('snapshot = { former = "-%s" }', lambda one: one.snapshot.former == ["-%s"]),
        (
            'keep = { vault = { matching = "*-12-31T*" } }',
            lambda one: one.keep.vault.matching == ("*-12-31T*",),
        ),
        ('receive = { leave_out = "a:b", let_in = "*" }', lambda one: one.receive.leave_out == ["a:b"]),
    ],
)
def test_one_string_may_stand_for_an_array_of_it(
    good: Good, line: str, has: Callable[[Backup], bool]
) -> None:
    assert has(good(f"{BACKUP}{line}\n").backup["tank"])


def test_what_is_no_string_may_not(problems: Problems) -> None:
    (line,) = problems(f"{BACKUP}exclude = 3\n")
    assert line.endswith("backup.tank.exclude: must be an array, not the integer 3")
