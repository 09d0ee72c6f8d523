"""Events of runs: for each kind the fields that it has, and the event as it is sent, with its run, backup and time."""

from typing import Literal, NotRequired, TypedDict

from zvault.api.backups import Side
from zvault.api.restore import DifferenceDocument
from zvault.api.runs import RunResult
from zvault.api.vaults import DamageDocument
from zvault.core.errors import ErrorDocument
from zvault.core.integrity.restore_time import ReadingKind


class EventHead(TypedDict):
    """The fields that every event has."""

    run: str
    backup: str
    time: float


class RunStartedFields(TypedDict):
    """A run begins."""

    trigger: str


class RunStarted(EventHead, RunStartedFields):
    """See RunStartedFields."""

    event: Literal["run-started"]


class TextFields(TypedDict):
    """Something to tell; ``hook`` names the moment of the hook that it is about."""

    text: str
    hook: NotRequired[str]


class MessageEvent(EventHead, TextFields):
    """See TextFields."""

    event: Literal["message"]


class WarningFields(TextFields):
    """A warning. Of writes that drift: the ``vault``, and what they drift in; of prune_limit: side and datasets."""

    vault: NotRequired[str]
    drift: NotRequired[str]
    side: NotRequired[Side]
    over_limit: NotRequired[int]


class WarningEvent(EventHead, WarningFields):
    """See WarningFields."""

    event: Literal["warning"]


class HookOutputFields(TypedDict):
    """A line that a hook's program printed."""

    hook: str
    program: str
    text: str


class HookOutput(EventHead, HookOutputFields):
    """See HookOutputFields."""

    event: Literal["hook-output"]


class VaultUpFields(TypedDict):
    """The vault is up."""

    vault: str
    message: str


class VaultUp(EventHead, VaultUpFields):
    """See VaultUpFields."""

    event: Literal["vault-up"]


class InhibitorFields(TypedDict):
    """The host is kept from sleeping for the run, or why it is not."""

    held: bool
    message: str


class InhibitorEvent(EventHead, InhibitorFields):
    """See InhibitorFields."""

    event: Literal["inhibitor"]


class SnapshotFields(TypedDict):
    """A snapshot of so many datasets was made."""

    snapname: str
    datasets: int


class SnapshotMade(EventHead, SnapshotFields):
    """See SnapshotFields."""

    event: Literal["snapshot"]


class PlannedTransfer(TypedDict):
    """The plan for one dataset."""

    dataset: str
    action: str
    bytes: int
    reason: str


class PlanFields(TypedDict):
    """The plan of the run."""

    datasets: list[PlannedTransfer]
    bytes_total: int


class PlannedEvent(EventHead, PlanFields):
    """See PlanFields."""

    event: Literal["plan"]


TransferStartedFields = TypedDict(
    "TransferStartedFields",
    {"dataset": str, "kind": str, "from": str | None, "to": str, "bytes": int | None, "reason": str},
)
"""A stream begins."""


class TransferStarted(EventHead, TransferStartedFields):
    """See TransferStartedFields."""

    event: Literal["transfer-started"]


class ProgressFields(TypedDict):
    """The progress of a stream. ``buffer``: the least and the most that mbuffer's memory was filled of late, in
    percent.

    ``run_bytes``, ``run_total`` and ``run_rate`` are of all streams of the run.
    """

    dataset: str
    bytes: int
    total: int | None
    rate: float
    buffer: tuple[int, int] | None
    run_bytes: int
    run_total: int | None
    run_rate: NotRequired[float]


class ProgressMade(EventHead, ProgressFields):
    """See ProgressFields."""

    event: Literal["progress"]


class TransferFinishedFields(TypedDict):
    """A stream is whole."""

    dataset: str
    bytes: int
    seconds: float
    run_bytes: int
    run_total: int


class TransferFinished(EventHead, TransferFinishedFields):
    """See TransferFinishedFields."""

    event: Literal["transfer-finished"]


class ResumeAbortedFields(TypedDict):
    """An interrupted receive was given up."""

    dataset: str
    reason: str


class ResumeAborted(EventHead, ResumeAbortedFields):
    """See ResumeAbortedFields."""

    event: Literal["resume-aborted"]


class DatasetFailedFields(TypedDict):
    """A dataset failed; ``again``: this run will try it again."""

    dataset: str
    error: ErrorDocument
    again: bool


