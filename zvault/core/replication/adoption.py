"""Going on from a replica that another tool made: the backup that would. Found by the GUIDs of both sides' snapshots,
which every tool's replica shares with its source; names prove nothing. Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zvault.core.errors import Refused
from zvault.core.model import Base, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.unlisted_datasets import make_unlisted_error

_DATE = re.compile(r"(?:19|20)\d\d[-_]?(?:0[1-9]|1[0-2])[-_]?(?:0[1-9]|[12]\d|3[01])")
"""Where in a snapname a date begins: most tools write a word of their own before it."""


@dataclass(frozen=True, slots=True)
class ReplicaAdoption:
    """A backup that goes on from a replica.

    ``into`` is where below the replica's pool it is, as the configuration writes it. ``followed`` gives by source
    dataset the one that holds its replica. ``elsewhere`` are those of them that ``into`` would have somewhere else,
    ``missing`` the source's datasets without a replica, ``strangers`` what lies in the replica and follows nothing.
    ``unknown`` are the datasets of either side of which it is not known whether the other side has their counterpart,
    as it has something that cannot be listed; they are neither missing nor strangers.
    ``also`` are patterns of the snapnames that both sides have. ``changed`` gives by its newest snapshot, which the
    source has too, the bytes that were written to a replica since: to mount a dataset is enough for that.
    """

    into: str
    followed: dict[DatasetName, DatasetName]
    elsewhere: tuple[DatasetName, ...]
    missing: tuple[DatasetName, ...]
    strangers: tuple[DatasetName, ...]
    unknown: tuple[DatasetName, ...]
    also: tuple[str, ...]
    changed: dict[SnapshotName, int]

    @property
    def written(self) -> int:
        """The bytes that were written to the replica since its newest snapshots."""
        return sum(self.changed.values())


@dataclass(frozen=True, slots=True)
class AdoptionHints:
    """What else the tables of an adoption propose.

    ``large`` are the source's datasets whose records are larger than 128K and are not sent raw. ``large_there``:
    whether the replica's pool has any such record already, None if that is not known. ``select`` is the property by
    which the other tool takes its datasets.
    """

    large: tuple[str, ...] = ()
    large_there: bool | None = None
    select: str = ""


NO_HINTS = AdoptionHints()


def find_adoption(source: DatasetName, here: Tree, replica: DatasetName, there: Tree) -> ReplicaAdoption:
    """Find the backup by which ``replica`` with all below it goes on following ``source`` with all below it.

    Raises Refused where they have nothing in common, or where the replica of the source is a pool's root dataset;
    ToolFailed where what they have in common may be in what cannot be listed.
    """
    followed = _followed(here, there)
    if not followed and (unlisted := {**here.unlisted, **there.unlisted}):
        raise make_unlisted_error(unlisted)
    if not followed:
        raise Refused(
            f"{replica} is no replica of {source}",
            "no snapshot or bookmark of the one has the GUID of a snapshot of the other",
            "where the tool that made it still works, run it once more; else a new backup sends in full",
        )
    root = _root(source, followed)
    if root == root.pool:
        raise Refused(
            f"the replica of {source} is the root dataset of pool {root}",
            "a backup goes below a pool's root dataset, beside what else the pool holds",
            f"adopt what lies below it, each by itself, as in 'zvaultctl adopt {source}/NAME {root}/NAME'",
        )
    holds = set(followed.values())
    missing = tuple(one.name for one in here if one.name not in followed)
    strangers = tuple(
        one.name
        for one in there
        if one.name not in holds and not any(held.is_below(one.name) for held in holds)
    )
    return ReplicaAdoption(
        _into(source, root),
        followed,
        tuple(name for name, held in followed.items() if held != name.moved(source, root)),
        () if there.unlisted else missing,
        () if here.unlisted else strangers,
        (*(missing if there.unlisted else ()), *(strangers if here.unlisted else ())),
        _patterns(here, there, followed),
        dict(_changed(here, there, followed)),
    )


def _followed(here: Tree, there: Tree) -> dict[DatasetName, DatasetName]:
    """By source dataset, what has its newest common point; of two that have it, the one with fewer snapshots after."""
    holders: dict[int, list[tuple[int, DatasetName]]] = {}
    for one in there:
        for age, snap in enumerate(reversed(one.snapshots)):
            holders.setdefault(snap.guid, []).append((age, one.name))
    found: dict[DatasetName, DatasetName] = {}
    for one in here:
        points: list[Base] = [*one.snapshots, *one.bookmarks]
        points.sort(key=lambda point: point.createtxg, reverse=True)
        held = next((holders[point.guid] for point in points if point.guid in holders), None)
        if held is not None:
            found[one.name] = min(held)[1]
    return found


def _changed(
    here: Tree, there: Tree, followed: dict[DatasetName, DatasetName]
) -> Iterator[tuple[SnapshotName, int]]:
    """Where nothing but a rollback to the newest snapshot is in the way. What is newer on the vault is for the plan."""
    for name, held in followed.items():
        one, other = here.datasets[name], there.datasets[held]
        points: list[Base] = [*one.snapshots, *one.bookmarks]
        newest = other.newest()
        if newest is not None and other.written and newest.guid in {point.guid for point in points}:
            yield newest.name, other.written


def list_adoption_commands(replica: DatasetName, found: ReplicaAdoption) -> Iterator[str]:
    """The commands that make a replica what it was when the other tool had ended."""
    if found.changed:
        yield f"zfs unmount {shlex.quote(replica)}"
    for snapshot in found.changed:
        yield f"zfs rollback {shlex.quote(snapshot)}"


def _root(source: DatasetName, followed: dict[DatasetName, DatasetName]) -> DatasetName:
    """Where most of them say that the replica of the source itself is."""
    votes: Counter[DatasetName] = Counter()
    for name, held in followed.items():
        path = name.relative_to(source)
        if not path:
            votes[held] += 1
        elif held.endswith(f"/{path}"):
            votes[DatasetName(held.removesuffix(f"/{path}"))] += 1
    if not votes:
        name, held = next(iter(followed.items()))
        raise Refused(
            f"the replica of {source} is not a tree like it",
            f"{name} is in {held}, and nothing in it has the name that it has below {source}",
            "adopt its datasets one by one",
        )
    return votes.most_common(1)[0][0]


def _into(source: DatasetName, root: DatasetName) -> str:
    path = root.relative_to(root.pool)
    if path == source or path.endswith(f"/{source}"):
        return path.removesuffix(source) + "{dataset}"
    return path + "/{path}"


def _patterns(here: Tree, there: Tree, followed: dict[DatasetName, DatasetName]) -> tuple[str, ...]:
    """What the names of the snapshots on both sides begin with, or the form of a date if that is a date; a name without
    a date stands for itself.
    """
    found: Counter[str] = Counter()
    for name, held in followed.items():
        one, other = here.get(name), there.get(held)
        if one is None or other is None:
            continue
        guids = {snap.guid for snap in one.snapshots}
        found.update(_pattern(snap.snapname) for snap in other.snapshots if snap.guid in guids)
    return tuple(pattern for pattern, _ in found.most_common())


def _pattern(snapname: str) -> str:
    dated = _DATE.search(snapname)
    if dated is None:
        return snapname
    # znapzend's names are a date and nothing else: all snapshots are matched by "*", whoever made them.
    begin = snapname[: dated.start()] or snapname[:2] + re.sub(r"\d", "?", dated[0][2:])
    return f"{begin}*"


def suggest_name(name: str) -> str:
    """A name that the configuration takes, as near to a dataset's or a pool's as may be."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip("._-")[:64] or "replica"


