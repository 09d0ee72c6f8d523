"""The note beside a vault's lease: what its hosts have run, as the one that had the lease wrote it last.

One JSON document, replaced only on condition that it is still what was read (``If-Match``, ``If-None-Match``). Whoever
has the lease writes it; the others read it. All that it says is a claim: it is checked here, and a host never compares
a time in it with its own clock. ``began`` and ``ended`` are for people. What decides is ``number``, and ``age``, which
is a duration: seconds from a run's last change to the writing of the note.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from zvault.core.name_rules import check_backup_name
from zvault.core.units import is_number

NOTE_VERSION = 1
MAX_BYTES = 1 << 20
"""Of the whole document. An entry has some 250."""
MAX_BACKUPS = 2000
_MAX_COUNT = (1 << 53) - 1
_MAX_EPOCH = (1 << 32) - 1
_MAX_SECONDS = 253402300799.0
"""The end of the year 9999; no duration is longer either."""
_DECIMAL = 32
"""Characters in the longest number that is no whole one."""
_HOST = re.compile(r"[A-Za-z0-9_.: -]{1,250}")

Entry = TypeVar("Entry", "SharedNote", "LastSharedRun")


class NoteDamaged(ValueError):
    """The document is no note."""


class NoteNewer(NoteDamaged):
    """The note is of a version that this zvault does not know."""


class SharedRunOutcome(StrEnum):
    """The state of a run: under way, or how it ended."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LastSharedRun:
    """The last run of one backup.

    ``number`` counts the backup's runs, whoever made them. ``failures``: how many of them failed in a row. ``lag`` in
    seconds, None where it is not known. ``began`` and ``ended`` by the clock of ``host``, in seconds since the epoch.
    ``age``: seconds between the last change of this entry and the writing of the note.
    """

    number: int
    host: str
    outcome: SharedRunOutcome
    began: float
    ended: float | None = None
    lag: float | None = None
    failures: int = 0
    age: float = 0.0

    def without_ages(self) -> LastSharedRun:
        """The same without its age, and without a lag that grew by it."""
        return replace(self, age=0.0, lag=None if self.outcome is SharedRunOutcome.RUNNING else self.lag)


@dataclass(frozen=True, slots=True)
class SharedNote:
    """The whole document, as ``host`` wrote it with the block store's ``epoch``; ``sequence`` grows by one a writing.

    ``holding``: its writer has the lease, and writes the note again at least every ``run_decision.compute_beat``
    seconds.
    """

    host: str
    epoch: int
    sequence: int = 1
    holding: bool = False
    runs: Mapping[str, LastSharedRun] = field(default_factory=lambda: MappingProxyType({}))

    def as_bytes(self) -> bytes:
        """As the object holds it. Raises NoteDamaged for one that nobody would read back."""
        said = {**_plain(self), "version": NOTE_VERSION}
        said["runs"] = {name: _plain(run) for name, run in sorted(self.runs.items())}
        data = json.dumps(said, indent=1, allow_nan=False).encode()
        SharedNote.of_bytes(data)
        return data

    @classmethod
    def of_bytes(cls, data: bytes) -> SharedNote:
        """Read back and checked. Raises NoteDamaged; NoteNewer for a version that is not known."""
        if len(data) > MAX_BYTES:
            raise NoteDamaged(f"it has more than {MAX_BYTES} bytes")
        try:
            said = json.loads(data, parse_int=_whole, parse_float=_decimal, parse_constant=_decimal)
        except NoteDamaged:
            raise
        except RecursionError:
            raise NoteDamaged("it is nested too deeply") from None
        except ValueError as error:
            raise NoteDamaged(f"it is no JSON document: {error}") from None
        return _note(said)

    def last(self, backup: str) -> LastSharedRun | None:
        """The last run of a backup that the note knows of."""
        return self.runs.get(backup)

    def written(self, host: str, epoch: int, since: float, *, holding: bool = True) -> SharedNote:
        """The note for the next writing by a host that has the lease, ``since`` seconds after this one was written.

        Raises NoteDamaged when this one is of a later epoch: the host was shut out.
        """
        if epoch < self.epoch:
            raise NoteDamaged(f"{self.host} wrote it with epoch {self.epoch}, after this host's, {epoch}")
        later = max(0.0, since)
        runs = {name: replace(run, age=min(run.age + later, _MAX_SECONDS)) for name, run in self.runs.items()}
        return SharedNote(host, epoch, _next(self.sequence), holding, runs)

    def replaced(self, host: str, epoch: int, since: float, *, holding: bool = True) -> SharedNote:
        """The same in the place of a note whose epoch the host's store never had: no lag that it claims is kept."""
        new = replace(self, epoch=min(self.epoch, epoch)).written(host, epoch, since, holding=holding)
        return replace(new, runs={name: replace(run, lag=None) for name, run in new.runs.items()})

    def begun(self, backup: str, at: float) -> SharedNote:
        """A run of a backup begins on the note's host, ``at`` by its clock. One that was broken off goes on.

        Until it ends the lag is that of the run before it, and as much more as has passed since.
        """
        before = self.last(backup)
        if before is None:
            return self._with(backup, LastSharedRun(1, self.host, SharedRunOutcome.RUNNING, at))
        number = before.number if before.outcome is SharedRunOutcome.RUNNING else _next(before.number)
        running = LastSharedRun(
            number,
            self.host,
            SharedRunOutcome.RUNNING,
            at,
            lag=_later(before.lag, before.age),
            failures=before.failures,
        )
        return self._with(backup, running)

    def finished(self, backup: str, at: float, *, done: bool, lag: float | None) -> SharedNote:
        """The run of a backup ended, ``at`` by the clock of the note's host. Raises NoteDamaged if none had begun."""
        before = self.last(backup)
        if before is None or before.outcome is not SharedRunOutcome.RUNNING:
            raise NoteDamaged(f"no run of {backup} had begun")
        ended = replace(
            before,
            outcome=SharedRunOutcome.DONE if done else SharedRunOutcome.FAILED,
            ended=at,
            lag=lag,
            failures=0 if done else min(before.failures + 1, _MAX_COUNT),
            age=0.0,
        )
        return self._with(backup, ended)

    def same_as(self, other: SharedNote) -> bool:
        """True if both say the same, but for what grows with time: one may have been put anew after a lost answer."""
        return self._without_ages() == other._without_ages()

    def _without_ages(self) -> SharedNote:
        return replace(self, runs={name: run.without_ages() for name, run in self.runs.items()})

    def renamed(self, find_name: Callable[[str], str]) -> SharedNote:
        """With the names that backups have now, which ``find_name`` tells."""
        return replace(self, runs={find_name(name): run for name, run in self.runs.items()})

    def only(self, backups: frozenset[str]) -> SharedNote:
        """Without backups that are not configured any more."""
        return replace(self, runs={name: run for name, run in self.runs.items() if name in backups})

    def _with(self, backup: str, run: LastSharedRun) -> SharedNote:
        return replace(self, runs={**self.runs, backup: run})


