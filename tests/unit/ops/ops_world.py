"""A source, its holds and bookmarks, and a vault, as values; and a libzfs_core that works on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import Busy
from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, make_snapname
from zvault.ops.context import Context
from zvault.ops.replication.listing import BothListings
from zvault.ops.state.environment import Environment, WallClock
from zvault.system.process.runner import HostRunner
from zvault.zfs.changes import NamesGone

HOUR = 3600
START = 1_795_000_000
TANK = DatasetName("tank")


class StoppedClock(WallClock):
    def __init__(self, now: float) -> None:
        self.at = now

    def time(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at - START

    def boottime(self) -> float:
        return self.monotonic()


def context(
    now: float = START,
    *,
    folder: Path = Path("/dev/null/nowhere"),
    vault: Mapping[str, Any] | None = None,
    **backup: Any,
) -> Context:
    """A context with one backup, ``b``, of ``tank`` into the vault ``cold``, or of snapshots only; all its files are in
    ``folder``.

    Without one, nothing can be written, by root either.
    """
    where = {} if backup.get("snapshots_only") else {"vault": "cold"}
    config = Config.model_validate(
        {
            "daemon": {"timezone": "UTC"},
            "vault": {"cold": vault or {"pool": "cold"}},
            "backup": {"b": {"source": "tank", **where, **backup}},
        }
    )
    return Context.of(
        Environment(config, Paths(folder, folder, folder, folder), HostRunner(), "host", StoppedClock(now))
    )


def with_source(where: Context, source: Any) -> Context:
    """The same, where ``source`` is asked for what this host's datasets are."""
    where.clients._sources[None] = source
    return where


def with_vault(where: Context, vault: Any) -> Context:
    """The same, where ``vault`` is asked for what the vault ``cold`` has."""
    where.clients._vaults["cold", None, ""] = vault
    return where


def snapname(number: int) -> str:
    """The snapname of the snapshot that zvault made in hour ``number``."""
    from datetime import UTC, datetime

    return make_snapname("zvault", datetime.fromtimestamp(START + number * HOUR, UTC))


def snap(number: int, dataset: str = "tank", *, name: str | None = None) -> Snapshot:
    """The snapshot of hour ``number``; its GUID is 100 more, on either side."""
    return Snapshot(
        DatasetName(dataset), name or snapname(number), 100 + number, number, START + number * HOUR
    )


def dataset(name: str, *points: Snapshot | Bookmark, **fields: Any) -> Dataset:
    return Dataset(
        DatasetName(name),
        1,
        fields.pop("type", "filesystem"),
        snapshots=tuple(point for point in points if isinstance(point, Snapshot)),
        bookmarks=tuple(point for point in points if isinstance(point, Bookmark)),
        **fields,
    )


def vaulted(name: str, *numbers: int, **fields: Any) -> Dataset:
    return dataset(name, *(snap(number, name) for number in numbers), **fields)


def names(snapshots: Iterable[Snapshot]) -> list[str]:
    return [snap.snapname for snap in snapshots]


def tree(*datasets: Dataset) -> Tree:
    return Tree({dataset.name: dataset for dataset in datasets})


def sides(source: Dataset, vault: Dataset | None) -> BothListings:
    there = tree(vault) if vault is not None else Tree()
    return BothListings(tree(source), there, ((source, DatasetName(f"cold/host/{source.name}")),))


class Crash(BaseException):
    """The host loses power."""


@dataclass
class Host:
    """One source dataset with its holds and bookmarks, and what a vault has of it.

    Counts what changes a pool; with ``crash_at`` n, the power fails instead of the n-th change.
    """

    crash_at: int | None = None
    changes: int = 0
    log: list[str] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    holds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    marks: dict[str, Snapshot] = field(default_factory=dict)
    vault: list[Snapshot] | None = None
    name: str = "tank"
    gone: bool = False
    renamed: str = ""

    async def no_holds(self, _: Sequence[str]) -> dict[str, set[str]]:
        """Of the vault's snapshots none is held."""
        return {}

    def change(self, what: str) -> None:
        self.changes += 1
        if self.crash_at is not None and self.changes >= self.crash_at:
            raise Crash
        self.log.append(what)

    def named(self, name: str) -> Snapshot:
        return next(snap for snap in self.snapshots if snap.name == name)

    @property
    def names(self) -> set[str]:
        return {snap.name for snap in self.snapshots}

    def _lament(self, names: Iterable[str]) -> None:
        if gone := set(names) - self.names:
            raise NamesGone("cannot do it", "gone", gone)

    # As Lzc does it.

    async def hold(self, names: Sequence[str], hold: str) -> None:
        self.change(f"hold {' '.join(name.split('@')[1] for name in names)}")
        for name in names:
            if name in self.names:
                self.holds[name].add(hold)
        self._lament(names)

    async def release(self, names: Sequence[str], hold: str) -> None:
        self.change(f"release {' '.join(name.split('@')[1] for name in names)}")
        for name in names:
            self.holds[name].discard(hold)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        there = {mark: name for mark, name in marks.items() if name in self.marks or name in self.names}
        marked = {mark: self.marks.get(name) or self.named(name) for mark, name in there.items()}
        self.change(f"bookmark {' '.join(one.snapname for one in marked.values())}")
        for mark, one in marked.items():
            self.marks.setdefault(mark, one)
        self._lament(name for mark, name in marks.items() if mark not in there)

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self.change(f"destroy {len(names)} bookmarks")
        for name in names:
            self.marks.pop(name, None)

    async def destroy(self, names: Sequence[str]) -> None:
        """Destroy, as an administrator or another tool might at any moment: what is held stays."""
        if any(self.holds[name] for name in names):
            raise Busy("held")
        self.snapshots = [snap for snap in self.snapshots if snap.name not in names]

    # What a listing shows.

    def source(self) -> Dataset:
        marks = [
            Bookmark(DatasetName(self.name), name.split("#")[1], s.guid, s.createtxg, s.creation)
            for name, s in self.marks.items()
        ]
        return dataset(self.name, *self.snapshots, *marks)

    def target(self) -> Dataset | None:
        if self.vault is None:
            return None
        name = f"cold/host/{self.name}"
        return dataset(
            name,
            *(Snapshot(DatasetName(name), s.snapname, s.guid, s.createtxg, s.creation) for s in self.vault),
        )

    def sides(self) -> BothListings:
        return sides(self.source(), self.target())

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        """What one is told who asks, as Zfs does it: of those asked for, and of no others."""
        return {snap.name: set(self.holds[snap.name]) for _, snaps in asked for snap in snaps}
