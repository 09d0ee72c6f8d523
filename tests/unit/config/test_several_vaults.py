"""A backup with several vaults is one backup for each, with what is the same for all, and what is its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from zvault.config.load_config import list_doubts, list_resolved_lines, load_config
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.config.tables.backup import Backup
from zvault.config.templates import COMMON_KEYS, VAULT_KEYS

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

ROOT = Path(__file__).resolve().parents[3]
VAULTS = '[vault.cold]\npool = "cold"\n[vault.shelf]\npool = "shelf"\n'
HOME = f"""{VAULTS}[backup.home]
source = "tank/home"
schedule = "hourly"
keep = {{ source = {{ last = 3 }}, vault = {{ daily = 30 }} }}
max_lag = "3h"
"""
RULES = """
[backup.home.vaults.cold]
[backup.home.vaults.shelf]
every = "1w"
max_lag = "5w"
backlog = "newest"
keep.vault = { weekly = 52 }
"""


def test_each_vault_is_a_backup_with_what_is_common_and_what_is_its_own(good: Good) -> None:
    found = good(HOME + RULES).backup
    cold, shelf = found["home@cold"], found["home@shelf"]
    assert [one.name for one in found.values()] == ["home@cold", "home@shelf"]
    assert [one.vault for one in found.values()] == ["cold", "shelf"]
    assert (cold.schedule is not None, cold.every, cold.max_lag, cold.backlog) == (True, None, 10800, "all")
    assert shelf.schedule is None, "one replaces the other"
    assert (shelf.every.text if shelf.every else "", shelf.max_lag, shelf.backlog) == (
        "1w",
        35 * 86400,
        "newest",
    )
    assert [one.keep.source.last for one in found.values()] == [3, 3]
    assert [(one.keep.vault.daily, one.keep.vault.weekly) for one in found.values()] == [(30, 0), (0, 52)]
    assert [one.table_name for one in found.values()] == ["home", "home"]
    assert [one.siblings for one in found.values()] == [("home@cold", "home@shelf")] * 2
    assert [one.speaks_for_source for one in found.values()] == [True, False]


def test_names_alone_are_enough_and_one_vault_stays_as_it_was(good: Good) -> None:
    found = good(
        HOME + 'vaults = ["cold", "shelf"]\n[backup.web]\nsource = "tank/web"\nvault = "cold"\n'
    ).backup
    assert list(found) == ["home@cold", "home@shelf", "web"]
    assert (found["web"].table_name, found["web"].siblings, found["web"].speaks_for_source) == (
        "web",
        (),
        True,
    )
    assert [one.max_lag for one in found.values()] == [10800, 10800, None]
    assert list(good(HOME + 'vaults = "shelf"\n').backup) == ["home@shelf"]


def test_vaults_are_inherited_and_replace_a_vault_or_are_replaced_by_one(good: Good) -> None:
    text = f"""{VAULTS}
