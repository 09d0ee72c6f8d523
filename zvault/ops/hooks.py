"""The user's programs before and after a run and its snapshot.

What a hook before has done may have to be undone: a lock taken, a database put into backup mode. So the hooks after
are written down before the first hook before is started, and run whatever happens: when the run fails, when it is
cancelled, and, after a crash, when the next daemon starts (``recover_hooks``; invariant 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from zvault.api.events import Emit, HookOutput, MessageEvent, WarningEvent
from zvault.config.tables.hooks import OWN_VARIABLE_PREFIX, Hook, Hooks
from zvault.core.errors import HookFailed, ZvaultError
from zvault.core.printable import make_printable
from zvault.core.units import format_duration
from zvault.system.process.spawn import describe_exit
from zvault.system.process.user_program import has_ended, run_user_program
from zvault.system.record_store import RecordStore
from zvault.system.tasks import finish_work

Scope = Literal["run", "snapshot"]
"""What hooks stand around."""

ERROR_LAST_LINES = 3
"""Lines of a failed hook that its error repeats."""

HOOK_GRACE = 10.0
"""Seconds a hook may need beyond its timeout until it is killed and forgotten."""

READY_LINE = "ready"
"""The line by which a hook that is held says that it holds what it is for."""

MOST_HOOK_LINES = 500
"""Lines of one hook that are passed on: a program gone wild must not fill the journal."""


@dataclass(frozen=True)
class HookRun:
    """Which run it is: the names of its backup and vault, its id, and the source's dataset."""

    backup: str
    run: str
    source: str
    vault: str


@dataclass
class RunHooks:
    """The hooks of one run. ``blame`` is told of failures that count for the run; ``snapname`` is set once its snapshot
    is made.

    ``store`` keeps the pending ones, also after a boot: what a hook did may outlive it, or be on another host.
    """

    store: RecordStore
    about: HookRun
    emit: Emit
    blame: Callable[[ZvaultError], None]
    snapname: str = ""

    @contextlib.asynccontextmanager
    async def around(
        self, scope: Scope, hooks: Hooks, ending: Callable[[], tuple[str, str]] = lambda: ("ok", "")
    ) -> AsyncIterator[None]:
        """Do something between its hooks. Raises HookFailed where one before it failed; then it is not done.

        ``ending`` says how it went if it raised nothing, its result and its error; the hooks after it are told.
        """
        pending = _Pending(self.store, self.about, scope, list(hooks.after))
        pending.save_first()
        end, why = "interrupted", "it was stopped"
        held: list[_Held] = []
        try:
            for hook in hooks.before:
                await self._before(hook, scope, hooks.before, held)
            yield
            end, why = ending()
        except Exception as error:
            end, why = "failed", str(error)
            raise
        finally:
            await finish_work(self._let_go(held))
            await finish_work(self._after(pending, end, why))

    async def _let_go(self, held: Sequence[_Held]) -> None:
        """End the hooks that are held, the last first. One that ended by itself did not hold over what was done."""
        for one in reversed(held):
            if (error := await one.end()) is None:
                self.emit(MessageEvent(text=f"{one.name} held, and was ended", hook=one.moment))
                continue
            self.emit(WarningEvent(text=str(error), hook=one.moment))
            if one.hook.on_failure == "stop":
                self.blame(error)

    async def _before(self, hook: Hook, scope: Scope, among: Sequence[Hook], held: list[_Held]) -> None:
        try:
            if hook.hold:
                held.append(await self._hold(hook, f"before-{scope}", _place(hook, among)))
            else:
                await self._run(hook, f"before-{scope}", _place(hook, among), {})
        except HookFailed as error:
            if hook.on_failure == "stop":
                raise
            self.emit(WarningEvent(text=f"{error}; its on_failure is go-on", hook=f"before-{scope}"))

    async def _after(self, pending: _Pending, end: str, why: str) -> None:
        """Run every hook that is pending, and forget each as it has ended. Raises nothing a hook can cause."""
        among = tuple(pending.hooks)
        # What another host said may be in it: no environment has a zero byte, and a script may print it.
        error_line = make_printable(" ".join(why.split()), keep="")
        moment, told = (
            f"after-{pending.scope}",
            {f"{OWN_VARIABLE_PREFIX}RESULT": end, f"{OWN_VARIABLE_PREFIX}ERROR": error_line},
        )
        for hook in among:
            try:
                await self._run(hook, moment, _place(hook, among), told)
            except HookFailed as error:
                self.emit(WarningEvent(text=str(error), hook=moment))
                if hook.on_failure == "stop":
                    self.blame(error)
            pending.hooks.remove(hook)
            try:
                pending.save()
            except OSError as error:
                text = f"that this hook has run cannot be written down, and the next start runs it again: {error}"
                self.emit(WarningEvent(text=text, hook=moment))

    async def _hold(self, hook: Hook, moment: str, place: str) -> _Held:
        """Start one hook, and wait until it says that it is ready. Raises HookFailed."""
        said = _Said(self.emit, moment, Path(hook.run[0]).name)
        ready = asyncio.Event()

        def hear(line: str) -> None:
            if line.strip() == READY_LINE:
                ready.set()
            said.hear(line)

        environment = self._environment(hook, moment)
        processes: list[asyncio.subprocess.Process] = []
        program = run_user_program(
            hook.run, env=environment, deadline=hook.timeout, hear=hear, started=processes.append
        )
        task = asyncio.create_task(program)
        until = time.monotonic() + hook.timeout
        held = _Held(hook, moment, _name(said, moment, place), said, task, processes, until)
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await finish_work(held.end())
            raise
        finally:
            waiting.cancel()
        if task.done() and (error := await held.end()) is not None:
            raise error
        self.emit(MessageEvent(text=f"{held.name} is ready, and held", hook=moment))
        return held

    def _environment(self, hook: Hook, moment: str) -> dict[str, str]:
        return {
            **hook.environment,
            f"{OWN_VARIABLE_PREFIX}HOOK": moment,
            f"{OWN_VARIABLE_PREFIX}BACKUP": self.about.backup,
            f"{OWN_VARIABLE_PREFIX}RUN": self.about.run,
            f"{OWN_VARIABLE_PREFIX}SOURCE": self.about.source,
            f"{OWN_VARIABLE_PREFIX}VAULT": self.about.vault,
            f"{OWN_VARIABLE_PREFIX}SNAPSHOT": self.snapname,
        }

    async def _run(self, hook: Hook, moment: str, place: str, told: dict[str, str]) -> None:
        """Run one hook. Raises HookFailed."""
        said = _Said(self.emit, moment, Path(hook.run[0]).name)
        name = _name(said, moment, place)
        began = asyncio.get_running_loop().time()
        try:
            status = await run_user_program(
                hook.run, env=self._environment(hook, moment) | told, deadline=hook.timeout, hear=said.hear
            )
        except ZvaultError as error:
            why = said.with_last_words(f"{error.what}: {error.why}")
            raise HookFailed(f"{name} failed", why, _next(moment)) from None
        finally:
            said.close()
        if status != 0:
            raise HookFailed(f"{name} failed", said.with_last_words(describe_exit(status)), _next(moment))
        seconds = asyncio.get_running_loop().time() - began
        self.emit(MessageEvent(text=f"{name} ended well, in {format_duration(seconds)}", hook=moment))


