"""A backup's verdict: each condition from facts that show it, and ok from nothing but facts that are known and good."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zvault.core.errors import ErrorDocument
from zvault.core.health.backup import BackupFacts, ProofFacts, is_late, judge_backup
from zvault.core.health.backup_conditions import BACKUP_CONDITIONS
from zvault.core.health.verdict import DAY_SECONDS, VERDICT_LEVELS
from zvault.core.integrity.restore_time import RestoreEstimate, TimedRead

HOUR = 3600.0
WEEK = 7 * DAY_SECONDS
ERROR: ErrorDocument = {
    "reason": "transfer",
    "what": "the stream broke",
    "why": "no room",
    "next": "make room",
}
PROVEN = ProofFacts(HOUR, WEEK)

GOOD = BackupFacts(
    "tank",
    result="ok",
    success_age=HOUR,
    lag=HOUR,
    max_lag=3 * HOUR,
    proofs={"sample": PROVEN},
    proofs_wanted=True,
)
NEVER = replace(GOOD, result=None, success_age=None, lag=None, proofs=None)

ALONE: dict[str, Any] = {
    "sends": False, "lag": None, "max_lag": None, "proofs": None, "proofs_wanted": False, "snapshot_age": HOUR
}  # fmt: skip
"""A backup that makes snapshots only."""

TAKES = RestoreEstimate("tank", 0.0, 7200 << 20, TimedRead("drill", "tank", "cold", 0.0, 1 << 30, 1024.0))
"""Two hours at 1 MiB a second."""

CASES: list[tuple[dict[str, Any], float, tuple[str, ...]]] = [
    ({}, 0, ()),
    ({"lag": 3 * HOUR + 1}, 0, ("late",)),
    ({"lag": 9 * HOUR + 1}, 0, ("very-late",)),
    ({"lag": 99 * DAY_SECONDS, "max_lag": None}, 0, ()),
    ({"lag": None, "success_age": 3 * HOUR + 1}, 0, ("late", "lag-unknown")),
    ({"lag": None}, 0, ("lag-unknown",)),
    ({"lag": None, "at_least": 3 * HOUR}, 0, ("lag-unknown",)),
    # A second ago something may have changed: that is no lateness.
    ({"lag": None, "success_age": 3 * HOUR + 1, "being_read": True}, 0, ("lag-unknown",)),
    (
        {"lag": None, "success_age": 3 * HOUR + 1, "being_read": True, "not_read": "why"},
        0,
        ("late", "lag-unknown"),
    ),
    ({"lag": None, "at_least": 3 * HOUR + 1}, 0, ("late", "lag-unknown")),
    ({"lag": None, "at_least": 9 * HOUR + 1, "ahead": ("tank/a",)}, 0, ("very-late", "lag-unknown")),
    ({"lag": None, "at_least": 9 * HOUR + 1, "absent": ("tank/a",)}, 0, ("very-late", "lag-unknown")),
    ({"lag": None, "at_least": 99 * DAY_SECONDS, "max_lag": None}, 0, ("lag-unknown",)),
    ({"at_least": 9 * HOUR + 1}, 0, ()),
    ({"lag": None, "absent": ("tank/new",)}, 3 * HOUR - 1, ("lag-unknown",)),
    ({"lag": None, "absent": ("tank/new",)}, 3 * HOUR, ("lag-unknown-long", "lag-unknown")),
    ({"lag": None, "success_age": None, "ahead": ("tank/a",)}, 0, ("lag-unknown",)),
    ({"lag": None, "success_age": None, "ahead": ("tank/a",)}, 3 * HOUR, ("lag-unknown-long", "lag-unknown")),
    ({"lag": None, "success_age": None, "result": None, "ahead": ("tank/a",)}, 0, ("lag-unknown",)),
    ({"lag": None, "max_lag": None}, DAY_SECONDS - 1, ("lag-unknown",)),
    ({"lag": None, "max_lag": None}, DAY_SECONDS, ("lag-unknown-long", "lag-unknown")),
    ({"missed": True}, 0, ("overdue",)),
    ({"result": "failed", "error": ERROR}, 0, ("failed",)),
    ({"result": "failed", "error": ERROR, "lag": 4 * HOUR}, 0, ("failed", "late")),
    ({"result": "partial", "lag": 4 * HOUR}, 0, ("late", "partial")),
    ({"result": "partial", "conflicts": ("tank/a",)}, 0, ("partial", "conflict")),
    ({"result": "interrupted"}, 0, ("interrupted",)),
    ({"snapshot_error": ERROR}, 0, ("not-snapshotted",)),
    ({"lag": None, "marked": ("tank/a",)}, 0, ("base-at-risk", "lag-unknown")),
    ({"held_back": 2}, 0, ("held-back",)),
    ({"due_for": 900.0}, 0, ()),
    ({"due_for": 901.0}, 0, ("not-started",)),
    ({"not_read": "the host does not answer"}, 0, ("lag-not-read",)),
    ({"not_read": "the host does not answer"}, 3 * HOUR, ("backup-unknown-long", "lag-not-read")),
    ({"proofs": {"sample": replace(PROVEN, differs=True)}}, 0, ("differs",)),
    ({"exposed": {"usb/enc/home": "usb/enc"}}, 0, ("exposed",)),
    ({"proofs": {"sample": replace(PROVEN, age=1.1 * WEEK)}}, 0, ()),
    ({"proofs": {"sample": replace(PROVEN, age=1.1 * WEEK + 1)}}, 0, ("proof-overdue",)),
    ({"proofs": {"sample": ProofFacts(99 * WEEK, None)}}, 0, ()),
    ({"proofs": {"sample": ProofFacts(None, WEEK, since=WEEK)}}, 0, ()),
    ({"proofs": {"sample": ProofFacts(None, WEEK, since=2 * WEEK)}}, 0, ("never-proven",)),
    ({"proofs": None}, 0, ("proof-unknown",)),
    ({"proofs": {"sample": ProofFacts(None, WEEK, ahead=True)}}, 0, ("proof-unknown",)),
    ({"proofs": {"sample": ProofFacts(None, WEEK, since=2 * WEEK, ahead=True)}}, 0, ("proof-unknown",)),
    (
        {"proofs": {"sample": ProofFacts(None, WEEK, ahead=True)}},
        3 * HOUR,
        ("backup-unknown-long", "proof-unknown"),
    ),
    ({"proofs": {"sample": ProofFacts(None, None, ahead=True)}}, 0, ()),
    ({"restore": TAKES, "max_restore": None}, 0, ()),
    ({"restore": TAKES, "max_restore": 2.0 * HOUR}, 0, ()),
    ({"restore": TAKES, "max_restore": 2.0 * HOUR - 1}, 0, ("restore-slow",)),
    ({"restore": None, "max_restore": None}, DAY_SECONDS, ()),
    ({"restore": None, "max_restore": HOUR}, 0, ("restore-unknown",)),
    ({"restore": replace(TAKES, bytes=None), "max_restore": HOUR}, 0, ("restore-unknown",)),
    (
        {"restore": replace(TAKES, reading=None), "max_restore": HOUR},
        3 * HOUR,
        ("backup-unknown-long", "restore-unknown"),
    ),
    (ALONE, 0, ()),
    (ALONE | {"missed": True}, 0, ("overdue",)),
    (ALONE | {"snapshot_age": None}, 0, ("snapshots-unknown",)),
    (
        ALONE | {"snapshot_age": None, "bare": ("tank/new",)},
        DAY_SECONDS,
        ("backup-unknown-long", "snapshots-unknown"),
    ),
    (ALONE | {"snapshot_age": None, "result": None}, 0, ("new",)),
    (ALONE | {"snapshot_age": None, "result": None, "bare": ("tank/new",)}, 0, ("snapshots-unknown",)),
    (ALONE | {"snapshot_age": None, "result": None}, DAY_SECONDS, ("backup-unknown-long", "new")),
    (ALONE | {"not_read": "the host does not answer"}, 0, ("lag-not-read",)),
    ({"proofs": None, "proofs_wanted": False}, 0, ()),
]


@pytest.mark.parametrize(("change", "unknown_for", "keys"), CASES)
def test_each_condition_by_its_facts(change: dict[str, Any], unknown_for: float, keys: tuple[str, ...]):
    assert judge_backup(replace(GOOD, **change), unknown_for).keys == keys


def test_a_first_run_that_goes_on_for_weeks_is_no_alarm():
    running = replace(NEVER, running=True)
    for unknown_for in (0, 3 * HOUR, 20 * DAY_SECONDS):
        verdict = judge_backup(running, unknown_for)
        assert verdict.keys == ("first-run",)
        assert verdict.level == "unknown"
    assert "zvaultctl run" not in judge_backup(running).findings[0].next


def test_what_the_last_run_left_out_is_no_reason_to_run_again():
    unknown = replace(GOOD, lag=None, absent=("tank/half",))
    (one,) = judge_backup(unknown).findings
    assert "'zvaultctl run" in one.next
    for result in ("partial", "failed"):
        found = {
            one.condition.key: one.next for one in judge_backup(replace(unknown, result=result)).findings
        }
        assert found["lag-unknown"] == "'zvaultctl explain tank/half' says what keeps it out"


def test_what_never_ran_is_new_and_not_for_ever():
    assert judge_backup(NEVER).keys == ("new",)
    assert judge_backup(replace(NEVER, missed=True)).keys == ("overdue", "new")
    assert judge_backup(NEVER, 3 * HOUR).keys == ("lag-unknown-long", "new")
    assert [is_late(judge_backup(one)) for one in (NEVER, replace(NEVER, missed=True))] == [False, True]
    assert is_late(judge_backup(NEVER, 3 * HOUR))


def test_the_cases_show_every_condition():
    shown = {key for _, _, keys in CASES for key in keys} | {"new", "first-run"}
    assert shown == {one.key for one in BACKUP_CONDITIONS}


def test_a_failed_run_says_why_and_what_next():
    (one,) = judge_backup(replace(GOOD, result="failed", error=ERROR)).findings
    assert (one.why, one.next, one.word) == ("the stream broke: no room", "make room", "failed")


ages = st.none() | st.floats(0, 400 * DAY_SECONDS)
proof_facts = st.builds(
    ProofFacts,
    ages,
    st.none() | st.floats(60, 60 * DAY_SECONDS),
    st.booleans(),
    st.just(""),
    ages,
    st.booleans(),
)
backup_facts = st.builds(
    BackupFacts,
    name=st.just("tank"),
    result=st.sampled_from([None, "ok", "partial", "failed", "interrupted"]),
    error=st.none() | st.just(ERROR),
    success_age=ages,
    lag=ages,
    max_lag=st.none() | st.floats(60, 60 * DAY_SECONDS),
    absent=st.sampled_from([(), ("tank/a",), tuple(f"tank/{n}" for n in range(9))]),
    marked=st.sampled_from([(), ("tank/a",)]),
    missed=st.booleans(),
    due_for=st.floats(-DAY_SECONDS, DAY_SECONDS),
    not_read=st.sampled_from(["", "no answer"]),
    proofs=st.none() | st.dictionaries(st.sampled_from(["guids", "sample", "full", "drill"]), proof_facts),
    proofs_wanted=st.booleans(),
    held_back=st.integers(0, 3),
    conflicts=st.sampled_from([(), ("tank/a",)]),
    at_least=ages,
    restore=st.sampled_from([None, TAKES, replace(TAKES, bytes=None)]),
    max_restore=st.none() | st.floats(60, DAY_SECONDS),
)

BAD: dict[str, Any] = {
    "max_restore": 1.0,
    "result": "failed",
    "missed": True,
    "marked": ("tank/b",),
    "due_for": DAY_SECONDS,
    "not_read": "no answer",
    "held_back": 1,
    "conflicts": ("tank/b",),
    "proofs": {"full": ProofFacts(None, DAY_SECONDS, differs=True)},
    "lag": 400 * DAY_SECONDS,
}


@given(backup_facts, st.floats(0, 99 * DAY_SECONDS))
def test_ok_is_said_only_of_what_is_known_and_good(facts: BackupFacts, unknown_for: float):
    verdict = judge_backup(facts, unknown_for)
    good = (
        facts.lag is not None
        and (facts.max_lag is None or facts.lag <= facts.max_lag)
        and facts.result in (None, "ok")
        and not (facts.missed or facts.marked or facts.not_read or facts.held_back or facts.conflicts)
        and facts.due_for <= 900
        and (facts.proofs is not None or not facts.proofs_wanted)
        and (
            facts.max_restore is None
            or facts.never_ran
            or (facts.restore is not None and (facts.restore.seconds or DAY_SECONDS) <= facts.max_restore)
        )
        and not any(one.differs for one in (facts.proofs or {}).values())
        and not any(
            one.age is None and one.ahead and one.max_age is not None for one in (facts.proofs or {}).values()
        )
    )
    assert good or verdict.level != "ok"
    assert verdict.word == "ok" if verdict.level == "ok" else verdict.word != "ok"


@given(backup_facts, st.sampled_from(sorted(BAD)), st.floats(0, 99 * DAY_SECONDS))
def test_what_is_worse_never_makes_the_verdict_better(facts: BackupFacts, name: str, unknown_for: float):
    assume(name != "lag" or facts.max_lag is not None)
    worse = replace(facts, **{name: BAD[name]})
    before, after = judge_backup(facts, unknown_for), judge_backup(worse, unknown_for)
    # Facts that take another's place (a result, proofs) take that one's findings with them.
    if name in ("result", "proofs", "lag"):
        assert after.level != "ok"
    else:
        assert VERDICT_LEVELS.index(after.level) >= VERDICT_LEVELS.index(before.level)
        assert set(before.keys) <= set(after.keys)


@given(backup_facts, st.floats(0, 99 * DAY_SECONDS), st.floats(0, 99 * DAY_SECONDS))
def test_unknown_for_longer_is_never_better(facts: BackupFacts, one: float, other: float):
    shorter, longer = sorted((one, other))
    before, after = judge_backup(facts, shorter), judge_backup(facts, longer)
    assert VERDICT_LEVELS.index(after.level) >= VERDICT_LEVELS.index(before.level)
    assert after.level != "unknown" or longer < facts.patience


@given(backup_facts, st.floats(0, 99 * DAY_SECONDS))
def test_findings_come_worst_first_and_say_why_and_what_next(facts: BackupFacts, unknown_for: float):
    found = judge_backup(facts, unknown_for).findings
    levels = [VERDICT_LEVELS.index(one.condition.level) for one in found]
    assert levels == sorted(levels, reverse=True)
    assert all(one.why and one.next and "{" not in one.next for one in found)


def test_the_facts_are_plain():
    assert {one.name for one in fields(BackupFacts)} >= set(BAD)


@given(backup_facts, st.floats(0, 99 * DAY_SECONDS))
def test_what_is_known_of_one_dataset_counts_whatever_is_unknown_of_another(
    facts: BackupFacts, unknown_for: float
):
    all_known = judge_backup(replace(facts, lag=facts.at_least), unknown_for)
    some_known = judge_backup(replace(facts, lag=None), unknown_for)
    late = {"late", "very-late"}
    assert facts.at_least is None or late & set(all_known.keys) <= late & set(some_known.keys)
