"""A simulated host: its clocks, what goes wrong with it, and its turns with one vault."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.unit.core.sharing.simulation.bucket import Answer, Get, Put
from tests.unit.core.sharing.simulation.timeline import GUARD_LATE, Steps, Task, Timeline
from zvault.core.sharing.election import ElectionEvent, ElectionState, after
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.run_decision import LeaseHolder, SharingHost
from zvault.core.sharing.shared_note import SharedNote

BOUND = 300.0
"""Seconds: the lease."""
RENEWALS = 10
POLL = 10.0


@dataclass
class Machine:
    """A host's clocks and troubles.

    ``ahead``: its wall clock's error in seconds. ``base`` and ``drift``: of its own clock, which nobody sets. Until
    ``failing_until`` each run on it fails.
    """

    name: str
    timeline: Timeline
    ahead: float
    base: float
    drift: float
    boots: int = 1
    asleep_until: float = 0.0
    hung_until: float = 0.0
    cut_until: float = 0.0
    dead: bool = False
    failing_until: float = 0.0

    @property
    def boot(self) -> str:
        """As random(4)'s boot_id: another one after each start."""
        return f"{self.name}/{self.boots}"

    def clock(self) -> float:
        """Its own clock, which nobody sets."""
        return self.base + self.timeline.now * (1 + self.drift)

    def true(self, own: float) -> float:
        """True time at which its own clock shows that."""
        return (own - self.base) / (1 + self.drift)

    def wall(self) -> float:
        """What it believes the time is."""
        return self.timeline.now + self.ahead

    def in_trouble(self) -> bool:
        """Whether anything is wrong with it now."""
        return self.dead or self.timeline.now < max(self.asleep_until, self.hung_until, self.cut_until)


@dataclass(frozen=True, slots=True)
class LeaseSaid:
    """What the lease object says; as devices/s3_lease/lease_object.py has it."""

    host: str
    boot: str
    held: bool = True
    shut_out: str = ""


@dataclass
class Writers:
    """Which hosts' servers run, by vault; for how many seconds they did, how often; and whether that was ever wrong.

    ``began`` is called when one starts.
    """

    began: Callable[[str, Machine], None]
    serving: dict[str, dict[str, Machine]] = field(default_factory=dict)
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    turns: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def begin(self, vault: str, machine: Machine) -> None:
        """A server starts. One of a frozen host may be left: what it sends when it goes on does not count."""
        others = self.serving.setdefault(vault, {})
        now = machine.timeline.now
        for name, other in others.items():
            if name != machine.name and not other.dead and now > other.asleep_until + GUARD_LATE:
                self.wrong.append(f"{now:.0f}: {machine.name} and {name} both write to {vault}")
        others[machine.name] = machine
        self.since[vault, machine.name] = now
        self.turns[vault] += 1
        self.began(vault, machine)

    def end(self, vault: str, machine: Machine) -> None:
        """A server is gone."""
        if self.serving.get(vault, {}).pop(machine.name, None) is not None:
            self.held[vault] += machine.timeline.now - self.since[vault, machine.name]