@dataclass
class _Held:
    """A hook that is held over what is done: the process that ``task`` attends goes on meanwhile.

    ``until``, in monotonic seconds, is when it is killed, whoever still needs it.
    """

    hook: Hook
    moment: str
    name: str
    said: _Said
    task: asyncio.Task[int]
    processes: Sequence[asyncio.subprocess.Process]
    until: float

    async def end(self) -> HookFailed | None:
        """End it (SIGTERM, then SIGKILL), with all that it started; the error where it had ended by itself before."""
        # One that is being killed at its timeout holds nothing any more, though its process may not have ended yet.
        if time.monotonic() < self.until and not any(has_ended(process) for process in self.processes):
            self.task.cancel()
        await asyncio.wait({self.task})
        self.said.close()
        if self.task.cancelled():
            return None
        if (error := self.task.exception()) is not None:
            why = f"{error.what}: {error.why}" if isinstance(error, ZvaultError) else repr(error)
        else:
            why = f"{describe_exit(self.task.result())}, before it was ended"
        return HookFailed(f"{self.name} did not hold", self.said.with_last_words(why), _next(self.moment))


def _name(said: _Said, moment: str, place: str) -> str:
    return f"the hook '{said.program}' {moment.replace('-', ' the ')}{place}"


def _place(hook: Hook, among: Sequence[Hook]) -> str:
    """Which of several it is."""
    number = next(index for index, one in enumerate(among, 1) if one is hook)
    return f" ({number} of {len(among)})" if len(among) > 1 else ""


def _next(moment: str) -> str:
    said = f"'journalctl -t zvaultd HOOK={moment}' has all it said"
    return said if moment.startswith("before") else f"see whether what it should undo is undone; {said}"


