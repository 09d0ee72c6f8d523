"""A backup without a vault is said on purpose, and nothing that needs one stands in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config
from zvault.core.errors import NotFound
from zvault.core.policy.cron_schedule import ScheduleInterval

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HEAD = '[daemon]\nhost = "h"\n[vault.cold]\npool = "cold"\n[backup.a]\nsource = "tank"\n'
ONLY = HEAD + "snapshots_only = true\n"
SENDS = HEAD + 'vault = "cold"\n'


def test_it_has_no_vault_and_says_so_to_whoever_wants_it(good: Good) -> None:
    backup = good(ONLY + 'schedule = "hourly"\nkeep = { source = { last = 3 } }\n').backup["a"]
    assert backup.vault is None
    assert backup.interval("sample") is None, "there is nothing to verify"
    with pytest.raises(NotFound, match="backup 'a' has no vault: it makes snapshots of tank only"):
        _ = backup.its_vault


def test_a_vault_that_was_forgotten_is_missed(problems: Problems) -> None:
    (line,) = problems(HEAD)
    assert "backup.a.vault" in line
    assert "is missing: a backup needs one; snapshots_only = true" in line


@pytest.mark.parametrize("times", ['schedule = "hourly"', 'every = "15m"'])
def test_its_runs_make_its_snapshots_so_it_has_no_other_time_for_them(problems: Problems, times: str) -> None:
    (line,) = problems(ONLY + f"snapshot = {{ {times} }}\n")
    assert "makes its snapshots in its runs" in line


def test_a_backup_makes_snapshots_at_one_timetable(good: Good, problems: Problems) -> None:
    (line,) = problems(SENDS + 'snapshot = { schedule = "hourly", every = "15m" }\n')
    assert "stands beside snapshot.schedule: use one of them" in line
    assert good(SENDS).backup["a"].snapshot.timetable is None
    times = good(SENDS + 'snapshot = { every = "15m", make = false }\n').backup["a"].snapshot.timetable
    assert isinstance(times, ScheduleInterval)
    assert times.seconds == 900


def test_one_of_both(problems: Problems) -> None:
    (line,) = problems(ONLY + 'vault = "cold"\n')
    assert line == (
        "zvault.toml:8: backup.a.vault: stands beside snapshots_only, which sends nothing: leave out one of them"
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('max_lag = "3h"', "max_lag"),
        ('max_restore = "8h"', "max_restore"),
        ('into = "x/{dataset}"', "into"),
        ('verify = { every = "1d" }', "verify"),
        ("keep = { vault = { last = 3 } }", "keep.vault"),
        ("snapshot = { skip_unchanged = true }", "snapshot.skip_unchanged"),
        ('limit = "1M"', "limit"),
        ('receive = { set = { "a:b" = "c" } }', "receive"),
    ],
)
def test_what_is_about_sending_means_nothing(problems: Problems, line: str, named: str) -> None:
    (told,) = problems(ONLY + line + "\n")
    assert "backup.a" in told
    assert told.endswith(f"snapshots_only sends nothing, so these mean nothing: {named}")


def test_what_makes_no_snapshots_either_only_prunes(good: Good) -> None:
    backup = good(ONLY + "snapshot = { make = false }\n").backup["a"]
    assert backup.prunes_only
    assert not good(ONLY).backup["a"].prunes_only


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("keep = { vault = { last = 3 } }", "keep.vault"),
        ("keep = { gone = { last = 3 } }", "keep.gone"),
        ('on_conflict = "rollback"', 'on_conflict = "rollback"'),
        ('on_conflict = "new-dataset"', 'on_conflict = "new-dataset"'),
    ],
)
def test_where_the_vaults_host_prunes_rules_for_it_mean_nothing(
    problems: Problems, line: str, named: str
) -> None:
    (told,) = problems(SENDS + f'prune = {{ vault = "elsewhere" }}\n{line}\n')
    assert told.endswith(f"so these mean nothing here: {named}")


def test_two_of_one_source_share_its_snapshots_by_one_rule(good: Good, problems: Problems) -> None:
    other = '[backup.b]\nsource = "tank"\nvault = "cold"\n'
    assert good(ONLY + other).backup.keys() == {"a", "b"}
    (line,) = problems(ONLY + other + "keep = { source = { last = 9 } }\n")
    assert "give both the same keep.source, or each a snapshot.prefix of its own" in line
