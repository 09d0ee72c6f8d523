"""What a host does now about a backup that is due on a vault that several hosts share.

No host's clock is compared with another's. Whether another host made the run is told by the run's number: it has grown
since this host's last due moment. Whether the holder of the lease is alive is told by the lease's age, which the store
says and this host's own clock continues. Two hosts that decide the same at the same moment are told apart by the
lease: one gets it, and whoever gets it reads the note again and decides again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from zvault.core.sharing.election import ElectionState
from zvault.core.sharing.foreign_watch import ForeignWatch
from zvault.core.sharing.shared_note import LastSharedRun, SharedNote, SharedRunOutcome
from zvault.core.units import format_duration

HOST_SPREAD = 50.0
"""Seconds over which the hosts of a vault are spread, by their place in ``hosts``: when they begin, and take over."""
LEASE_FRESH = 1.0
"""Seconds for which a look at the lease counts as one of now, and to the next decision at least."""
NOTE_FRESH = 10.0
"""Seconds for which a look at the note counts as one of now: backups that are due together share it."""
KNOWN_FOR = 1.5
"""Periods for which a host's memory of its last due moment counts: what has changed since is of this one."""
UNKNOWN_WITHIN = 0.5
"""Of a period: a run that ended so lately is of this due moment, where a host remembers nothing of the one before."""
FAILED_RUNS_BEFORE_YIELD = 3
"""After so many runs that failed since a host's last due moment, by whichever host, it gives way once."""
MIN_BEAT = 300.0
BEATS_MISSED = 3


def compute_beat(lease: float) -> float:
    """Seconds after which a holder writes the note again at the latest. Fewer cost more requests."""
    return max(MIN_BEAT, lease)


def compute_silence(lease: float) -> float:
    """Seconds without a writing of the note after which a holder counts as hung, although its lease is renewed."""
    return BEATS_MISSED * compute_beat(lease)


class RunAction(Enum):
    """An action of this host on a due run."""

    LOOK_AT_NOTE = "look at the note"
    LOOK_AT_LEASE = "look at the lease"
    RUN = "run"
    TAKE_OVER = "take over"
    SKIP = "skip"
    WAIT = "wait"
    STAND_BY = "stand by"


@dataclass(frozen=True, slots=True)
class SettledRun:
    """The memory of a due moment: the run's ``number`` with which it was settled, skipped or made here.

    ``at``: when, by this host's own clock. ``failures``: how many runs had failed in a row then. ``gave_way``: it was
    skipped because of them; the next one is not, or hosts that always fail would keep one that would not from its runs.
    """

    number: int
    at: float
    failures: int = 0
    gave_way: bool = False


@dataclass(frozen=True, slots=True)
class RunDecision:
    """An action with its reason, in words.

    ``until``: when to decide again, by this host's own clock; with WAIT. ``settled``: what to remember for the next due
    moment's ``DueRun.settled``; with SKIP. ``of``: the boot of the host to take the lease from; with TAKE_OVER.
    """

    action: RunAction
    reason: str
    until: float | None = None
    settled: SettledRun | None = None
    of: str = ""