class DatasetFailed(EventHead, DatasetFailedFields):
    """See DatasetFailedFields."""

    event: Literal["dataset-failed"]


class RetryFields(TypedDict):
    """The run waits ``wait`` seconds and tries again: the ``number``-th time of ``retries``."""

    wait: float
    number: int
    retries: int
    error: ErrorDocument


class RetryEvent(EventHead, RetryFields):
    """See RetryFields."""

    event: Literal["retry"]


class PrunedFields(TypedDict):
    """Snapshots were destroyed."""

    side: Side
    count: int
    snapshots: list[str]


class PrunedEvent(EventHead, PrunedFields):
    """See PrunedFields."""

    event: Literal["pruned"]


HealResult = Literal["healed", "partial", "failed"]


class UnhealedDocument(DamageDocument):
    """Damage that stays, and whether it is lost for good."""

    why: str
    lost: bool


class HealedFields(TypedDict):
    """A healing ended: of so many files ``found``, so many are ``healed``."""

    vault: str
    result: HealResult
    found: int
    healed: int
    left: list[UnhealedDocument]


class HealedEvent(EventHead, HealedFields):
    """See HealedFields."""

    event: Literal["healed"]


class RestoredFields(TypedDict):
    """A dataset, or ``files`` files, were restored. Where it is not mounted ``why`` says so, and what to do."""

    dataset: str
    mountpoint: str | None
    why: str
    snapshot: str
    files: NotRequired[int]


class RestoredEvent(EventHead, RestoredFields):
    """See RestoredFields."""

    event: Literal["restored"]


class DiffersFields(TypedDict):
    """Restored data is not as in the snapshot: some of the differences."""

    differences: list[DifferenceDocument]


class DiffersEvent(EventHead, DiffersFields):
    """See DiffersFields."""

    event: Literal["differs"]


class ComparedFields(TypedDict):
    """Restored data has been compared with its snapshot; so many ``differences`` were found.

    ``unread`` says by dataset why its contents were not compared; ``commands`` put right what differs.
    """

    result: Literal["same", "differs"]
    datasets: int
    files: int
    bytes: int
    differences: int
    unread: dict[str, str]
    commands: list[str]


class ComparedEvent(EventHead, ComparedFields):
    """See ComparedFields."""

    event: Literal["compared"]


class VerifiedFields(TypedDict):
    """A verification ended; ``unproven`` says by dataset why it could not be compared."""

    level: str
    result: Literal["ok", "differs", "nothing"]
    datasets: int
    files: int
    bytes: int
    unproven: dict[str, str]


class VerifiedEvent(EventHead, VerifiedFields):
    """See VerifiedFields."""

    event: Literal["verified"]


class VaultReadFields(TypedDict):
    """So many bytes were really read from the devices of a vault, by a restore, a drill, a verification or a scrub."""

    vault: str
    kind: ReadingKind
    bytes: int
    seconds: float


class VaultRead(EventHead, VaultReadFields):
    """See VaultReadFields."""

    event: Literal["vault-read"]


class VaultHoldsFields(TypedDict):
    """So many bytes of a backup are to be restored from a vault, if the newest state of all its datasets is."""

    vault: str
    datasets: int
    bytes: int


class VaultHolds(EventHead, VaultHoldsFields):
    """See VaultHoldsFields."""

    event: Literal["vault-holds"]


class RunFinishedFields(TypedDict):
    """A run ended."""

    trigger: str
    result: RunResult
    bytes: int
    datasets: int
    sent: int
    pruned: int
    seconds: float
    error: ErrorDocument | None


class RunFinished(EventHead, RunFinishedFields):
    """See RunFinishedFields."""

    event: Literal["run-finished"]


RunEvent = (
    RunStarted
    | MessageEvent
    | WarningEvent
    | HookOutput
    | VaultUp
    | InhibitorEvent
    | SnapshotMade
    | PlannedEvent
    | TransferStarted
    | ProgressMade
    | TransferFinished
    | ResumeAborted
    | DatasetFailed
    | RetryEvent
    | PrunedEvent
    | HealedEvent
    | RestoredEvent
    | DiffersEvent
    | ComparedEvent
    | VerifiedEvent
    | VaultRead
    | VaultHolds
    | RunFinished
)
