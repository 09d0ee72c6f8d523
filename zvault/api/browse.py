"""Looking into the past of a path: its versions on both sides, and what differs between two snapshots."""

from typing import Literal, TypedDict, final


class LookBody(TypedDict, total=False):
    """A request to look into a backup at a ``path``; where ``dataset`` is given, a path below that dataset's root.

    Without it the path is absolute, as on the source. ``dataset`` is the source's name or the vault's. ``side`` looks
    on one side only. ``session`` is what a session (``/v1/browse/session``) was called that has the vault up.
    """

    backup: str
    dataset: str | None
    path: str
    side: Literal["source", "vault"] | None
    session: str | None


StretchDocument = TypedDict(
    "StretchDocument",
    {
        "state": Literal["there", "appeared", "changed", "vanished"],
        "kind": str | None,
        "size": int | None,
        "mtime": float | None,
        "link": str | None,
        "from": int,
        "until": int,
        "first": str,
        "last": str,
        "source": int,
        "vault": int,
        "source_snapshot": str | None,
        "vault_snapshot": str | None,
        "restore": str | None,
    },
)
"""A version of a path: how it began, what it is, from the ``first`` snapshot to the ``last``, in how many on each side.

``kind`` is find's letter (``%y``), None while it is not there, as ``size`` (of files and links), ``mtime`` and ``link``
(where a link leads) are then. ``source_snapshot`` and ``vault_snapshot`` are the newest that have it, ``restore`` is
the command that restores it into FOLDER.
"""


class NameDocument(TypedDict):
    """A name in a folder: whether it is in the newest snapshot, and its newest version; in how many it is."""

    name: str
    there: bool
    versions: int
    newest: StretchDocument


class PathPastDocument(TypedDict):
    """The past of a path: its ``versions``, the newest first, and the ``names`` that were ever in it.

    ``dataset`` is the source's name, ``path`` is below its root. ``snapshots`` were looked into. ``more``: there are
    more names than are listed. ``unread`` says what could not be looked into, and why: a side, or a snapshot.
    """

    backup: str
    dataset: str
    vault_dataset: str | None
    path: str
    snapshots: int
    versions: list[StretchDocument]
    names: list[NameDocument]
    more: bool
    unread: dict[str, str]


class DiffBody(TypedDict, total=False):
    """Two snapshots, ``DATASET@SNAPSHOT`` by the source's name or the vault's, and a path below the dataset's root.

    ``session`` as for a look.
    """

    backup: str
    old: str
    new: str
    path: str | None
    session: str | None


class ComparedPointDocument(TypedDict):
    """A snapshot that was compared: where it is, and when it was made."""

    snapshot: str
    side: Literal["source", "vault"]
    creation: int


class ChangeDocument(TypedDict):
    """A path that is not the same: ``kind`` is find's letter; ``to`` is its new path where it was renamed.

    ``what`` differs of it, as far as that was looked at: type, size, time, mode, owner, link, replaced, ctime.
    """

    change: Literal["created", "removed", "modified", "renamed"]
    kind: str
    path: str
    to: str | None
    what: list[str]


class ContentDocument(TypedDict):
    """A file in both snapshots. ``lines`` are those of a unified diff where the state is ``differs``; ``more`` lack.

    ``unknown``: its content was not compared, for the reason in ``why``.
    """

    state: Literal["same", "differs", "binary", "unknown"]
    why: str
    lines: list[str]
    more: int


@final
class DiffDocument(TypedDict):
    """The differences: ``changes`` by path, ``more`` besides these. ``content`` where one file was compared.

    ``by`` is how it was found out; ``why`` says why not by 'zfs diff'.
    """

    backup: str
    dataset: str
    path: str
    old: ComparedPointDocument
    new: ComparedPointDocument
    by: Literal["zfs diff", "walk", "content"]
    why: str
    changes: list[ChangeDocument]
    more: int
    content: ContentDocument | None


class SessionBody(TypedDict, total=False):
    """A session to keep open, as a look does; ``session`` is its name."""

    backup: str
    dataset: str | None
    path: str
    side: Literal["source", "vault"] | None
    session: str


@final
class SessionAnswer(TypedDict):
    """The length of a session: that of which its client went away has no answer."""

    session: str
    ended: str