class Turns:
    """One host's turns with one vault: lease, epoch and note, by the real states."""

    def __init__(self, machine: Machine, vault: str, hosts: tuple[str, ...], writers: Writers) -> None:
        self.machine = machine
        self.vault = vault
        self.hosts = hosts
        self.writers = writers
        self.turn = ElectionState.STANDING_BY
        self.note: ForeignWatch[SharedNote] | None = None
        self.lease: ForeignWatch[LeaseHolder] | None = None
        self.lease_etag = ""
        self.renewed = -math.inf
        self.epoch = 0
        self.serving = False
        self._servers = 0

    def member(self) -> SharingHost:
        """This host, as the decision wants it."""
        return SharingHost(self.machine.name, self.hosts, BOUND, self.turn)

    def fire(self, event: ElectionEvent) -> None:
        """An event of the table; raises for one that it has not."""
        self.turn = after(self.turn, event)

    def look_at_note(self) -> Steps:
        """Whether the store answered."""
        answer = yield Get((self.vault, "note"))
        if answer.done:
            self._saw_note(answer)
        return answer.done is True

    def look_at_lease(self) -> Steps:
        """The lease as it is; None where the store did not answer."""
        answer = yield Get((self.vault, "lease"))
        if not answer.done:
            return None
        said, now = answer.said, self.machine.clock()
        ours = said is not None and said.host == self.machine.name
        holder = LeaseHolder(said.host, said.boot, BOUND, said.held, ours) if said is not None else None
        told = answer.age
        seen = self.lease
        self.lease = (
            ForeignWatch.begin(holder, answer.etag, now, told)
            if seen is None
            else seen.look(holder, answer.etag, now, told)
        )
        return answer

    def ask(self, of: str) -> Steps:
        """Take the lease, and the epoch; ``of``: from a host's boot. Whether both were got; None without an answer."""
        self.fire(ElectionEvent.ASK)
        got = yield from self._take_lease(of)
        if not got:
            self.fire(ElectionEvent.NOT_GOT)
            return got
        self._start()
        if not (yield from self._take_epoch()):
            yield from self.give_back(ElectionEvent.NOT_GOT)
            return None
        if self.turn is not ElectionState.ASKING:
            return None
        self.fire(ElectionEvent.GOT)
        return True

    def _take_lease(self, of: str) -> Steps:
        seen = yield from self.look_at_lease()
        if seen is None:
            return None
        said: LeaseSaid | None = seen.said
        mine = LeaseSaid(self.machine.name, self.machine.boot)
        if said is not None and said.held and said.boot != mine.boot:
            if said.host == mine.host:
                yield self.machine.timeline.now + max(0.0, BOUND - seen.age + 1)
                again = yield from self.look_at_lease()
                if again is None or again.etag != seen.etag:
                    return again and False
            elif said.boot != of:
                return False
            elif seen.age <= BOUND:
                return (yield from self._shut_out(seen, mine))
        return (yield from self._put_lease(mine, seen.etag))

    def _shut_out(self, seen: Answer, mine: LeaseSaid) -> Steps:
        """Take it from a host that renews it still: wait until it has stopped, or must have."""
        waiting = LeaseSaid(mine.host, mine.boot, shut_out=seen.said.boot)
        if not (yield from self._put_lease(waiting, seen.etag)):
            return False
        end = self.machine.clock() + BOUND
        while self.machine.clock() < end:
            yield self.machine.timeline.now + POLL
            now = yield from self.look_at_lease()
            if now is not None and (now.said is None or now.said.boot != mine.boot):
                return False
            if now is not None and not now.said.shut_out:
                self.lease_etag = now.etag
                break
        return (yield from self._put_lease(mine, self.lease_etag))

    def _put_lease(self, mine: LeaseSaid, etag: str) -> Steps:
        began = self.machine.clock()
        answer = yield Put((self.vault, "lease"), mine, etag)
        if not answer.done:
            answer = yield from self.look_at_lease()
            if answer is None:
                return None
            if answer.said != mine or answer.etag == etag:
                return False
        self.lease_etag, self.renewed = answer.etag, began
        return True

    def _take_epoch(self) -> Steps:
        key = (self.vault, "epoch")
        for _ in range(5):
            seen = yield Get(key)
            if not seen.done:
                continue
            if not self.serving:
                return False
            number = seen.said[0] + 1 if seen.said is not None else 1
            mine = (number, self.machine.boot, self.machine.clock())
            answer = yield Put(key, mine, seen.etag)
            if answer.done is None:
                answer = yield Get(key)
            if answer.done and answer.said == mine and self.serving:
                self.epoch = number
                return True
            if answer.done is False:
                return False
        return False

    def _start(self) -> None:
        self.serving = True
        self.writers.begin(self.vault, self.machine)
        self._servers += 1
        self.machine.timeline.spawn(Task(self.machine, self._guard(self._servers), daemon=False))

    def stop(self) -> None:
        """The server is killed or ended."""
        self.serving = False
        self.writers.end(self.vault, self.machine)

    def power_lost(self) -> None:
        """The host is gone, its server and guard with it."""
        self.stop()
        self._servers += 1

    def _guard(self, server: int) -> Steps:
        """Renew the lease, as devices/s3_lease/guard.py does; kill the server once it cannot be known to be ours."""
        mine = LeaseSaid(self.machine.name, self.machine.boot)
        wait = BOUND / RENEWALS
        while True:
            left = self.renewed + BOUND / 2 - self.machine.clock()
            yield self.machine.timeline.now + min(wait, max(0.0, left))
            if not self.serving or server != self._servers:
                return
            if self.machine.clock() >= self.renewed + BOUND / 2:
                self.stop()
                self.fire(ElectionEvent.STOPPED)
                return
            began = self.machine.clock()
            answer = yield Put((self.vault, "lease"), mine, self.lease_etag)
            if not self.serving or server != self._servers:
                return
            if not answer.done and self.machine.clock() >= self.renewed + BOUND / 2:
                continue  # it slept meanwhile
            if answer.done is False:
                answer = yield Get((self.vault, "lease"))
                if answer.done and (answer.said is None or answer.said.boot != mine.boot):
                    yield from self._lost(answer, mine)
                    return
                self.lease_etag = answer.etag if answer.done else self.lease_etag
                wait = 1.0
            elif answer.done:
                self.lease_etag, self.renewed, wait = answer.etag, began, BOUND / RENEWALS
            else:
                wait = 1.0

    def _lost(self, seen: Answer, mine: LeaseSaid) -> Steps:
        if not self.serving:
            return
        self.stop()
        self.fire(ElectionEvent.LOST)
        if seen.said is not None and seen.said.shut_out == mine.boot:
            yield self.machine.timeline.now + 2.0
            yield Put((self.vault, "lease"), LeaseSaid(seen.said.host, seen.said.boot), seen.etag)

    def give_back(self, event: ElectionEvent) -> Steps:
        """Stop the server, and give the lease back as far as that can be done."""
        if self.serving:
            self.stop()
            free = LeaseSaid(self.machine.name, self.machine.boot, held=False)
            answer = yield Put((self.vault, "lease"), free, self.lease_etag)
            if answer.done is False:  # a renewal was on its way
                seen = yield from self.look_at_lease()
                if seen is not None and seen.said is not None and seen.said.boot == free.boot:
                    yield Put((self.vault, "lease"), free, seen.etag)
        if self.turn in (ElectionState.ASKING, ElectionState.RELEASING):
            self.fire(event)

    def shut_out(self) -> None:
        """What another host wrote shows that this one may not go on."""
        if self.serving:
            self.stop()
            self.fire(ElectionEvent.LOST)

    def _saw_note(self, answer: Answer) -> None:
        now, seen = self.machine.clock(), self.note
        self.note = (
            ForeignWatch.begin(answer.said, answer.etag, now, answer.age)
            if seen is None
            else seen.look(answer.said, answer.etag, now, answer.age)
        )

    def write_note(self, change: object, rng: random.Random) -> Steps:
        """Put the note as ``change`` makes it of the one that is there; whether this host still has the vault."""
        for _ in range(20):
            if not self.serving:
                return False
            seen, now = self.note, self.machine.clock()
            there = seen.said if seen is not None else None
            if there is not None and there.epoch > self.epoch:
                self.shut_out()
                return False
            base = (
                SharedNote(self.machine.name, self.epoch, holding=True)
                if there is None or seen is None
                else there.written(self.machine.name, self.epoch, seen.age(now))
            )
            note: SharedNote = change(base)  # type: ignore[operator]
            if rng.random() < 0.01:
                note = SharedNote.of_bytes(note.as_bytes())
            answer = yield Put((self.vault, "note"), note, seen.etag if seen is not None else "")
            if answer.done:
                self._saw_note(Answer(True, note, answer.etag, 0.0))
                return True
            if not (yield from self.look_at_note()):
                continue
            if self.note is not None and self.note.said is not None and self.note.said.same_as(note):
                return True
        return False
