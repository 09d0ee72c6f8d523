"""What zvaultd does on one simulated host for one vault: due moments, the real decisions, and runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.unit.core.sharing.simulation.bucket import Bucket, Get, Segment
from tests.unit.core.sharing.simulation.host import BOUND, Machine, Turns, Writers
from tests.unit.core.sharing.simulation.timeline import Steps
from zvault.core.sharing.election import ElectionEvent, ElectionState
from zvault.core.sharing.run_decision import (
    DueRun,
    RunAction,
    RunDecision,
    SettledRun,
    compute_beat,
    decide_run,
)
from zvault.core.sharing.shared_note import LastSharedRun, SharedNote

AGAIN = 60.0
"""Seconds until a host asks a store again that did not answer."""
RETRY = 300.0
CLEAN_UP = 30.0
PART = 60.0
"""Seconds of a run that make one segment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One backup: how often it is due, how much lag is tolerated, how long a run takes at most, how often one fails."""

    period: float
    max_lag: float
    longest: float
    phase: float = 0.0
    failing: float = 0.0

    def parts(self, run: str) -> int:
        """How many a run has; the same whoever makes it."""
        return max(1, math.ceil(random.Random(run).uniform(0.05, 1.0) * self.longest / PART))


@dataclass(frozen=True, slots=True)
class Done:
    """A run that a host has finished."""

    at: float
    began: float
    vault: str
    backup: str
    number: int
    host: str
    parts: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What all hosts have in common; ``done`` is called with each run that is finished."""

    writers: Writers
    bucket: Bucket
    done: Callable[[Done], None]


