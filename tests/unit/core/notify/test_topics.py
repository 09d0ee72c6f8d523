"""Every condition has its topic, and nothing is over that nobody saw to be well."""

from __future__ import annotations

from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.core.health.backup_conditions import BACKUP_CONDITIONS
from zvault.core.health.daemon import DaemonFacts, judge_daemon
from zvault.core.health.daemon_conditions import DAEMON_CONDITIONS
from zvault.core.health.vault import VaultHealthFacts, judge_vault
from zvault.core.health.vault_conditions import VAULT_CONDITIONS
from zvault.core.notify.topics import CONDITION_TOPICS, HIDDEN_TOPICS, TOPIC_OF, sort_by_topic


def test_each_condition_that_is_wrong_is_of_one_topic_and_each_unknown_one_hides_some() -> None:
    conditions = (*BACKUP_CONDITIONS, *VAULT_CONDITIONS, *DAEMON_CONDITIONS)
    wrong = {one.key for one in conditions if one.level != "unknown"}
    assert wrong - {"interrupted"} == set(TOPIC_OF)
    assert {one.key for one in conditions} - wrong | {"interrupted"} == set(HIDDEN_TOPICS)
    assert sum(map(len, CONDITION_TOPICS.values())) == len(TOPIC_OF)


def test_a_backup_that_is_late_and_failed_has_two_topics_with_all_reasons() -> None:
    facts = BackupFacts(
        "tank", result="failed", lag=5 * 3600, max_lag=3600, due_for=5000.0, conflicts=("tank/a",)
    )
    found = sort_by_topic(judge_backup(facts))
    assert {topic: one.conditions for topic, one in found.wrong.items()} == {
        "lag": ("very-late", "not-started"),
        "run": ("failed", "conflict"),
    }
    assert found.wrong["lag"].level == "critical"
    assert found.wrong["run"].why == "no error is on record; the last run left out tank/a"
    assert not found.hidden


def test_a_lag_that_is_not_known_is_not_well() -> None:
    found = sort_by_topic(judge_backup(BackupFacts("tank", result="ok")))
    assert not found.wrong
    assert {"lag", "base", "unknown"} <= found.hidden


def test_a_run_that_was_cut_short_is_neither_a_failure_nor_well() -> None:
    found = sort_by_topic(judge_backup(BackupFacts("tank", result="interrupted", lag=0.0)))
    assert not found.wrong
    assert found.hidden == {"run"}


def test_a_vault_that_was_never_seen_is_not_well() -> None:
    found = sort_by_topic(judge_vault(VaultHealthFacts("cold", "cold", "down")), frozenset({"writes"}))
    assert {"damage", "space", "scrub", "writes"} <= found.hidden


def test_a_daemon_that_has_not_looked_yet_says_nothing_of_its_configuration() -> None:
    assert {"configuration", "state"} <= sort_by_topic(judge_daemon(DaemonFacts())).hidden
    assert not sort_by_topic(judge_daemon(DaemonFacts(config_differs="", unwritable=""))).hidden
