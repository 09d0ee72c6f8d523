"""A vault's verdict: each condition from facts that show it, and ok from nothing but facts that are known and good."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import ErrorDocument
from zvault.core.health.vault import VaultHealthFacts, judge_vault
from zvault.core.health.vault_conditions import CONTENT_CONDITIONS, VAULT_CONDITIONS
from zvault.core.health.verdict import DAY_SECONDS, VERDICT_LEVELS
from zvault.core.integrity.damage import DamageKind

ERROR: ErrorDocument = {"reason": "device-gone", "what": "no device", "why": "it is gone", "next": "bring it"}
NO_JOURNAL: ErrorDocument = {**ERROR, "reason": "journal-missing"}
UP = VaultHealthFacts(
    "cold",
    "cold",
    "up",
    "ONLINE",
    looked=True,
    scrub_age=DAY_SECONDS,
    scrub_due=35 * DAY_SECONDS,
    free=50,
    size=100,
)
DOWN = replace(UP, state="down", pool_state=None)
GONE = replace(UP, state="gone", pool_state=None)

CASES: list[tuple[VaultHealthFacts, float, tuple[str, ...]]] = [
    (UP, 0, ()),
    (DOWN, 0, ()),
    (replace(UP, looked=False), 0, ()),
    (replace(DOWN, looked=False), 0, ("never-seen",)),
    (replace(DOWN, looked=False), DAY_SECONDS, ("vault-unknown-long", "never-seen")),
    (GONE, 0, ("gone",)),
    (replace(GONE, error=ERROR), 0, ("gone",)),
    (replace(GONE, lost=("cold-0 is gone: x",)), 0, ("gone",)),
    (replace(UP, state="gone", lost=("cold-0 is gone: x",)), 0, ("device-gone",)),
    (replace(GONE, pool_state="SUSPENDED"), 0, ("gone", "pool-unwell")),
    (replace(UP, state="partial"), 0, ("half-up",)),
    (replace(UP, pool_state="DEGRADED"), 0, ("degraded",)),
    (replace(DOWN, was_degraded=True), 0, ("was-degraded",)),
    (replace(UP, readonly=True), 0, ("read-only",)),
    (replace(DOWN, foreign=("/dev/sdb",)), 0, ("foreign-device",)),
    (replace(UP, doubted_for=60.0), 0, ("unproven",)),
    (replace(DOWN, doubted_for=60.0), DAY_SECONDS, ("vault-unknown-long", "unproven")),
    (replace(UP, multihost=True), 0, ()),
    (replace(UP, multihost=True, networked=True), 0, ("risky-properties",)),
    (replace(UP, panics=True), 0, ("risky-properties",)),
    (
        replace(UP, pool_state="SUSPENDED", multihost=True, networked=True),
        0,
        ("pool-unwell", "risky-properties"),
    ),
    (replace(UP, pool_state="DEGRADED", readonly=True), 0, ("degraded", "read-only")),
    (replace(DOWN, error=ERROR), 0, ("error",)),
    (replace(DOWN, error=NO_JOURNAL), 0, ("journal-missing",)),
    (replace(GONE, error=NO_JOURNAL), 0, ("journal-missing",)),
    (
        replace(UP, state="gone", pool_state="SUSPENDED", lost=("cold-0 is gone: x",), error=NO_JOURNAL),
        0,
        ("journal-missing", "pool-unwell"),
    ),
    (replace(UP, error=NO_JOURNAL), 0, ("error",)),
    (replace(DOWN, errors=1), 0, ("damaged",)),
    (replace(DOWN, unexplained=1, half_received=("cold/a",)), 0, ("half-received-errors",)),
    (
        replace(UP, unexplained=3, half_received=("cold/a",)),
        DAY_SECONDS,
        ("vault-unknown-long", "half-received-errors"),
    ),
    (replace(UP, errors=1, unexplained=2, half_received=("cold/a",)), 0, ("damaged", "half-received-errors")),
    (replace(DOWN, free=5), 0, ()),
    (replace(DOWN, free=4), 0, ("almost-full",)),
    (replace(DOWN, free=None), 0, ()),
    (replace(UP, free=29, full_in=6.9 * DAY_SECONDS), 0, ("full-soon",)),
    (replace(UP, free=29, full_in=7 * DAY_SECONDS), 0, ()),
    (replace(UP, free=29), 0, ()),
    (replace(UP, free=30, full_in=DAY_SECONDS), 0, ()),
    (replace(UP, free=4, full_in=DAY_SECONDS), 0, ("almost-full",)),
    (replace(DOWN, older="it is older"), 0, ("put-back",)),
    (replace(DOWN, troubles=("cold-0: 503",)), 0, ("store-trouble",)),
    (replace(UP, stalls=("it hangs",)), 0, ("stalled",)),
    (replace(UP, drift="small writes"), 0, ("drift",)),
    (replace(UP, journal_full_for=600.0), 0, ()),
    (replace(UP, journal_full_for=601.0), 0, ("backlog",)),
    (replace(UP, scrub_age=38.5 * DAY_SECONDS), 0, ()),
    (replace(UP, scrub_age=38.6 * DAY_SECONDS), 0, ("scrub-overdue",)),
    (replace(UP, scrub_age=38.6 * DAY_SECONDS, scrubbing=True), 0, ()),
    (replace(UP, scrub_age=2 * DAY_SECONDS, scrub_due=3600.0), 0, ("scrub-overdue",)),
    (replace(UP, scrub_age=DAY_SECONDS, scrub_due=3600.0), 0, ()),
    (replace(UP, scrub_age=99 * DAY_SECONDS, scrub_by_age=False), 0, ("scrub-missed",)),
    (replace(UP, scrub_age=99 * DAY_SECONDS, scrub_due=None), 0, ()),
]


@pytest.mark.parametrize(("facts", "unknown_for", "keys"), CASES)
def test_each_condition_by_its_facts(facts: VaultHealthFacts, unknown_for: float, keys: tuple[str, ...]):
    assert judge_vault(facts, unknown_for).keys == keys


def test_the_cases_show_every_condition():
    assert {key for _, _, keys in CASES for key in keys} == {one.key for one in VAULT_CONDITIONS}


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (replace(UP, pool_state="SUSPENDED"), "SUSPENDED"),
        (replace(UP, pool_state="DEGRADED", errors=1), "damaged"),
        (replace(UP, pool_state="DEGRADED", error=ERROR), "DEGRADED"),
        (replace(UP, state="partial", error=ERROR), "partial"),
    ],
)
def test_the_state_is_the_word_of_the_worst(facts: VaultHealthFacts, word: str):
    assert judge_vault(facts).word == word


def test_the_error_says_what_is_next():
    (one,) = judge_vault(replace(GONE, error=ERROR)).findings
    assert (one.why, one.next) == ("no device: it is gone", "bring it")


def test_a_vault_that_is_down_says_how_it_is_tried_again():
    """Nothing looks at its storage, so what failed stays told when the storage is back."""
    again = "the next run tries again, and 'zvaultctl vault up cold' does at once"
    for error, told in (
        (ERROR, f"bring it; {again}"),
        ({**ERROR, "next": ""}, again),
        ({**ERROR, "next": "'zvaultctl vault up cold'"}, "'zvaultctl vault up cold'"),
        ({**ERROR, "reason": "taken-over"}, "bring it"),
    ):
        (one,) = judge_vault(replace(DOWN, error=error)).findings
        assert one.next == told


def test_a_suspended_pool_with_multihost_on_is_not_told_to_go_on_by_itself():
    unwell, _ = judge_vault(replace(UP, pool_state="SUSPENDED", multihost=True, networked=True)).findings
    assert "OpenZFS cannot resume it" in unwell.why
    assert unwell.next.startswith("reboot this host")
    assert "by itself" not in unwell.next


@pytest.mark.parametrize(
    "kinds", [kinds for count in range(4) for kinds in itertools.combinations(DamageKind, count)]
)
def test_errors_ask_for_what_puts_their_kinds_right(kinds: tuple[DamageKind, ...]):
    """A heal repairs data alone, and a scrub takes off the rest; where nothing is named it says which there are."""
    (one,) = judge_vault(replace(UP, errors=2, damage_kinds=frozenset(kinds))).findings
    told = re.findall("'zvaultctl ([a-z]+) cold'", one.next)
    heal = ["heal"] if DamageKind.DATA in kinds else []
    assert told == heal + (["scrub"] if set(kinds) != {DamageKind.DATA} else [])
    assert ("in the pool's own metadata" in one.why) is (DamageKind.METADATA in kinds and not heal)


def test_a_read_only_store_says_which_device_takes_no_writes():
    (one,) = judge_vault(replace(UP, readonly=True, locked=("/dev/nbd0",))).findings
    assert "since /dev/nbd0 takes no writes" in one.why
    assert one.next.startswith("make its store writable")


def test_what_is_wrong_with_the_contents_is_not_a_failure_to_bring_it_up():
    storage = {one.key for one in VAULT_CONDITIONS} - {one.key for one in CONTENT_CONDITIONS}
    assert storage == {
        "device-gone", "gone", "journal-missing", "pool-unwell", "half-up", "degraded", "read-only", "error",
        "store-trouble",
    }  # fmt: skip


vault_facts = st.builds(
    VaultHealthFacts,
    name=st.just("cold"),
    pool=st.just("cold"),
    state=st.sampled_from(["up", "down", "partial", "gone"]),
    pool_state=st.sampled_from([None, "ONLINE", "DEGRADED", "SUSPENDED", "SOMETHING NEW"]),
    error=st.none() | st.just(ERROR),
    lost=st.sampled_from([(), ("cold-0 is gone: x",)]),
    troubles=st.sampled_from([(), ("cold-0: 503",)]),
    looked=st.booleans(),
    errors=st.integers(0, 2),
    scrub_age=st.none() | st.floats(0, 99 * DAY_SECONDS),
    scrub_due=st.none() | st.floats(3600, 99 * DAY_SECONDS),
    scrubbing=st.booleans(),
    was_degraded=st.booleans(),
    free=st.none() | st.integers(0, 100),
    size=st.none() | st.integers(0, 100),
    journal_full_for=st.floats(0, DAY_SECONDS),
    stalls=st.sampled_from([(), ("it hangs",)]),
    drift=st.sampled_from(["", "small writes"]),
)

BAD: dict[str, Any] = {
    "state": "gone",
    "pool_state": "FAULTED",
    "errors": 3,
    "troubles": ("x",),
    "stalls": ("x",),
    "drift": "x",
    "journal_full_for": DAY_SECONDS,
}


@given(vault_facts)
def test_ok_is_said_only_of_what_is_known_and_good(facts: VaultHealthFacts):
    good = (
        (facts.state == "up" or (facts.state == "down" and facts.error is None))
        and facts.pool_state in (None, "ONLINE")
        and (facts.looked or facts.pool_state is not None or facts.state == "up")
        and not (facts.error or facts.errors or facts.troubles or facts.stalls or facts.drift)
        and facts.journal_full_for <= 600
    )
    assert good or judge_vault(facts).level != "ok"


@given(vault_facts, st.sampled_from(sorted(BAD)))
def test_what_is_worse_never_makes_the_verdict_better(facts: VaultHealthFacts, name: str):
    before, after = judge_vault(facts), judge_vault(replace(facts, **{name: BAD[name]}))
    assert VERDICT_LEVELS.index(after.level) >= VERDICT_LEVELS.index(before.level)


@given(vault_facts, st.floats(0, 9 * DAY_SECONDS))
def test_findings_come_worst_first_and_say_why_and_what_next(facts: VaultHealthFacts, unknown_for: float):
    found = judge_vault(facts, unknown_for).findings
    levels = [VERDICT_LEVELS.index(one.condition.level) for one in found]
    assert levels == sorted(levels, reverse=True)
    assert all(one.why and one.next and one.word and "{" not in one.next for one in found)