@dataclass(frozen=True, slots=True)
class DueRun:
    """A backup's run that is due on this host since ``at``, by its own clock (CLOCK_BOOTTIME).

    ``period``: seconds between two due moments, by its schedule. ``settled``: what this host remembers of the one
    before; None after a start of zvaultd. ``asked``: by a person, so it is made whoever ran last.
    """

    backup: str
    at: float
    period: float
    settled: SettledRun | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class SharingHost:
    """This host among the ``hosts`` of a vault, whose ``lease`` has so many seconds. ``boot`` is its boot, "" where
    that is not known.
    """

    name: str
    hosts: tuple[str, ...]
    lease: float
    turn: ElectionState
    boot: str = ""

    @property
    def stagger(self) -> float:
        """Seconds that this host lets those before it in ``hosts`` go first; less than SPREAD."""
        return HOST_SPREAD * self.hosts.index(self.name) / len(self.hosts)


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The holder by the lease: its holder by name and boot, for how many seconds a renewal counts, whether it is held.

    ``ours``: the holder is this host, in this boot or an earlier one. Its name alone does not tell.
    """

    host: str
    boot: str
    bound: float
    held: bool = True
    ours: bool = False


@dataclass(frozen=True, slots=True)
class UnreadableNote:
    """In the place of a note: why it is none. ``newer``: it is of a later version of zvault."""

    why: str
    newer: bool = False


SeenNote = ForeignWatch[SharedNote | UnreadableNote]
SeenLease = ForeignWatch[LeaseHolder]


def decide_run(
    due: DueRun, me: SharingHost, note: SeenNote | None, lease: SeenLease | None, now: float
) -> RunDecision:
    """Decide what to do now. ``note`` and ``lease``: what this host saw of them; None where it has not looked yet."""
    if (held_back := _held_back(due, me, now)) is not None:
        return held_back
    if note is None or (me.turn is not ElectionState.HOLDING and not note.fresh(now, NOTE_FRESH)):
        return RunDecision(RunAction.LOOK_AT_NOTE, "what the other hosts did is not known as of now")
    if isinstance(note.said, UnreadableNote) and note.said.newer:
        return RunDecision(
            RunAction.STAND_BY, f"another host has a newer zvault, update it here: {note.said.why}"
        )
    run = note.said.last(due.backup) if isinstance(note.said, SharedNote) else None
    if run is not None and not due.asked and (settled := _made(due, run, note, now)):
        failed = run.outcome is SharedRunOutcome.FAILED
        return RunDecision(
            RunAction.SKIP, settled, settled=SettledRun(run.number, now, run.failures, gave_way=failed)
        )
    return _of_one_undone(me, run, note, lease, now)


def _of_one_undone(
    me: SharingHost, run: LastSharedRun | None, note: SeenNote, lease: SeenLease | None, now: float
) -> RunDecision:
    """What to do about a run that no host made."""
    if me.turn is ElectionState.HOLDING:
        return RunDecision(RunAction.RUN, f"this host has the vault, and {_undone(run)}")
    if lease is None or not lease.fresh(now, LEASE_FRESH / 2):
        return _without_lease(me, run, note, now)
    if lease.said is None or not lease.said.held:
        begin = lease.first + me.stagger
        if now < begin:
            return RunDecision(
                RunAction.WAIT, "nobody has the vault; the hosts before this one go first", until=begin
            )
        return RunDecision(RunAction.RUN, f"nobody has the vault, and {_undone(run)}")
    holder = lease.said
    if holder.ours and not _is_clones(me, lease, holder):
        return RunDecision(RunAction.RUN, f"this host has had the vault, and {_undone(run)}")
    if holder.ours:
        holder = replace(holder, host=f"another machine called {me.name}, a clone of this one,")
    return _of_one_held(me, run, note, lease, holder, now)


def _is_clones(me: SharingHost, lease: SeenLease, holder: LeaseHolder) -> bool:
    """Whether another machine goes by this host's name and machine-id: it changed the lease while this host watched."""
    return bool(me.boot) and holder.boot != me.boot and lease.before is not None


def _held_back(due: DueRun, me: SharingHost, now: float) -> RunDecision | None:
    """What this host's own state and place decide, without any request."""
    if me.turn in (ElectionState.SHUT_OUT, ElectionState.CUT_OFF):
        return RunDecision(RunAction.STAND_BY, f"this host is {me.turn.label}: {me.turn.meaning}")
    if me.turn in (ElectionState.ASKING, ElectionState.RELEASING):
        return RunDecision(RunAction.WAIT, f"this host is {me.turn.label}", until=now + NOTE_FRESH)
    begin = due.at + me.stagger
    if me.turn is ElectionState.STANDING_BY and now < begin and not due.asked:
        return RunDecision(RunAction.WAIT, "the hosts before it in 'hosts' go first", until=begin)
    return None


