"""Runs jobs: starts each, tells of its beginning and end, and stops them where nothing may run."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from zvault.api.events import Emit, RunEvent, RunFinished, RunStarted
from zvault.core.errors import Refused, ZvaultError
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.event_publisher import EventPublisher, make_emit
from zvault.daemon.run_recorder import RunRecorder
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.environment import Environment

VAULT_TRIGGERS = {"scrub", "heal"}
"""Of runs whose subject is a vault."""


class Job(Protocol):
    """What a run does, once. ``subject`` is the backup or the vault that it is about, ``trigger`` why it runs.

    ``outcome`` is filled as the job goes on, so that it is known also of one that was cut short. A job that is
    ``aside`` backs nothing up: any number of them may run beside the backup of their subject.
    """

    @property
    def subject(self) -> str: ...
    @property
    def trigger(self) -> str: ...
    @property
    def aside(self) -> bool: ...
    @property
    def outcome(self) -> RunOutcome: ...

    async def execute(self, run: ActiveRun, emit: Emit, /) -> None:
        """Do it, as ``run``; tell with ``emit`` what happens. Whatever is raised, the runner writes down and tells."""


class JobRunner:
    """Starts, drains and supersedes jobs, and knows no kind of them."""

    def __init__(self, env: Environment, events: EventPublisher, recorder: RunRecorder) -> None:
        self.env = env
        self.events = events
        self.recorder = recorder
        self.current: dict[str, ActiveRun] = {}
        """The runs in progress, by id."""
        self.closed: str | None = None
        """Why nothing may start now, in words; None where it may."""

    def start(self, job: Job) -> str:
        """Start a job and return its run's id. Raises Refused while nothing may start."""
        if self.closed is not None:
            raise Refused("no run can start", self.closed, "it is made up for once zvaultd goes on")
        now = self.env.clock.now()
        id = self._draw_id(now)
        task = asyncio.create_task(self._conduct(id, job), name=f"run {id}")
        self.current[id] = ActiveRun(
            id, job.subject, job.trigger, task, started=now.timestamp(), aside=job.aside
        )
        task.add_done_callback(lambda _: self._never_began(id, job))
        return id

    def supersede(self, waiting: ActiveRun, job: Job) -> str:
        """Start a job that does all that a run would have done which waits to try again; that one ends."""
        run = self.start(job)
        waiting.superseded.set()
        return run

    async def pause(self, run: ActiveRun, seconds: float) -> bool:
        """Wait to try again; False where another run has superseded it. While nothing may start, the run is stopped."""
        run.waiting = self.env.clock.time() + seconds
        try:
            if self.closed is not None:
                run.task.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await run.superseded.wait()
        finally:
            run.waiting = None
        return not run.superseded.is_set()

    def running(self, subject: str) -> ActiveRun | None:
        """The run of a subject in progress, if any: none that is aside, and none that was superseded."""
        return next(
            (
                run
                for run in self.current.values()
                if run.backup == subject and not run.aside and not run.superseded.is_set()
            ),
            None,
        )

    def is_at_work(self, subject: str) -> bool:
        """True while a run of a subject is in progress that does not wait to try again."""
        run = self.running(subject)
        return run is not None and run.waiting is None

    def find_run(self, subject: str, *triggers: str) -> ActiveRun | None:
        """Return the run in progress of a subject that has one of these triggers."""
        return next(
            (run for run in self.current.values() if run.backup == subject and run.trigger in triggers), None
        )

    def rename_subjects(self, renamed: Mapping[str, str]) -> None:
        """Have the runs of backups that have another name now (by the one before) count as runs of that name.

        With a reload in the middle of its run, a backup's next run began beside it: both sent the same datasets.
        """
        for run in self.current.values():
            if run.trigger not in VAULT_TRIGGERS:
                run.backup = renamed.get(run.backup, run.backup)

    async def wait_superseded(self, subject: str) -> None:
        """Wait until the runs of a subject have ended that were superseded."""
        runs = [run for run in self.current.values() if run.backup == subject and run.superseded.is_set()]
        if runs:
            await asyncio.wait({run.task for run in runs})

    async def drain(self, why: str, within: float) -> None:
        """Let runs end by themselves for a while, then stop their streams so that they can be resumed."""
        self.closed = why
        for run in self.current.values():
            if run.waiting is not None:
                run.task.cancel()
        if tasks := {run.task for run in self.current.values()}:
            await asyncio.wait(tasks, timeout=within)
        await self.put_down(why)

    async def put_down(self, why: str, within: float | None = None) -> set[str]:
        """Let nothing start until ``reopen``, and stop what runs, so that it can be resumed.

        Returns the subjects whose runs it stopped, but of those aside, after ``within`` seconds also if some have not
        ended yet.
        """
        self.closed = why
        stopped = list(self.current.values())
        for run in stopped:
            run.task.cancel()
        if stopped:
            await asyncio.wait({run.task for run in stopped}, timeout=within)
        return {run.backup for run in stopped if not run.aside}

    def reopen(self) -> None:
        """Let runs start again."""
        self.closed = None

    def _draw_id(self, now: datetime) -> str:
        """Make an id that no other run has.

        Of pairs of runs that begin in one second one in 65,536 drew the same, and the history refused the second run
        (seen in a simulated year).
        """
        while True:
            id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
            if id not in self.current and not self.recorder.is_recorded(id):
                return id

    def emitter(self, run: str, subject: str) -> Emit:
        """Tells what happens in a run."""
        return make_emit(self.events.publish, self.env.clock, run, lambda: subject)

    def note_event(self, event: RunEvent) -> None:
        """Keep the live figures of the run that an event is about."""
        if (run := self.current.get(event.run)) is not None:
            run.note(event)

    async def _conduct(self, id: str, job: Job) -> None:
        """Run it from the first event to the last; whatever happens is written down and told."""
        started, run = self.env.clock.time(), self.current[id]
        emit = make_emit(self.events.publish, self.env.clock, id, lambda: run.backup)
        self._begin(run, emit, started)
        try:
            with self.env.follow_names():
                await job.execute(run, emit)
        except ZvaultError as error:
            job.outcome.result = "failed"
            job.outcome.blame(error)
        except asyncio.CancelledError:
            job.outcome.result = "interrupted"
            job.outcome.blame(self._make_stopped())
        except Exception as error:
            job.outcome.result = "failed"
            job.outcome.blame(make_unexpected_error(error))
            raise
        finally:
            self._finish(run, emit, job.outcome, started)

    def _never_began(self, id: str, job: Job) -> None:
        """Write down a run that was cancelled before its first step: nothing in its task ran, no finally either."""
        if (run := self.current.get(id)) is not None:
            now, outcome = self.env.clock.time(), RunOutcome(result="interrupted")
            outcome.blame(self._make_stopped())
            emit = self.emitter(id, run.backup)
            self._begin(run, emit, now)
            self._finish(run, emit, outcome, now)

    def _make_stopped(self) -> ZvaultError:
        return Refused(
            "the run was stopped", self.closed or "it was told to", "the next run resumes where it stopped"
        )

    def _begin(self, run: ActiveRun, emit: Emit, started: float) -> None:
        self.recorder.begin(run, started)
        emit(RunStarted(trigger=run.trigger))

    def _finish(self, run: ActiveRun, emit: Emit, outcome: RunOutcome, started: float) -> None:
        ended = self.env.clock.time()
        del self.current[run.id]
        self.recorder.end(run, outcome, started, ended)
        emit(
            RunFinished(
                trigger=run.trigger,
                result=outcome.result,
                bytes=outcome.bytes,
                datasets=outcome.datasets,
                sent=outcome.sent,
                pruned=outcome.pruned,
                seconds=max(0.0, ended - started),  # the clock may have been set back
                error=outcome.error.as_dict() if outcome.error else None,
            )
        )


def make_unexpected_error(error: Exception) -> ZvaultError:
    """An error nobody foresaw, as one that can be told."""
    return ZvaultError(
        "zvault met an error it does not know",
        f"{type(error).__name__}: {error}",
        "the journal has the details; please report it",
    )
