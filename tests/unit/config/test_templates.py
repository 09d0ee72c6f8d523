"""What several backups have in common is as if it stood in each of them, and what is wrong is told where it stands."""

from __future__ import annotations

import tomllib
from collections.abc import Callable

import pytest

from zvault.config.load_config import list_resolved_lines, load_config
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.config.tables.backup import NEEDS_VAULT, Backup
from zvault.config.templates import BACKUP_TEMPLATE, OWN_KEYS

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

VAULT = '[vault.cold]\npool = "cold"\n'
SHARED = (
    VAULT
    + """
[defaults]
vault = "cold"
schedule = "daily"
keep = { source = { last = 3 }, vault = { daily = 30 } }
send.large_blocks = false

[template.servers]
every = "1h"
keep.source = { hourly = 24 }
max_lag = "3h"

[template.strict]
send.encrypted = "required"
max_lag = "1h"
"""
)


def test_what_stands_nearest_counts(good: Good) -> None:
    found = good(
        SHARED
        + """
[backup.plain]
source = "tank/plain"
[backup.web]
source = "tank/web"
template = "servers"
[backup.mail]
source = "tank/mail"
template = ["servers", "strict"]
schedule = "hourly"
keep.vault = { monthly = 2 }
"""
    ).backup
    plain, web, mail = found["plain"], found["web"], found["mail"]
    assert [one.vault for one in found.values()] == ["cold"] * 3
    assert [one.send.large_blocks for one in found.values()] == [False] * 3
    assert (str(plain.schedule.text if plain.schedule else ""), plain.every) == ("daily", None)
    assert (web.schedule, web.every.text if web.every else "") == (None, "1h"), "one replaces the other"
    assert (mail.schedule.text if mail.schedule else "", mail.every) == ("hourly", None)
    assert [one.keep.source.last for one in found.values()] == [3, 0, 0]
    assert [one.keep.source.hourly for one in found.values()] == [0, 24, 24]
    assert [(one.keep.vault.daily, one.keep.vault.monthly) for one in found.values()] == [
        (30, 0),
        (30, 0),
        (0, 2),
    ]
    assert [one.max_lag for one in found.values()] == [None, 10800, 3600], "a later template counts more"
    assert [one.send.encrypted for one in found.values()] == ["any", "any", "required"]


def test_a_backup_without_a_vault_inherits_nothing_that_is_about_sending(good: Good) -> None:
    extra = """
[template.all]
also = ["x*"]
limit = "80M"
verify.every = "1w"
receive.set = { sync = "always" }
snapshot = { prefix = "mine", skip_unchanged = true, schedule = "hourly" }
keep.gone = { monthly = 1 }
[backup.lone]
source = "tank"
snapshots_only = true
template = ["servers", "all"]
"""
    lone = good(SHARED + extra).backup["lone"]
    assert (lone.vault, lone.snapshot.prefix, lone.keep.source.hourly) == (None, "mine", 24)
    assert not lone.model_fields_set & {*NEEDS_VAULT}


def test_what_another_host_prunes_inherits_no_rules_for_the_vault(good: Good) -> None:
    text = f'{SHARED}on_conflict = "rollback"\n[backup.a]\nsource = "tank"\nprune.vault = "elsewhere"\n'
    text = text.replace("[template.servers]", "[template.x]\n[template.servers]")
    assert good(text + 'template = "strict"\n').backup["a"].keep.vault.empty


def test_each_file_may_have_templates_but_one_has_the_defaults(good: Good, problems: Problems) -> None:
    more = {"conf.d/a.toml": '[template.a]\nvault = "cold"\n[backup.a]\nsource = "tank"\ntemplate = "a"\n'}
    assert good(VAULT + "[template.b]\n", **more).backup["a"].vault == "cold"
    (line,) = problems(SHARED, **{"conf.d/a.toml": "[defaults]\nretries = 1\n"})
    assert line.startswith("conf.d/a.toml:1: defaults: is set in zvault.toml:4 already")


BACKUPS = "".join(f'[backup.{name}]\nsource = "tank/{name}"\nvault = "cold"\n' for name in "ab")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[defaults]\nretires = 3", '2: defaults.retires: unknown key; did you mean "retries"?'),
        ("[defaults]\nsource = 'tank'", "2: defaults.source: is each backup's own: write it in its [backup"),
        ("[template.a]\nkeep.vault = { last = -1 }", "2: template.a.keep.vault.last: must be at least 0"),
        ("[template.a]\nsnapshot = { prefix = 3 }", "2: template.a.snapshot.prefix: must be a string"),
        ("template = 3", "1: template: must be tables: write [template.NAME]"),
        ("defaults = 3", "1: defaults: must be a table"),
    ],
)
def test_what_is_wrong_is_told_of_the_template_and_once(problems: Problems, text: str, told: str) -> None:
    (line,) = problems(f"{text}\n{VAULT}{BACKUPS}")
    assert line.startswith(f"zvault.toml:{told}")


def test_a_schedule_beside_an_interval_is_a_mistake_of_the_table_that_has_both(problems: Problems) -> None:
    both = 'schedule = "daily"\nevery = "1h"\n'
    (line,) = problems(f"{VAULT}{BACKUPS}{both}")
    assert line.startswith("zvault.toml:10: backup.b.every: stands beside schedule")
    lines = problems(f"[defaults]\n{both}{VAULT}{BACKUPS}")
    assert lines
    assert all("stands beside schedule" in line for line in lines)


def test_a_template_that_is_not_there(problems: Problems) -> None:
    (line,) = problems(SHARED + '[backup.a]\nsource = "tank"\ntemplate = ["servers", "sevrers"]\n')
    assert line.startswith("zvault.toml:20: backup.a.template: ")
    assert line.endswith('no template is called "sevrers"; did you mean "servers"?')


def test_a_template_may_have_all_that_a_backup_has_but_its_own() -> None:
    assert set(BACKUP_TEMPLATE.model_fields) == Backup.model_fields.keys() - set(OWN_KEYS)


def test_the_resolved_tables_say_where_each_key_stands_and_are_a_configuration(
    good: Good, paths: Paths
) -> None:
    before = good(SHARED + '[backup.web]\nsource = "tank/web"\ntemplate = "servers"\nmax_lag = "9h"\n')
    lines = list_resolved_lines(paths)
    assert lines[:1] == ["[backup.web]"]
    assert 'vault = "cold"  # [defaults]' in lines
    assert "keep.source = { hourly = 24 }  # [template.servers]" in lines
    assert 'every = "1h"  # [template.servers]' in lines
    assert 'max_lag = "9h"' in lines
    assert not any(line.startswith("schedule") for line in lines)
    alone = Config.model_validate(
        tomllib.loads("\n".join([VAULT, *lines]).replace('template = "servers"', ""))
    )
    assert alone.backup["web"].model_copy(update={"template": ["servers"]}) == before.backup["web"]
    assert load_config(paths) == before