@dataclass
class _Said:
    """What one hook says, passed on line by line, to a limit; the last lines are kept."""

    emit: Emit
    moment: str
    program: str
    lines: int = 0
    last: deque[str] = field(default_factory=lambda: deque(maxlen=ERROR_LAST_LINES))

    def hear(self, line: str) -> None:
        self.lines += 1
        self.last.append(line)
        if self.lines <= MOST_HOOK_LINES:
            self._tell(line)

    def close(self) -> None:
        if self.lines > MOST_HOOK_LINES:
            self._tell(f"… and {self.lines - MOST_HOOK_LINES} lines more, which are not kept")

    def _tell(self, text: str) -> None:
        self.emit(HookOutput(hook=self.moment, program=self.program, text=text))

    def with_last_words(self, why: str) -> str:
        return f"{why}; it said: {' / '.join(self.last)}" if self.last else f"{why}, without a word"


@dataclass
class _Pending:
    """The hooks that still have to be run after something, in memory and as a lease."""

    store: RecordStore
    about: HookRun
    scope: Scope
    hooks: list[Hook]

    @property
    def name(self) -> str:
        return f"hooks/{self.scope}/{self.about.backup}/{self.about.run}"

    def save(self) -> None:
        """Write it down, or drop it when nothing is left to be run. Raises OSError."""
        if not self.hooks:
            self.store.drop(self.name)
            return
        hooks = [hook.model_dump() for hook in self.hooks]
        self.store.put(self.name, {"about": asdict(self.about), "hooks": hooks})

    def save_first(self) -> None:
        """Write it down before anything is started. Raises HookFailed."""
        if not self.hooks:
            return
        try:
            self.save()
        except OSError as error:
            raise HookFailed(
                f"the hooks after the {self.scope} cannot be written down",
                f"{error}; after a crash nobody would know of them",
                f"see that {self.store.directory} can be written to",
            ) from error


def list_cut_off_backups(store: RecordStore) -> set[str]:
    """The backups whose last run was cut off before its hooks after the run."""
    return {_backup(name) for name in store.names("hooks/run/")} - {""}


def rename_pending_hooks(store: RecordStore, find_name: Callable[[HookRun], str]) -> None:
    """Have pending hooks be those of the name that their backup has now, which ``find_name`` tells.

    Whatever cannot be read or written stays as it is. A kill in between has hooks run twice rather than not at all.
    """
    for name in store.names("hooks/"):
        with contextlib.suppress(OSError, ZvaultError, KeyError, TypeError, ValueError):
            data = store.get(name) or {}
            about = HookRun(**data["about"])
            now = find_name(about)
            if now != about.backup:
                scope = name.split("/")[1]  # by its place: a backup may be called as a scope is
                renamed = f"hooks/{scope}/{now}/{about.run}"
                store.put(renamed, {"about": {**asdict(about), "backup": now}, "hooks": data["hooks"]})
                store.drop(name)


def _backup(name: str) -> str:
    """The backup that a lease of hooks is about; "" where its name tells none."""
    parts = name.split("/")
    return parts[2] if len(parts) > 2 else ""


async def recover_hooks(
    store: RecordStore,
    emitter: Callable[[str, str], Emit],
    scope: Scope,
    patience: Callable[[float], None] = lambda seconds: None,
    concerns: Callable[[str], bool] = lambda backup: True,
) -> list[ZvaultError]:
    """Run the hooks after a run or a snapshot that an earlier daemon did not come to run.

    ``emitter`` gives the Emit for a run's id and its backup; ``patience`` is told how many seconds the next
    hooks may take, and ``concerns`` tells whether those of a backup are to be run now. Returns what went wrong; a hook
    that fails now is not tried again. One that the crash itself cut short is run again, from its start.
    """
    wrong: list[ZvaultError] = []
    for name in store.names(f"hooks/{scope}/"):
        if not concerns(_backup(name)):
            continue
        try:
            data = store.get(name) or {}
            about = HookRun(**data["about"])
            pending = _Pending(store, about, scope, [Hook.model_construct(**hook) for hook in data["hooks"]])
        except ZvaultError as error:
            wrong.append(error)
            continue
        # A malformed lease kept zvaultd from starting.
        except (KeyError, TypeError, ValueError) as error:
            wrong.append(
                ZvaultError(f"the hooks in {name} cannot be run", f"the lease is malformed: {error!r}")
            )
            continue
        patience(sum(hook.timeout + HOOK_GRACE for hook in pending.hooks))
        emit = emitter(about.run, about.backup)
        emit(
            WarningEvent(
                text=f"run {about.run} was cut off before its hooks after the {scope}: running them now",
                hook=f"after-{scope}",
            )
        )
        await RunHooks(store, about, emit, wrong.append)._after(
            pending, "interrupted", "the daemon was cut off"
        )
    return wrong