def _plain(entry: SharedNote | LastSharedRun) -> dict[str, Any]:
    """Its fields, without the runs of a note."""
    if isinstance(entry, LastSharedRun):
        return asdict(entry)
    return {item.name: getattr(entry, item.name) for item in fields(entry) if item.name != "runs"}


def _note(said: object) -> SharedNote:
    if not isinstance(said, dict):
        raise NoteDamaged("it is no table")
    version = said.pop("version", None)
    if type(version) is int and version > NOTE_VERSION:
        raise NoteNewer(f"it has version {version}, and this zvault knows up to {NOTE_VERSION}")
    if type(version) is not int or version != NOTE_VERSION:
        raise NoteDamaged("it has no version that there ever was")
    runs = said.get("runs")
    if not isinstance(runs, dict) or len(runs) > MAX_BACKUPS:
        raise NoteDamaged(f"it has no table of runs, or one of more than {MAX_BACKUPS}")
    said["runs"] = {_backup(name): _entry(LastSharedRun, run) for name, run in runs.items()}
    return _entry(SharedNote, said)


def _entry(kind: type[Entry], said: object) -> Entry:
    if not isinstance(said, dict) or set(said) != {item.name for item in fields(kind)}:
        raise NoteDamaged(f"a {kind.__name__} in it has keys missing or too many")
    read = {name: _CHECKS[name](name, value) for name, value in said.items()}
    return kind(**read)


def _backup(name: str) -> str:
    try:
        check_backup_name(name)
    except ValueError as error:
        raise NoteDamaged(str(error)) from None
    return name


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise NoteDamaged(f"{name} is no count")
    return value


def _positive(name: str, value: object) -> int:
    if (count := _count(name, value)) == 0:
        raise NoteDamaged(f"{name} is no count from 1")
    return count


def _epoch(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_EPOCH:
        raise NoteDamaged(f"{name} is none that a block store has")
    return value


def _next(count: int) -> int:
    """One more. What somebody else wrote may be at the end already, and must not stop the counting."""
    return count % _MAX_COUNT + 1


def _seconds(name: str, value: object) -> float:
    if type(value) not in (int, float) or not 0 <= float(value) <= _MAX_SECONDS:  # type: ignore[arg-type]
        raise NoteDamaged(f"{name} is no number of seconds")
    return float(value)  # type: ignore[arg-type]


def _perhaps(name: str, value: object) -> float | None:
    return None if value is None else _seconds(name, value)


def _lag(name: str, value: object) -> float | None:
    """Below zero where the clocks of source and vault's host differ."""
    if value is None:
        return None
    if type(value) not in (int, float) or not abs(float(value)) <= _MAX_SECONDS:  # type: ignore[arg-type]
        raise NoteDamaged(f"{name} is no number of seconds")
    return float(value)  # type: ignore[arg-type]


def _name(name: str, value: object) -> str:
    if type(value) is not str or not _HOST.fullmatch(value):
        raise NoteDamaged(f"{name} is no host's name")
    return value


def _flag(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise NoteDamaged(f"{name} is neither true nor false")
    return value


def _outcome(name: str, value: object) -> SharedRunOutcome:
    try:
        return SharedRunOutcome(value)  # type: ignore[arg-type]
    except ValueError:
        raise NoteDamaged(f"{name} is none of {', '.join(SharedRunOutcome)}") from None


_CHECKS: Mapping[str, Any] = {
    "number": _positive,
    "epoch": _epoch,
    "sequence": _positive,
    "failures": _count,
    "host": _name,
    "outcome": _outcome,
    "began": _seconds,
    "ended": _perhaps,
    "age": _seconds,
    "lag": _lag,
    "holding": _flag,
    "runs": lambda _, value: value,
}


def _later(lag: float | None, seconds: float) -> float | None:
    return None if lag is None else min(lag + seconds, _MAX_SECONDS)


def _whole(text: str) -> int:
    if not is_number(text.removeprefix("-")):
        raise NoteDamaged("it has a number of too many digits")
    return int(text)


def _decimal(text: str) -> float:
    number = float(text) if len(text) <= _DECIMAL else math.nan
    if not math.isfinite(number):
        raise NoteDamaged("it has a number that is none, or of too many digits")
    return number
