"""What is backed up, what a run would do, what pruning would destroy, and what zvault holds on the sources."""

from typing import Literal, NotRequired, TypedDict

Side = Literal["source", "vault"]


class DatasetDocument(TypedDict):
    """A dataset of a backup. What only the vault knows is None while it is down."""

    backup: str
    dataset: str
    type: str
    vault_dataset: str
    used: int
    snapshots_source: int
    snapshots_vault: int | None
    base: str | None
    lag_seconds: float | None
    pending: int | None
    resumable: bool


class SnapshotDocument(TypedDict):
    """A snapshot of a dataset, on either side; its GUID as text, because JSON's numbers do not hold it."""

    backup: str
    dataset: str
    snapname: str
    guid: str
    creation: int
    on_source: bool
    on_vault: bool | None
    base: bool


class GoneDocument(TypedDict):
    """A dataset on a vault that is no longer on the source, or that was set aside."""

    backup: str
    vault_dataset: str
    state: Literal["gone", "set aside"]
    used: int
    snapshots_vault: int
    newest: int | None


class UnlistedDocument(TypedDict):
    """A dataset of a backup that cannot be listed, or all of its source, and why."""

    backup: str
    dataset: str
    why: str


class ListAnswer(TypedDict):
    """Datasets and what the vaults have besides; ``snapshots`` where they were asked for.

    ``gone_unknown`` names the backups of which it is not known what their vault has besides: it is down, or something
    of them is ``unlisted``: that is there where anything is.
    ``next`` is there where a ``limit`` was given: the ``after`` of the next page, None where there is none.
    """

    datasets: list[DatasetDocument]
    gone: list[GoneDocument]
    gone_unknown: list[str]
    snapshots: NotRequired[list[SnapshotDocument]]
    unlisted: NotRequired[list[UnlistedDocument]]
    next: NotRequired[str | None]


StepDocument = TypedDict(
    "StepDocument", {"kind": str, "from": str | None, "to": str, "bytes": int | None, "reason": str}
)
"""One stream of a planned transfer; ``from`` is None for a full stream, ``bytes`` where the size is not known."""


class PlannedDocument(TypedDict):
    """The plan of a run for one dataset: ``changes`` on the vault, in words, and then ``steps``. Without a vault,
    ``vault_dataset`` is empty and ``action`` "nothing". ``encryption``: how it lies on the vault, or will, in words;
    empty where that is not known.
    """

    dataset: str
    vault_dataset: str
    action: str
    written: int
    steps: list[StepDocument]
    changes: list[str]
    reason: str
    next: str
    encryption: str


class VerdictDocument(TypedDict):
    """The decision to prune a snapshot or not, and the reason."""

    side: Side
    snapshot: str
    keep: bool
    reason: str
    bytes: int | None


class ExcessDocument(TypedDict):
    """A dataset of which prune_limit holds something back: ``selected`` of so many, where ``allowed`` may go."""

    side: Side
    dataset: str
    selected: int
    snapshots: int
    allowed: int


class PruneDocument(TypedDict):
    """The outcome that pruning would have; ``freed`` are exact bytes by side, None where that is not known.

    ``vault`` is None where the backup makes snapshots only.
    """

    backup: str
    vault: str | None
    prune: list[VerdictDocument]
    freed: dict[str, int | None]
    over_limit: list[ExcessDocument]


class TransfersDocument(PruneDocument):
    """The datasets that would be sent and pruned; ``excluded`` are the names of datasets left out."""

    datasets: list[PlannedDocument]
    excluded: list[str]
    gone: list[GoneDocument]


class RefusedSnapshotDocument(TypedDict):
    """A dataset of which ZFS makes no snapshot as it is now: why, and what a person can do."""

    dataset: str
    why: str
    next: str


class PlanDocument(TransfersDocument):
    """The work that is left to send and prune as things are; ``makes_snapshot``: a run makes one first, but of those
    that are ``not_snapshotted``, as far as that is known before.
    """

    makes_snapshot: bool
    not_snapshotted: list[RefusedSnapshotDocument]


class ForecastDocument(TransfersDocument):
    """The work of a run that began now, its ``snapshot`` included (None where it would make none).

    ``not_snapshotted`` are as in a plan. Without ``vault_seen`` the vault is down: what is sent and pruned is not known
    then, and each action is "unknown".
    ``refused`` says why no run could start now. Of ``not_foreseen`` datasets it is not known what is pruned.
    """

    snapshot: str | None
    snapshotted: list[str]
    not_snapshotted: list[RefusedSnapshotDocument]
    vault_seen: bool
    refused: str | None
    not_foreseen: list[str]


class SteeringDocument(TypedDict):
    """A property that steers another tool: the datasets that have it on the source, those of the replica where a stream
    brought it (``received``) or somebody set it (``local``), and those above the replica that pass it on.
    """

    property: str
    tool: str
    source: list[str]
    received: list[str]
    local: list[str]
    above: list[str]


class AdoptDocument(TypedDict):
    """The way a backup goes on from a replica that another tool made: ``toml`` are the lines of its tables.

    ``first`` are commands that take back ``written`` bytes, which came to the replica after its newest snapshots.
    ``elsewhere`` are datasets whose replica the first run renames, ``missing`` those that have none, ``strangers`` what
    of the replica follows nothing; ``datasets`` is what that run would do, which
    begins with ``snapshot``. ``steering`` is what both sides have for other tools to go by. ``unlisted`` says what of
    either side cannot be listed, and ``unknown`` are the datasets whose counterpart may be there.
    """

    source: str
    replica: str
    toml: list[str]
    first: list[str]
    written: int
    elsewhere: list[str]
    missing: list[str]
    strangers: list[str]
    unlisted: list[str]
    unknown: list[str]
    steering: list[SteeringDocument]
    snapshot: str | None
    datasets: list[PlannedDocument]


class HoldDocument(TypedDict):
    """A hold or bookmark of zvault's on a source; GUIDs as text, that of the vault's pool in hexadecimal digits."""

    kind: Literal["hold", "bookmark"]
    host: str | None
    dataset: str
    name: str
    guid: str
    creation: int
    vault_guid: str
    vault: str | None
    state: Literal["in use", "orphaned", "unknown"]
    reason: str


class HoldsAnswer(TypedDict):
    """zvault's holds and bookmarks; of a reaping, those that were released. ``unknown`` says what could not be looked
    at.
    """

    holds: list[HoldDocument]
    unknown: NotRequired[list[str]]


class ReapBody(TypedDict, total=False):
    """Only what was made for the pool with this GUID, in hexadecimal digits; None for all."""

    vault_guid: str | None