[defaults]
vaults = ["cold", "shelf"]
every = "1h"
[backup.both]
source = "tank/both"
[backup.one]
source = "tank/one"
vault = "cold"
[backup.alone]
source = "tank/alone"
snapshots_only = true
"""
    assert list(good(text).backup) == ["both@cold", "both@shelf", "one", "alone"]
    text = text.replace('vaults = ["cold", "shelf"]', 'vault = "cold"').replace(
        'vault = "cold"\n[backup.alone]', 'vaults = ["shelf"]\n[backup.alone]'
    )
    assert list(good(text).backup) == ["both", "one@shelf", "alone"]


def test_a_notification_may_name_the_table(good: Good, problems: Problems) -> None:
    text = HOME + RULES + '[notify.me]\nntfy = "https://ntfy.sh/x"\nbackups = ["home"]\n'
    assert good(text).notify["me"].backups == ["home@cold", "home@shelf"]
    assert good(text.replace('["home"]', '["home@shelf"]')).notify["me"].backups == ["home@shelf"]
    (line,) = problems(text.replace('["home"]', '["hone"]'))
    assert "no backup is called" in line


def test_a_dead_mans_switch_is_for_one_vault_of_it(good: Good, problems: Problems) -> None:
    text = HOME + RULES + '[notify.me]\nhealthchecks = "https://hc-ping.com/x"\nbackups = ["home"]\n'
    (line,) = problems(text)
    assert "notify.me.backups: backups must name one backup" in line
    assert line.endswith("home@cold, home@shelf")
    assert good(text.replace('["home"]', '["home@cold"]')).notify["me"].backups == ["home@cold"]
    assert good(text.replace("/x", "/x/{backup}")).notify["me"].backups == ["home@cold", "home@shelf"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('vaults = ["cold"]\nvault = "shelf"', '10: backup.home.vaults: stands beside vault'),
        ('vaults = ["cold", "cold"]', '10: backup.home.vaults: names "cold" twice'),
        ("vaults = []", "10: backup.home.vaults: names no vault"),
        ("vaults = 3", "10: backup.home.vaults: must be an array of names"),
        ("vaults = { cold = 3 }", '10: backup.home.vaults: must have a table for "cold"'),
        ('vaults = ["a b"]', "10: backup.home.vaults: the name 'a b' is not allowed"),
        ('vaults = ["cold", "slef"]', '10: backup.home.vaults: no vault is called "slef"; did you mean "shelf"?'),
        ('vaults.cold.source = "tank"', "10: backup.home.vaults.cold.source: is the same for all vaults"),
        ('vaults.cold.snapshot.prefix = "x"', "10: backup.home.vaults.cold.snapshot: is the same for all"),
        ("vaults.cold.keep.source = { last = 1 }", "10: backup.home.vaults.cold.keep.source: is the same for"),
        ("vaults.cold.maxlag = 3", '10: backup.home.vaults.cold.maxlag: unknown key; did you mean "max_lag"?'),
        ("vaults.cold.retries = -1", "10: backup.home.vaults.cold.retries: must be at least 0"),
        ('vaults = ["cold", "shelf"]\nretries = -1', "11: backup.home.retries: must be at least 0"),
        ('vaults = ["cold", "shelf"]\ninto = "x"', "11: backup.home.into: into = 'x' must end"),
        ('vaults = ["cold"]\nsnapshots_only = true', "5: backup.home"),
        ('vaults.cold.prune.vault = "elsewhere"\nvaults.cold.keep.vault = { last = 1 }', "5: backup.home"),
        ('[backup."a@cold"]\nsource = "x"\nvault = "cold"', "10: backup.\"a@cold\": a name with '@' is that of one"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_where_it_stands_and_once(problems: Problems, text: str, told: str) -> None:
    base = HOME if "backup." not in text else HOME.replace('max_lag = "3h"', 'vault = "cold"')
    if "elsewhere" in text or "snapshots_only" in text:
        base = (
            "\n".join(line for line in HOME.split("\n") if not line.startswith(("keep", "max_lag"))) + "\n\n"
        )
    lines = problems(f"{base}{text}\n")
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"zvault.toml:{told}"), lines


def test_a_vaults_table_may_have_all_that_is_not_common() -> None:
    assert set(VAULT_KEYS.model_fields) == Backup.model_fields.keys() - set(COMMON_KEYS)


def test_the_resolved_tables_say_where_each_key_stands(good: Good, paths: Paths) -> None:
    good(HOME + RULES)
    lines = list_resolved_lines(paths)
    assert [line for line in lines if line.startswith("[")] == [
        '[backup."home@cold"]',
        '[backup."home@shelf"]',
    ]
    shelf = lines[lines.index('[backup."home@shelf"]') :]
    assert "keep.vault = { weekly = 52 }  # [backup.home.vaults.shelf]" in shelf
    assert 'every = "1w"  # [backup.home.vaults.shelf]' in shelf
    assert 'vault = "shelf"  # [backup.home]' in shelf
    assert "keep.source = { last = 3 }" in shelf
    assert not any(line.startswith(("schedule", "vaults")) for line in shelf)


def test_what_others_can_read_or_change_is_told_once_and_at_its_key(
    good: Good, paths: Paths, tmp_path: Path
) -> None:
    program = tmp_path / "tell"
    program.write_text("")
    program.chmod(0o777)
    config = good(HOME + f'vaults = ["cold", "shelf"]\nhooks.after = [["{program}"]]\n')
    (told,) = [one for one in list_doubts(paths, config) if "root runs" in one]
    assert told.startswith("backup.home.hooks.after[0].run: ")


def test_the_how_to_is_a_configuration(good: Good, paths: Paths) -> None:
    page = (ROOT / "docs" / "how-to" / "several-vaults.md").read_text()
    (text,) = re.findall(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    found = good(text).backup
    assert list(found) == ["home@cold", "home@shelf"]
    assert (found["home@cold"].max_lag, found["home@shelf"].max_lag) == (3 * 3600, 5 * 7 * 86400)
    assert (found["home@shelf"].backlog, found["home@shelf"].keep.vault.weekly) == ("newest", 52)
    assert found["home@cold"].keep.vault.hourly == 48
    assert load_config(paths).backup == found
