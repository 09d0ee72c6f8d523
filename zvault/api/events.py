"""Events of runs: a frozen dataclass for each kind, and the JSON document by which the API sends it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, TypedDict

from zvault.api.backups import Side
from zvault.api.restore import DifferenceDocument
from zvault.api.runs import RunResult
from zvault.api.vaults import DamageDocument
from zvault.core.errors import ErrorDocument
from zvault.core.integrity.restore_time import ReadingKind


class EventHead(TypedDict):
    """The fields that the document of every event has."""

    event: str
    run: str
    backup: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """What happens in a run. ``name`` is the word for its kind in its document; who publishes it fills in the other
    three: the run's id, its backup, and the time in seconds since the epoch.

    A field that may be missing in the document has the default None.
    """

    name: ClassVar[str]
    run: str = ""
    backup: str = ""
    time: float = 0.0


Emit = Callable[[RunEvent], None]
"""Tells everyone who follows a run what happens in it; it fills in the run, the backup and the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(RunEvent):
    """A run begins."""

    name = "run-started"
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEvent(RunEvent):
    """Something to tell; ``hook`` names the moment of the hook that it is about."""

    name = "message"
    text: str
    hook: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningEvent(RunEvent):
    """A warning. Of writes that drift: the ``vault``, and what they drift in; of prune_limit: side and datasets."""

    name = "warning"
    text: str
    hook: str | None = None
    vault: str | None = None
    drift: str | None = None
    side: Side | None = None
    over_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutput(RunEvent):
    """A line that a hook's program printed."""

    name = "hook-output"
    hook: str
    program: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultUp(RunEvent):
    """The vault is up."""

    name = "vault-up"
    vault: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InhibitorEvent(RunEvent):
    """The host is kept from sleeping for the run, or why it is not."""

    name = "inhibitor"
    held: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMade(RunEvent):
    """A snapshot of so many datasets was made."""

    name = "snapshot"
    snapname: str
    datasets: int


class PlannedTransfer(TypedDict):
    """The plan for one dataset."""

    dataset: str
    action: str
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEvent(RunEvent):
    """The plan of the run."""

    name = "plan"
    datasets: list[PlannedTransfer]
    bytes_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStarted(RunEvent):
    """A stream begins. ``from_`` is ``from`` in the document: None for a full stream."""

    name = "transfer-started"
    dataset: str
    kind: str
    from_: str | None
    to: str
    bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressMade(RunEvent):
    """The progress of a stream. ``buffer``: the least and the most that mbuffer's memory was filled of late, in
    percent.

    ``run_bytes``, ``run_total`` and ``run_rate`` are of all streams of the run.
    """

    name = "progress"
    dataset: str
    bytes: int
    total: int | None
    rate: float
    buffer: tuple[int, int] | None
    run_bytes: int
    run_total: int | None
    run_rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFinished(RunEvent):
    """A stream is whole."""

    name = "transfer-finished"
    dataset: str
    bytes: int
    seconds: float
    run_bytes: int
    run_total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeAborted(RunEvent):
    """An interrupted receive was given up."""

    name = "resume-aborted"
    dataset: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFailed(RunEvent):
    """A dataset failed; ``again``: this run will try it again."""

    name = "dataset-failed"
    dataset: str
    error: ErrorDocument
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEvent(RunEvent):
    """The run waits ``wait`` seconds and tries again: the ``number``-th time of ``retries``."""

    name = "retry"
    wait: float
    number: int
    retries: int
    error: ErrorDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedEvent(RunEvent):
    """Snapshots were destroyed; a run that destroys very many tells it in parts, as they go."""

    name = "pruned"
    side: Side
    count: int
    snapshots: list[str]


HealResult = Literal["healed", "partial", "failed"]


class UnhealedDocument(DamageDocument):
    """Damage that stays, and whether it is lost for good."""

    why: str
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HealedEvent(RunEvent):
    """A healing ended: of so many files ``found``, so many are ``healed``."""

    name = "healed"
    vault: str
    result: HealResult
    found: int
    healed: int
    left: list[UnhealedDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredEvent(RunEvent):
    """A dataset, or ``files`` files, were restored. Where it is not mounted ``why`` says so, and what to do."""

    name = "restored"
    dataset: str
    mountpoint: str | None
    why: str
    snapshot: str
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffersEvent(RunEvent):
    """Restored data is not as in the snapshot: some of the differences."""

    name = "differs"
    differences: list[DifferenceDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedEvent(RunEvent):
    """Restored data has been compared with its snapshot; so many ``differences`` were found.

    ``unread`` says by dataset why its contents were not compared; ``commands`` put right what differs.
    """

    name = "compared"
    result: Literal["same", "differs"]
    datasets: int
    files: int
    bytes: int
    differences: int
    unread: dict[str, str]
    commands: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvent(RunEvent):
    """A verification ended; ``unproven`` says by dataset why it could not be compared."""

    name = "verified"
    level: str
    result: Literal["ok", "differs", "nothing"]
    datasets: int
    files: int
    bytes: int
    unproven: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultRead(RunEvent):
    """So many bytes were really read from the devices of a vault, by a restore, a drill, a verification or a scrub."""

    name = "vault-read"
    vault: str
    kind: ReadingKind
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultHolds(RunEvent):
    """So many bytes of a backup are to be restored from a vault, if the newest state of all its datasets is."""

    name = "vault-holds"
    vault: str
    datasets: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished(RunEvent):
    """A run ended."""

    name = "run-finished"
    trigger: str
    result: RunResult
    bytes: int
    datasets: int
    sent: int
    pruned: int
    seconds: float
    error: ErrorDocument | None


EVENT_KINDS: Mapping[str, type[RunEvent]] = {
    kind.name: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, RunEvent) and kind is not RunEvent
}
"""The kinds of events by their names."""


def make_event_document(event: RunEvent) -> dict[str, Any]:
    """An event as the API sends it. Optional fields that it does not have are left out."""
    document: dict[str, Any] = {"event": event.name}
    for one in fields(event):
        value = getattr(event, one.name)
        if value is not None or one.default is MISSING:
            document[one.name.rstrip("_")] = value
    return document


def read_event(document: Mapping[str, Any]) -> RunEvent | None:
    """The event of a document; None of a kind that this version does not know. Raises ValueError.

    Fields that this version does not know are left out: the daemon may be newer than who asks it.
    """
    kind = EVENT_KINDS.get(document["event"])
    if kind is None:
        return None
    found: dict[str, Any] = {}
    for one in fields(kind):
        if (key := one.name.rstrip("_")) in document:
            value = document[key]
            found[one.name] = tuple(value) if key == "buffer" and value is not None else value
    try:
        return kind(**found)
    except TypeError as error:
        raise ValueError(f"event {kind.name}: {error}") from None