def write_adoption_tables(
    name: str,
    source: str,
    vault: str,
    place: tuple[str, str | None] | None,
    found: ReplicaAdoption,
    hints: AdoptionHints = NO_HINTS,
) -> Iterable[str]:
    """The lines of the configuration. ``place``: pool and host of a vault that no configuration has yet.

    Names may be another host's: each is written so that it is one string, whatever is in it.
    """
    if place is not None:
        pool, host = place
        yield f"[vault.{_key(vault)}]"
        yield f"pool = {_text(pool)}"
        if host is not None:
            yield f"host = {_text(host)}"
        yield ""
    yield f"[backup.{_key(name)}]"
    yield f"source = {_text(source)}"
    yield f"vault = {_text(vault)}"
    yield f"into = {_text(found.into)}"
    yield from _large_blocks(hints)
    if hints.select:
        yield f"#select = {_text(hints.select)}  # only the datasets that it selects, as the other tool takes them"
    if found.missing:
        names = ", ".join(map(_text, found.missing))
        yield f"#exclude = [{names}]  # of these there is no replica: else they are sent in full"
    if found.also:
        patterns = ", ".join(map(_text, found.also))
        yield f"#also = [{patterns}]  # to send the other tool's snapshots too; zvault never prunes them"
    yield '#schedule = "hourly"  # once no other tool replicates it any more'


def _large_blocks(hints: AdoptionHints) -> Iterator[str]:
    """How large records are sent: that is decided with the first stream, once and for all."""
    if not hints.large:
        return
    more = f" and {len(hints.large) - 1} more" if len(hints.large) > 1 else ""
    setting = "send = { large_blocks = false }"
    yield f"# {_text(hints.large[0])[1:-1]}{more} may have records over 128K. Decide before the first run, it cannot be"
    yield "# changed later: sent as they are (-L), they keep plain syncoid, zrepl and znapzend from ever going on."
    if hints.large_there is False:
        yield f"{setting}  # no dataset of the replica's pool has such records; without this line: as they are"
    else:
        yield f"#{setting}  # if the other tool sent without -L, as these do; ZFS refuses it after streams with -L"


def _text(value: str) -> str:
    """A basic string of TOML: JSON's escapes are among its own, and one more character needs one."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    """A part of a table's name: with a dot in it, it would be two."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
