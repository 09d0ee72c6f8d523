"""Hosts that stand by, simulated: who takes over, how soon, in which order, and one run for each due moment."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.run_decision import (
    HOST_SPREAD,
    DueRun,
    LeaseHolder,
    RunAction,
    RunDecision,
    SeenLease,
    SeenNote,
    SettledRun,
    SharingHost,
    UnreadableNote,
    compute_beat,
    compute_silence,
    decide_run,
)
from zvault.core.sharing.shared_note import LastSharedRun, SharedNote, SharedRunOutcome

HOUR, LEASE = 3600.0, 300.0


@dataclass
class Standby:
    """One host that waits for a vault, with a store that answers at once; looks are counted."""

    due: DueRun
    me: SharingHost
    note: SeenNote | None = None
    lease: SeenLease | None = None
    looks: int = 0

    def until_it_acts(self, holder: RunningHolder, now: float, end: float) -> tuple[RunDecision, float]:
        """Decide again and again until it is to do something, or the time is over."""
        while now < end:
            found = decide_run(self.due, self.me, self.note, self.lease, now)
            if found.action is RunAction.WAIT:
                assert found.until is not None
                now = found.until
            elif found.action is RunAction.LOOK_AT_NOTE:
                self.looks += 1
                note, written = holder.note(now)
                etag, told = str(written), float(int(now) - int(written))
                seen = self.note
                self.note = (
                    ForeignWatch.begin(note, etag, now, told)
                    if seen is None
                    else seen.look(note, etag, now, told)
                )
            elif found.action is RunAction.LOOK_AT_LEASE:
                self.looks += 1
                renewed = holder.renewed(now)
                etag, told = str(renewed), float(int(now) - int(renewed))
                said, last = LeaseHolder("x", "x-boot", LEASE), self.lease
                self.lease = (
                    ForeignWatch.begin(said, etag, now, told)
                    if last is None
                    else last.look(said, etag, now, told)
                )
            else:
                return found, now
        return decide_run(self.due, self.me, self.note, self.lease, now), now


@dataclass(frozen=True)
class RunningHolder:
    """A host that makes a long run from 0 on: its guard dies at one time, its zvaultd hangs from another on."""

    dies: float
    hangs: float

    def renewed(self, now: float) -> float:
        """When it renewed its lease last."""
        return (min(now, self.dies) // (LEASE / 10)) * (LEASE / 10)

    def note(self, now: float) -> tuple[SharedNote, float]:
        """The note, and when it was written last."""
        written = (min(now, self.dies, self.hangs) // compute_beat(LEASE)) * compute_beat(LEASE)
        last = LastSharedRun(5, "x", SharedRunOutcome.RUNNING, 0.0, age=written)
        return SharedNote("x", 7, holding=True, runs={"filer": last}), written


@st.composite
def standbys(draw: st.DrawFn) -> tuple[Standby, float]:
    """One of some hosts, and when the backup falls due there."""
    count = draw(st.integers(2, 256))
    hosts = ("x", *(f"h{number}" for number in range(count - 1)))
    at = draw(st.floats(0, 5000.0))
    name = draw(st.sampled_from(hosts[1:]))
    return Standby(
        DueRun("filer", at, HOUR, SettledRun(4, at)),
        SharingHost(name, hosts, LEASE, ElectionState.STANDING_BY),
    ), at


@given(standbys(), st.floats(0, 5000.0))
def test_a_dead_holder_is_taken_over_within_its_lease_and_a_minute(
    standby: tuple[Standby, float], dies: float
) -> None:
    host, at = standby
    holder = RunningHolder(dies, hangs=1e9)
    found, now = host.until_it_acts(holder, at, 1e6)
    last = holder.renewed(dies)
    assert (found.action, found.of) == (RunAction.TAKE_OVER, "x-boot")
    assert now >= last + LEASE - 1.0  # the store tells whole seconds; the guard stops after half of the lease
    assert now <= max(last + LEASE, at) + 60.0


@given(standbys(), st.floats(0, 5000.0))
def test_a_holder_that_hangs_is_taken_over_too(standby: tuple[Standby, float], hangs: float) -> None:
    host, at = standby
    holder = RunningHolder(1e9, hangs)
    found, now = host.until_it_acts(holder, at, 1e6)
    written = holder.note(hangs)[1]
    assert found.action is RunAction.TAKE_OVER
    assert (
        written + compute_silence(LEASE) - 1.0
        <= now
        <= max(written + compute_silence(LEASE), at) + LEASE + 60.0
    )


@given(standbys())
def test_a_holder_that_is_well_is_never_taken_over_and_few_looks_are_made(
    standby: tuple[Standby, float],
) -> None:
    host, at = standby
    day = 86400.0
    found, _ = host.until_it_acts(RunningHolder(1e9, 1e9), at, at + day)
    assert found.action is not RunAction.TAKE_OVER
    assert host.looks <= 2 * day / (LEASE * 0.9) + 3


def test_hosts_take_over_one_after_the_other_in_their_order() -> None:
    hosts = ("x", "b", "c", "d")
    times = []
    for name in hosts[1:]:
        host = Standby(
            DueRun("filer", 100.0, HOUR), SharingHost(name, hosts, LEASE, ElectionState.STANDING_BY)
        )
        times.append(host.until_it_acts(RunningHolder(200.0, 1e9), 100.0, 1e6)[1])
    assert all(later - earlier >= 10.0 for earlier, later in pairwise(times))


@given(
    ahead=st.lists(st.floats(-600.0, 600.0), min_size=2, max_size=6),
    period=st.sampled_from([900.0, HOUR, 24 * HOUR]),
    gone=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 19)), max_size=4),
)
def test_one_host_makes_the_run_of_each_due_moment(
    ahead: list[float], period: float, gone: list[tuple[int, int]]
) -> None:
    """Hosts whose wall clocks are wrong by minutes, and that see the note at once; some are away at some moments."""
    hosts = tuple(f"h{number}" for number in range(len(ahead)))
    members = {name: SharingHost(name, hosts, LEASE, ElectionState.STANDING_BY) for name in hosts}
    settled: dict[str, SettledRun] = {}
    runs: list[float] = []
    moments = sorted(
        (number * period - error + members[name].stagger, name)
        for (name, error), number in product(zip(hosts, ahead, strict=True), range(1, 21))
        if (hosts.index(name), number - 1) not in gone
    )
    for now, name in moments:
        made = {"filer": LastSharedRun(len(runs), "x", SharedRunOutcome.DONE, 0.0)} if runs else {}
        note = SharedNote("x", 1, runs=made)
        seen = ForeignWatch[SharedNote | UnreadableNote].begin(
            note, str(len(runs)), now, now - runs[-1] if runs else 0.0
        )
        due = DueRun("filer", now - members[name].stagger, period, settled.get(name))
        found = decide_run(due, members[name], seen, None, now + 1e-6)
        assert found.action in (RunAction.RUN, RunAction.SKIP)
        if found.action is RunAction.RUN:
            runs.append(now)
        settled[name] = SettledRun(len(runs), now)
    away = len({number for _, number in gone})
    assert 19 - away <= len(runs) <= 23 + 2 * away
    if not away:
        known, last = period + 600.0 + HOST_SPREAD, 20 * period - 600.0
        settled_down = [at for at in runs if known < at < last]  # all remember a moment, and have another one
        for one, later in pairwise(settled_down):
            assert later - one == pytest.approx(period)
    assert max(later - one for one, later in pairwise(runs)) <= (2 + away) * period + 1250.0