def _made(due: DueRun, run: LastSharedRun, note: SeenNote, now: float) -> str:
    """Why a run need not be made again; "" where it is to be made."""
    age, known = run.age + note.at_most(now), due.settled
    if known is not None and now - known.at > KNOWN_FOR * due.period:
        known = None
    new = known is None or run.number > known.number
    if (
        run.outcome is SharedRunOutcome.RUNNING
        or not new
        or age > due.period * (1.0 if known else UNKNOWN_WITHIN)
    ):
        return ""
    if run.outcome is SharedRunOutcome.FAILED:
        if _failures_since(run, known) < FAILED_RUNS_BEFORE_YIELD or (known is not None and known.gave_way):
            return ""
        return f"{run.failures} runs failed in a row, the last on {run.host}: the next is made when it is due again"
    return f"{run.host} made run {run.number}, which ended {format_duration(age)} ago at most"


def _failures_since(run: LastSharedRun, known: SettledRun | None) -> int:
    """How many runs failed in a row since a due moment that this host remembers; all, where one in between did not."""
    return run.failures - (known.failures if known is not None and known.failures <= run.failures else 0)


def _undone(run: LastSharedRun | None) -> str:
    if run is None:
        return "no host has made a run yet"
    if run.outcome is SharedRunOutcome.RUNNING:
        return f"run {run.number}, begun by {run.host}, was not finished"
    if run.outcome is SharedRunOutcome.FAILED:
        return f"the last run, {run.number} by {run.host}, failed"
    return f"no host has made one since run {run.number} by {run.host}"


def _without_lease(me: SharingHost, run: LastSharedRun | None, note: SeenNote, now: float) -> RunDecision:
    """Where the lease was not looked at: whether it has to be. A note that was just written shows a live holder."""
    if not isinstance(note.said, SharedNote) or not note.said.holding:
        return RunDecision(RunAction.RUN, _undone(run))
    until = now - note.at_most(now) + me.lease + me.stagger
    if note.said.host != me.name and until > now:
        return RunDecision(RunAction.WAIT, f"{note.said.host} has the vault", until=until)
    return RunDecision(
        RunAction.LOOK_AT_LEASE, "whether the host that has the vault is alive is not known as of now"
    )


def _of_one_held(
    me: SharingHost,
    run: LastSharedRun | None,
    note: SeenNote,
    lease: SeenLease,
    holder: LeaseHolder,
    now: float,
) -> RunDecision:
    """What to do about a run that no host made while another host has the lease."""
    quiet = lease.age(lease.last)
    if quiet >= holder.bound + me.stagger:
        reason = f"{holder.host} has not renewed its lease for {format_duration(quiet)}, and so has stopped"
        return RunDecision(RunAction.TAKE_OVER, f"{reason}; {_undone(run)}", of=holder.boot)
    ends = lease.last - quiet + holder.bound + me.stagger
    hung = _hung_at(me, note, holder)
    if hung is not None and note.last >= hung:
        reason = (
            f"{holder.host} renews its lease, but has written nothing for "
            f"{format_duration(compute_silence(me.lease))}"
        )
        return RunDecision(
            RunAction.TAKE_OVER, f"{reason}, so its zvaultd hangs; {_undone(run)}", of=holder.boot
        )
    until = ends if hung is None else min(ends, hung)
    return RunDecision(RunAction.WAIT, f"{holder.host} has the vault", until=max(until, now + LEASE_FRESH))


def _hung_at(me: SharingHost, note: SeenNote, holder: LeaseHolder) -> float | None:
    """When a holder counts as hung unless it writes the note before; None for one that writes none.

    Who uses the vault by hand, or by a zvault that knows no other hosts, writes no note.
    """
    said = note.said
    if not isinstance(said, SharedNote) or not said.holding or said.host != holder.host:
        return None
    return note.last - note.age(note.last) + compute_silence(me.lease) + me.stagger
