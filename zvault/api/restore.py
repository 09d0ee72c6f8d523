"""Restores: what is asked for, and what would be done; and the versions of files to be found in a vault."""

from typing import Literal, NotRequired, TypedDict, final

from zvault.core.integrity.restore_time import ReadingKind


class RestoreBody(TypedDict, total=False):
    """A request to restore. ``dataset`` is the source's name or the vault's.

    ``snapshot`` is what stands after ``@``, None for the newest, or for that of ``at``. Where ``to`` begins with ``/``
    ``files`` are copied into that folder, or all; ``overwrite`` lets them replace what is there.
    Unless ``compare`` is False what was restored is read again and compared with the snapshot. ``vault_at``: out of the
    vault as it was then, as `/past/open` opens it.
    """

    backup: str
    dataset: str
    snapshot: str | None
    to: str
    at: float | None
    recursive: bool
    replace: bool
    files: list[str] | None
    overwrite: bool
    compare: bool
    vault_at: float | None


class RestoreTimeDocument(TypedDict):
    """How long it takes to restore ``bytes`` out of a vault, at the ``rate`` (bytes a second) at which it was read.

    ``measured`` says when, ``measured_by`` what read it, ``measured_bytes`` how much that was; ``told`` is all of it in
    words. None where unknown.
    """

    seconds: float | None
    bytes: int | None
    rate: float | None
    measured: float | None
    measured_by: ReadingKind | None
    measured_bytes: int | None
    told: str


class RestoredDataset(TypedDict):
    """The plan of a restore for one dataset."""

    dataset: str
    snapshot: str
    creation: int
    to: str
    action: Literal["restore", "resume", "done"]
    bytes: int
    encrypted: bool


@final
class RestorePlanDocument(TypedDict):
    """The plan of a restore of datasets; ``lost`` says in words what would have to make room, ``time`` how
    long it takes.
    """

    to: str
    datasets: list[RestoredDataset]
    skipped: list[str]
    bytes: int
    available: int | None
    lost: list[str]
    time: NotRequired[RestoreTimeDocument]


@final
class FilesPlanDocument(TypedDict):
    """What a restore of files would copy. ``same`` of the files, ``same_bytes`` in all, are there already, as in the
    snapshot; ``there`` are those that are there and are not. ``time``: how long it takes to copy the others.
    """

    to: str
    snapshot: str
    files: int
    bytes: int
    same: int
    there: list[str]
    overwrite: bool
    same_bytes: int
    time: NotRequired[RestoreTimeDocument]


class DifferenceDocument(TypedDict):
    """A difference from the snapshot: of a file by its ``path``, of the dataset's own properties with an empty one.

    ``dataset`` is the folder where files were restored. ``wanted`` is how it was, ``found`` how it is.
    """

    dataset: str
    path: str
    what: str
    wanted: str
    found: str


class FindBody(TypedDict, total=False):
    """A request to find files that match ``pattern``, in ``dataset`` or all, in the newest snapshot up to ``at`` or
    all.
    """

    backup: str
    pattern: str
    dataset: str | None
    at: float | None


VersionDocument = TypedDict(
    "VersionDocument",
    {
        "backup": str,
        "dataset": str,
        "path": str,
        "kind": str,
        "size": int | None,
        "mtime": float | None,
        "snapshots": int,
        "first": str,
        "last": str,
        "from": int,
        "until": int,
    },
)
"""A version of a file: in how many ``snapshots``, the ``first`` and the ``last`` of them, and their times.

``kind`` is find's letter (``%y``).
"""


class FoundDocument(TypedDict):
    """The versions that were found; ``unread`` says by dataset why it was not looked into."""

    versions: list[VersionDocument]
    unread: dict[str, str]


class MountBody(TypedDict, total=False):
    """A request to mount a snapshot: ``dataset`` is the source's name or the vault's, None for the backup's own
    dataset.

    ``folder`` is an absolute path; ``at`` picks the newest snapshot up to then; ``seconds`` is how long it stays;
    ``vault_at`` as of a restore.
    """

    backup: str
    dataset: str | None
    folder: str
    at: float | None
    seconds: float | None
    vault_at: float | None


@final
class MountedAnswer(TypedDict):
    """A snapshot that was mounted, and why it is not any more."""

    folder: str
    dataset: str
    snapshot: str
    ended: str
