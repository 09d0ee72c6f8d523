"""What a host decides about a backup that is due on a shared vault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.run_decision import (
    FAILED_RUNS_BEFORE_YIELD,
    HOST_SPREAD,
    LEASE_FRESH,
    DueRun,
    LeaseHolder,
    RunAction,
    SeenLease,
    SeenNote,
    SettledRun,
    SharingHost,
    UnreadableNote,
    compute_silence,
    decide_run,
)
from zvault.core.sharing.shared_note import LastSharedRun, SharedNote, SharedRunOutcome

HOUR, LEASE = 3600.0, 300.0
NOW = 1e6
ME = SharingHost("b", ("a", "b", "c"), LEASE, ElectionState.STANDING_BY)
DUE = DueRun("filer", NOW - 100, HOUR, SettledRun(4, NOW - HOUR))


def run(
    number: int = 5, outcome: SharedRunOutcome = SharedRunOutcome.DONE, age: float = 60.0, failures: int = 0
) -> LastSharedRun:
    return LastSharedRun(number, "a", outcome, 1.7e9, None, None, failures, age)


def noted(
    last: LastSharedRun | None, *, holding: bool = False, ago: float = 0.0, told: float | None = 0.0
) -> SeenNote:
    note = SharedNote("a", 7, holding=holding, runs={"filer": last} if last is not None else {})
    return replace(ForeignWatch[SharedNote | UnreadableNote].begin(note, "1", NOW - ago, told), last=NOW)


def leased(age: float, *, host: str = "a", held: bool = True, ours: bool | None = None) -> SeenLease:
    ours = host == ME.name if ours is None else ours
    return ForeignWatch.begin(LeaseHolder(host, f"{host}-boot", LEASE, held, ours), "1", NOW, age)


def action(
    due: DueRun, note: SeenNote | None, lease: SeenLease | None = None, me: SharingHost = ME
) -> RunAction:
    return decide_run(due, me, note, lease, NOW).action


def test_the_hosts_before_it_go_first_and_that_costs_no_request() -> None:
    due = replace(DUE, at=NOW)
    assert decide_run(due, ME, None, None, NOW).until == NOW + HOST_SPREAD / 3
    assert action(due, None, me=replace(ME, name="a")) is RunAction.LOOK_AT_NOTE
    assert action(replace(due, asked=True), None) is RunAction.LOOK_AT_NOTE


def test_a_run_that_another_host_made_since_is_skipped_and_remembered() -> None:
    decision = decide_run(DUE, ME, noted(run(5)), None, NOW)
    assert (decision.action, decision.settled) == (RunAction.SKIP, SettledRun(5, NOW))
    assert decision.reason == "a made run 5, which ended 1m ago at most"
    assert action(replace(DUE, asked=True), noted(run(5))) is RunAction.RUN


@pytest.mark.parametrize(
    ("due", "last"),
    [
        (DUE, None),
        (DUE, run(4)),
        (DUE, run(5, age=HOUR + 1)),
        (DUE, run(5, SharedRunOutcome.FAILED, failures=1)),
        (replace(DUE, settled=None), run(5, age=HOUR / 2 + 1)),
        (replace(DUE, settled=SettledRun(4, NOW - 2 * HOUR)), run(5, age=HOUR / 2 + 1)),
    ],
)
def test_a_run_that_nobody_made_for_this_moment_is_made(due: DueRun, last: LastSharedRun | None) -> None:
    assert action(due, noted(last)) is RunAction.RUN
    assert action(due, noted(last), me=replace(ME, turn=ElectionState.HOLDING)) is RunAction.RUN


def test_after_some_failures_in_a_row_it_waits_for_the_next_moment() -> None:
    assert (
        action(DUE, noted(run(5, SharedRunOutcome.FAILED, failures=FAILED_RUNS_BEFORE_YIELD - 1)))
        is RunAction.RUN
    )
    assert (
        action(DUE, noted(run(5, SharedRunOutcome.FAILED, failures=FAILED_RUNS_BEFORE_YIELD)))
        is RunAction.SKIP
    )


def test_failures_count_from_what_the_host_remembers_so_a_host_that_always_fails_keeps_no_other_away() -> (
    None
):
    failed = run(9, SharedRunOutcome.FAILED, failures=7)
    assert action(replace(DUE, settled=SettledRun(8, NOW - HOUR, failures=6)), noted(failed)) is RunAction.RUN
    assert (
        action(replace(DUE, settled=SettledRun(6, NOW - HOUR, failures=4)), noted(failed)) is RunAction.SKIP
    )
    since_a_good_one = run(12, SharedRunOutcome.FAILED, failures=FAILED_RUNS_BEFORE_YIELD)
    assert (
        action(replace(DUE, settled=SettledRun(8, NOW - HOUR, failures=6)), noted(since_a_good_one))
        is RunAction.SKIP
    )


def test_a_host_gives_way_because_of_failures_once_and_then_tries_itself() -> None:
    skips = decide_run(
        DUE, ME, noted(run(5, SharedRunOutcome.FAILED, failures=FAILED_RUNS_BEFORE_YIELD)), None, NOW
    )
    assert skips.settled == SettledRun(5, NOW, failures=FAILED_RUNS_BEFORE_YIELD, gave_way=True)
    assert skips.settled is not None
    later = replace(DUE, settled=skips.settled)
    note = noted(
        run(5 + FAILED_RUNS_BEFORE_YIELD, SharedRunOutcome.FAILED, failures=2 * FAILED_RUNS_BEFORE_YIELD)
    )
    assert action(replace(later, settled=replace(skips.settled, gave_way=False)), note) is RunAction.SKIP
    assert action(later, note) is RunAction.RUN


def test_a_host_that_remembers_nothing_believes_the_stores_age_of_the_note() -> None:
    due = replace(DUE, settled=None)
    assert action(due, noted(run(5), told=600.0)) is RunAction.SKIP
    assert action(due, noted(run(5), told=HOUR)) is RunAction.RUN
    assert action(due, noted(run(5), told=None)) is RunAction.RUN


def test_who_got_the_lease_decides_again_by_the_note_of_now() -> None:
    holding = replace(ME, turn=ElectionState.HOLDING)
    assert action(DUE, noted(run(5)), me=holding) is RunAction.SKIP
    assert action(DUE, noted(run(5, SharedRunOutcome.RUNNING)), me=holding) is RunAction.RUN


def test_a_run_that_goes_on_is_waited_for_without_a_look_at_the_lease() -> None:
    note = noted(run(5, SharedRunOutcome.RUNNING), holding=True, ago=20.0)
    decision = decide_run(DUE, ME, note, None, NOW)
    assert (decision.action, decision.until) == (RunAction.WAIT, NOW - 20 + LEASE + HOST_SPREAD / 3)
    old = noted(run(5, SharedRunOutcome.RUNNING), holding=True, ago=LEASE + HOST_SPREAD)
    assert action(DUE, old) is RunAction.LOOK_AT_LEASE


def test_a_run_that_was_broken_off_by_a_host_that_gave_the_lease_back_goes_on_at_once() -> None:
    assert action(DUE, noted(run(5, SharedRunOutcome.RUNNING), holding=False)) is RunAction.RUN


def test_a_holder_that_renews_its_lease_is_waited_for_and_one_that_does_not_is_replaced() -> None:
    note = noted(run(5, SharedRunOutcome.RUNNING), holding=True, ago=400.0)
    decision = decide_run(DUE, ME, note, leased(10.0), NOW)
    assert (decision.action, decision.until) == (RunAction.WAIT, NOW - 10 + LEASE + HOST_SPREAD / 3)
    taken = decide_run(DUE, ME, note, leased(LEASE + HOST_SPREAD / 3), NOW)
    assert (taken.action, taken.of) == (RunAction.TAKE_OVER, "a-boot")
    assert action(DUE, note, leased(LEASE + HOST_SPREAD / 3 - 1)) is RunAction.WAIT
    assert action(DUE, note, leased(10.0, host="b")) is RunAction.RUN
    assert action(DUE, note, replace(leased(LEASE), last=NOW - LEASE_FRESH)) is RunAction.LOOK_AT_LEASE


def test_a_machine_that_goes_by_the_same_name_is_another_host() -> None:
    note = noted(run(5, SharedRunOutcome.RUNNING), holding=True, ago=400.0)
    assert action(DUE, note, leased(10.0, host="b", ours=False)) is RunAction.WAIT
    taken = decide_run(DUE, ME, note, leased(LEASE + HOST_SPREAD / 3, host="b", ours=False), NOW)
    assert (taken.action, taken.of) == (RunAction.TAKE_OVER, "b-boot")


def test_a_holder_whose_zvaultd_hangs_is_replaced_and_one_that_writes_no_note_never_is() -> None:
    silent = compute_silence(LEASE) + HOST_SPREAD
    note = noted(run(5, SharedRunOutcome.RUNNING), holding=True, ago=silent)
    assert action(DUE, note, leased(10.0)) is RunAction.TAKE_OVER
    assert action(DUE, note, leased(10.0, host="c")) is RunAction.WAIT
    assert action(DUE, noted(run(4), holding=False, ago=silent), leased(10.0)) is RunAction.WAIT
    until = decide_run(
        DUE, ME, noted(run(4), holding=True, ago=compute_silence(LEASE) - 50), leased(0.0), NOW
    ).until
    assert until == NOW + 50 + HOST_SPREAD / 3


@pytest.mark.parametrize("turn", [ElectionState.SHUT_OUT, ElectionState.CUT_OFF])
def test_a_host_that_was_shut_out_stands_by_without_a_request(turn: ElectionState) -> None:
    assert action(DUE, None, me=replace(ME, turn=turn)) is RunAction.STAND_BY


def test_a_note_of_a_newer_zvault_is_left_alone_and_a_damaged_one_counts_as_none() -> None:
    for why, newer, expected in (("version 2", True, RunAction.STAND_BY), ("no JSON", False, RunAction.RUN)):
        note = ForeignWatch[SharedNote | UnreadableNote].begin(UnreadableNote(why, newer), "1", NOW, 0.0)
        assert action(DUE, note) is expected


OUTCOMES = st.sampled_from(SharedRunOutcome)
NOTES = st.builds(
    noted,
    st.none() | st.builds(run, st.integers(1, 9), OUTCOMES, st.floats(0, 2 * HOUR), st.integers(0, 4)),
    holding=st.booleans(),
    ago=st.floats(0, 2 * HOUR),
    told=st.none() | st.floats(0, 2 * HOUR),
)
LEASES = st.none() | st.builds(
    leased, st.floats(0, 2 * LEASE), host=st.sampled_from("abc"), held=st.booleans()
)
DUES = st.builds(
    DueRun,
    st.just("filer"),
    st.floats(NOW - HOUR, NOW),
    st.floats(60.0, 2 * HOUR),
    st.none() | st.builds(SettledRun, st.integers(0, 9), st.floats(NOW - 2 * HOUR, NOW)),
    asked=st.booleans(),
)
MEMBERS = st.builds(
    SharingHost,
    st.sampled_from("abc"),
    st.just(("a", "b", "c")),
    st.just(LEASE),
    st.sampled_from(ElectionState),
)


@given(DUES, MEMBERS, NOTES, LEASES)
def test_each_decision_is_complete(
    due: DueRun, me: SharingHost, note: SeenNote, lease: SeenLease | None
) -> None:
    found = decide_run(due, me, note, lease, NOW)
    assert found.reason
    assert (found.until is not None) == (found.action is RunAction.WAIT)
    assert (found.settled is not None) == (found.action is RunAction.SKIP)
    assert bool(found.of) == (found.action is RunAction.TAKE_OVER)
    assert found.until is None or found.until > NOW
    if me.turn is not ElectionState.HOLDING and lease is not None and found.action is RunAction.TAKE_OVER:
        assert lease.said is not None
        assert not lease.said.ours


@given(DUES, MEMBERS, NOTES, LEASES, st.floats(-1e9, 1e9), st.floats(0, 4e9))
def test_no_hosts_wall_clock_counts(
    due: DueRun, me: SharingHost, note: SeenNote, lease: SeenLease | None, wrong: float, ended: float
) -> None:
    """Whatever time the writer of a note believed it to be: the decision is the same."""
    said = note.said
    assert isinstance(said, SharedNote)
    runs = {
        name: replace(one, began=max(0.0, one.began + wrong), ended=ended) for name, one in said.runs.items()
    }
    other = replace(note, said=replace(said, runs=runs))
    assert decide_run(due, me, other, lease, NOW) == decide_run(due, me, note, lease, NOW)


@given(DUES, MEMBERS, NOTES, LEASES, st.integers(-900_000, 10**7))
def test_only_durations_of_this_hosts_own_clock_count(
    due: DueRun, me: SharingHost, note: SeenNote, lease: SeenLease | None, by: int
) -> None:
    """A host that was started earlier, whose own clock therefore shows more, decides the same."""

    def moved(watch: ForeignWatch) -> ForeignWatch:  # type: ignore[type-arg]
        before = None if watch.before is None else watch.before + by
        return replace(watch, first=watch.first + by, last=watch.last + by, before=before)

    settled = due.settled and SettledRun(due.settled.number, due.settled.at + by)
    later = decide_run(
        replace(due, at=due.at + by, settled=settled),
        me,
        moved(note),
        moved(lease) if lease is not None else None,
        NOW + by,
    )
    here = decide_run(due, me, note, lease, NOW)
    if later.action is here.action:
        assert (later.until is None) == (here.until is None)
        assert later.until is None or here.until is None or later.until == pytest.approx(here.until + by)
    else:  # rounding, on the edge of two: a thousandth of a second earlier or later it is the same
        near = {decide_run(due, me, note, lease, NOW + edge).action for edge in (-1e-3, 1e-3)}
        assert later.action in near


def test_a_clone_that_lives_is_waited_for_as_any_other_host() -> None:
    """A machine made from this one's disk image has its name and machine-id. It renews the lease in its own boot."""
    me, note = replace(ME, boot="b-boot-now"), noted(run(4), holding=True)
    clone = LeaseHolder("b", "b-boot-of-the-clone", LEASE, ours=True)
    once = ForeignWatch.begin(clone, "1", NOW - 60, 10.0)
    before = replace(once, last=NOW)
    assert action(DUE, note, before, me) is RunAction.RUN, (
        "it may be this host's own, from before it started anew"
    )
    renewed = once.look(clone, "2", NOW, 5.0)
    decision = decide_run(DUE, me, note, renewed, NOW)
    assert (decision.action, decision.reason) == (
        RunAction.WAIT,
        "another machine called b, a clone of this one, has the vault",
    )
    later = NOW + LEASE + HOST_SPREAD
    taken = decide_run(DUE, me, replace(note, last=later), renewed.look(clone, "2", later), later)
    assert (taken.action, taken.of) == (RunAction.TAKE_OVER, "b-boot-of-the-clone")
    own = once.look(replace(clone, boot=me.boot), "2", NOW, 5.0)
    assert action(DUE, note, own, me) is RunAction.RUN