class Sharer:
    """One host's share in one vault."""

    def __init__(
        self,
        machine: Machine,
        vault: str,
        hosts: tuple[str, ...],
        plans: Mapping[str, Plan],
        rng: random.Random,
        shared: Shared,
    ) -> None:
        self.machine = machine
        self.vault = vault
        self.plans = plans
        self.rng = rng
        self.turns = Turns(machine, vault, hosts, shared.writers)
        self.bucket = shared.bucket
        self.done = shared.done
        self.due: dict[str, DueRun] = {}
        self.settled: dict[str, SettledRun] = {}
        self.retries: dict[str, float] = {}
        self.next = {name: self._next(plan, -math.inf) for name, plan in plans.items()}
        self._beaten = -math.inf

    def main(self) -> Steps:
        """All that zvaultd does, one thing after the other."""
        while True:
            self._fall_due()
            until = yield from self._attend()
            if self.turns.turn is ElectionState.SHUT_OUT:
                yield self.machine.timeline.now + CLEAN_UP
                self.turns.fire(ElectionEvent.CLEANED)
                continue
            if self.turns.turn is ElectionState.CUT_OFF:
                yield from self._come_back()
                continue
            if self.turns.turn is ElectionState.HOLDING:
                yield from self._release()
                continue
            yield min(until, *self.next.values(), *self.retries.values())

    def _next(self, plan: Plan, before: float) -> float:
        """True time at which a backup's next due moment comes, by the wall clock as it is now."""
        count = math.floor((self.machine.wall() - plan.phase) / plan.period) + 1
        return max(
            plan.phase + count * plan.period - self.machine.ahead,
            before + plan.period / 2 if before > 0 else 0.0,
        )

    def _fall_due(self) -> None:
        now = self.machine.timeline.now
        for name, plan in self.plans.items():
            retry = self.retries.get(name, math.inf) <= now
            if self.next[name] > now and not retry:
                continue
            if retry:
                del self.retries[name]
            if self.next[name] <= now:
                self.next[name] = self._next(plan, now)
            if name not in self.due:
                settled = self.settled.get(name)
                self.due[name] = DueRun(name, self.machine.clock(), plan.period, settled)

    def _attend(self) -> Steps:
        """Decide about each backup that is due until all wait; true time at which to decide again."""
        until = math.inf
        for name in list(self.due):
            while name in self.due:
                turns = self.turns
                decision = decide_run(
                    self.due[name], turns.member(), turns.note, turns.lease, self.machine.clock()
                )
                later = yield from self._do(name, decision)
                if later is not None:
                    until = min(until, later)
                    break
        return until

    def _do(self, name: str, decision: RunDecision) -> Steps:
        """Do what was decided; None if that is to be followed by another decision, else when to decide again."""
        later: float | None = None
        if decision.action is RunAction.LOOK_AT_NOTE:
            answered = yield from self.turns.look_at_note()
            later = None if answered else self._again()
        elif decision.action is RunAction.LOOK_AT_LEASE:
            answered = yield from self.turns.look_at_lease()
            later = None if answered else self._again()
        elif decision.action is RunAction.SKIP:
            del self.due[name]
            assert decision.settled is not None
            self.settled[name] = decision.settled
        elif decision.action is RunAction.WAIT:
            assert decision.until is not None
            assert decision.until > self.machine.clock()
            later = self.machine.true(decision.until) + 1e-3
        elif decision.action is RunAction.STAND_BY:
            later = self._again()
        elif self.turns.turn is ElectionState.HOLDING:
            later = yield from self._run(name)
        else:
            later = yield from self._ask(decision.of)
        return later

    def _again(self) -> float:
        return self.machine.timeline.now + AGAIN

    def _ask(self, of: str) -> Steps:
        got = yield from self.turns.ask(of)
        if got:
            answered = yield from self.turns.look_at_note()
            return None if answered else self._again()
        if got is False and (yield from self.turns.look_at_lease()) is not None:
            return None
        return self._again()

    def _release(self) -> Steps:
        self.turns.fire(ElectionEvent.RELEASE)
        last = self.turns.note
        if last is not None and last.said is not None and last.said.epoch == self.turns.epoch:
            yield from self.turns.write_note(_given_back, self.rng)
        yield from self.turns.give_back(ElectionEvent.RELEASED)

    def _come_back(self) -> Steps:
        """After this host was cut off: see whether another took over meanwhile."""
        seen = yield from self.turns.look_at_lease()
        if seen is None:
            yield self._again()
        elif seen.said is None or seen.said.boot != self.machine.boot:
            self.turns.fire(ElectionEvent.LOST)
        elif not (yield from self.turns.ask("")):
            yield self._again()

    def _run(self, name: str) -> Steps:
        """Make a run, or finish one that was broken off; None once that is settled, well or not."""
        plan = self.plans[name]
        if not (
            yield from self.turns.write_note(lambda note: note.begun(name, self.machine.wall()), self.rng)
        ):
            return self._again()
        self._beaten = self.machine.clock()
        number = self._last(name).number
        began = self.bucket.begun.setdefault((self.vault, name, number), self.machine.timeline.now)
        parts = plan.parts(f"{self.vault} {name} {number}")
        failing = self.rng.random() < plan.failing or self._fails_for_good
        for part in sorted(set(range(parts)) - self.bucket.parts(self.vault, name, number)):
            if not (yield from self._send(name, number, part)):
                return self._again()
        if failing or not (yield from self._is_ours()):
            if self.turns.serving:
                yield from self._end(name, done=False)
            return self._again()
        if (yield from self._end(name, done=True)):
            here = self.machine
            self.done(Done(here.timeline.now, began, self.vault, name, number, here.name, parts))
        return None

    def _send(self, name: str, number: int, part: int) -> Steps:
        """Put one part of a run's data; whether the server lives."""
        yield self.machine.timeline.now + PART
        while self.turns.serving:
            answer = yield Segment(self.vault, self.turns.epoch, (name, number), part)
            if self.machine.clock() - self._beaten > compute_beat(BOUND):
                if not (yield from self.turns.write_note(lambda note: note, self.rng)):
                    return False
                self._beaten = self.machine.clock()
            if answer.done:
                return True
        return False

    def _is_ours(self) -> Steps:
        """As blockstore/writer_fence.py: whether what was put counts. Asked until the store answers."""
        while self.turns.serving:
            seen = yield Get((self.vault, "epoch"))
            if seen.done:
                if seen.said[0] == self.turns.epoch:
                    return True
                self.turns.shut_out()
        return False

    def _end(self, name: str, *, done: bool) -> Steps:
        """Write down how a run ended."""
        at = self.machine.wall()
        written = yield from self.turns.write_note(
            lambda note: note.finished(name, at, done=done, lag=0.0), self.rng
        )
        if written:
            last = self._last(name)
            self.settled[name] = SettledRun(last.number, self.machine.clock(), last.failures)
            self.due.pop(name, None)
            if not done and not self._fails_for_good:
                self.retries[name] = self.machine.timeline.now + RETRY
        return written

    @property
    def _fails_for_good(self) -> bool:
        """Whether a run fails here, and not in a way that is worth another try before it is due again."""
        return self.machine.timeline.now < self.machine.failing_until

    def _last(self, name: str) -> LastSharedRun:
        assert self.turns.note is not None
        assert self.turns.note.said is not None
        run = self.turns.note.said.last(name)
        assert run is not None
        return run


def _given_back(note: SharedNote) -> SharedNote:
    return SharedNote(note.host, note.epoch, note.sequence, holding=False, runs=note.runs)
