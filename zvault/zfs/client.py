"""One host's ZFS: listings, estimates, and the few changes that only the command line can make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from zvault.core.errors import NotFound, ToolFailed, VaultFull
from zvault.core.model import Tree
from zvault.core.replication import Action, Interrupted, Step
from zvault.system.process import Result, Runner
from zvault.zfs import parse
from zvault.zfs.listing import FEW, Cache
from zvault.zfs.lzc import Lzc
from zvault.zfs.stream import Flags

LIST_DEADLINE = 300.0
"""Seconds: a listing of 65,000 snapshots takes minutes on a cold pool (zrepl issues 354 and 480)."""

NAMES_IN_ARGV = 1000
"""Snapshots named in one command: the longest names still fit the kernel's limit of 2 MiB."""

PLACEHOLDER = "org.zvault:placeholder"
"""User property of a filesystem that zvault made only to hold others."""


class Zfs:
    """ZFS on one host. ``lzc`` makes what is atomic or batched, the ``zfs`` command the rest."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.lzc = Lzc()
        self._cache = Cache()

    async def close(self) -> None:
        """End the helper process."""
        await self.lzc.close()

    async def tree(self, root: str) -> Tree:
        """List a dataset and all below it with snapshots and bookmarks. Raises NotFound.

        Snapshots of datasets that did not change since the last listing are not listed again.
        """
        began = self._cache.now()
        datasets = await self._list([root], "-r", "filesystem,volume", parse.DATASET_COLUMNS)
        stamps = parse.stamps(datasets)
        stale = self._cache.stale(stamps)
        fresh = [name for name in stamps if name not in set(stale)]
        points: list[str] = []
        if stale:
            whole = len(stale) > FEW or not fresh
            where, depth = ([root], "-r") if whole else (stale, "-d1")
            points = await self._list(where, depth, "snapshot,bookmark", parse.POINT_COLUMNS)
            if whole:
                stale, fresh = list(stamps), []
        tree = parse.tree(datasets, [*points, *self._cache.lines(fresh)])
        self._cache.keep(stale, stamps, points, began)
        return tree

    def forget(self, dataset: str) -> None:
        """The bookmarks or holds of a dataset were changed: list it again next time."""
        self._cache.forget(dataset)

    async def tree_or_none(self, root: str) -> Tree:
        """As ``tree``, but empty where the root does not exist."""
        try:
            return await self.tree(root)
        except NotFound:
            return Tree()

    async def _list(self, names: Sequence[str], depth: str, types: str, columns: Sequence[str]) -> list[str]:
        result = await self.runner.run(
            ["zfs", "list", "-Hp", depth, "-t", types, "-o", ",".join(columns), *names],
            deadline=LIST_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise _list_failure(names[0], result)
        return result.stdout.splitlines()

    async def holds(self, snapshots: Sequence[str]) -> dict[str, set[str]]:
        """The hold tags of each snapshot named that has any."""
        held: dict[str, set[str]] = defaultdict(set)
        for start in range(0, len(snapshots), NAMES_IN_ARGV):
            names = snapshots[start : start + NAMES_IN_ARGV]
            result = await self.runner.run(
                ["zfs", "holds", "-H", *names], deadline=LIST_DEADLINE, check=False
            )
            for line in result.stdout.splitlines():
                name, tag, *_ = line.split("\t")
                held[name].add(tag)
        return dict(held)

    async def clones(self, snapshots: Sequence[str]) -> dict[str, list[str]]:
        """The clones of each snapshot named that has any. A receive that waits to be resumed is one too."""
        found: dict[str, list[str]] = {}
        for start in range(0, len(snapshots), NAMES_IN_ARGV):
            names = snapshots[start : start + NAMES_IN_ARGV]
            result = await self.runner.run(
                ["zfs", "list", "-Hp", "-t", "snapshot", "-o", "name,clones", *names],
                deadline=LIST_DEADLINE,
                check=False,
            )
            for line in result.stdout.splitlines():
                name, _, clones = line.partition("\t")
                if clones not in {"", "-"}:
                    found[name] = clones.split(",")
        return found

    async def interrupted(self, token: str) -> Interrupted:
        """What a resume token means, and whether this host can still serve it.

        The token is asked of ``zfs send -nvP -t``: it checks the snapshot, its GUID and the flags.
        """
        result = await self.runner.run(
            ["zfs", "send", "-nvP", "-t", token], deadline=LIST_DEADLINE, check=False
        )
        said = result.stdout + result.stderr
        to_guid = int(parse.token_contents(said).get("toguid", "0"), 0)
        problem = "" if result.returncode == 0 else result.complaint().removeprefix("cannot resume send: ")
        return Interrupted(token, to_guid, problem)

    async def estimate(self, step: Step, flags: Flags) -> int | None:
        """The size of a step's stream in bytes, None where it cannot be told."""
        if step.kind is Action.RESUME and step.token is not None:
            result = await self.runner.run(
                ["zfs", "send", "-nvP", "-t", step.token], deadline=LIST_DEADLINE, check=False
            )
            return parse.stream_size(result.stdout + result.stderr)
        try:
            return await self.lzc.send_space(step.to.name, step.base.name if step.base else None, flags.lzc())
        except ToolFailed:
            return None

    async def make_parents(self, dataset: str) -> None:
        """Make the filesystems above ``dataset`` that are not there, never mounted, marked as placeholders.

        Raises VaultFull, or ToolFailed.
        """
        parts = dataset.split("/")[:-1]
        for depth in range(2, len(parts) + 1):
            name = "/".join(parts[:depth])
            if not await self.exists(name):
                result = await self.runner.run(
                    ["zfs", "create", "-u", "-o", "canmount=off", "-o", f"{PLACEHOLDER}=on", name],
                    deadline=LIST_DEADLINE,
                    check=False,
                )
                if result.returncode != 0:
                    kind = VaultFull if "out of space" in result.stderr else ToolFailed
                    advice = "make room on the vault: prune more, or grow its device"
                    raise kind(
                        f"cannot make '{name}'", result.complaint(), advice if kind is VaultFull else ""
                    )

    async def exists(self, dataset: str) -> bool:
        """Whether a dataset or snapshot exists."""
        result = await self.runner.run(
            ["zfs", "list", "-H", "-o", "name", dataset], deadline=LIST_DEADLINE, check=False
        )
        return result.returncode == 0

    async def abort_receive(self, dataset: str) -> None:
        """Give up an interrupted receive's partial state (``zfs receive -A``)."""
        await self.runner.run(["zfs", "receive", "-A", dataset], deadline=LIST_DEADLINE)

    async def get(self, dataset: str, *properties: str) -> dict[str, str]:
        """Exact values of some properties of one dataset. Raises NotFound."""
        result = await self.runner.run(
            ["zfs", "get", "-Hp", "-o", "property,value", ",".join(properties), dataset],
            deadline=LIST_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise _list_failure(dataset, result)
        return dict(line.split("\t", 1) for line in result.stdout.splitlines())

    async def mount(self, dataset: str) -> None:
        """Mount one filesystem."""
        await self.runner.run(["zfs", "mount", dataset], deadline=LIST_DEADLINE)


def _list_failure(name: str, result: Result) -> Exception:
    complaint = result.complaint()
    if "does not exist" in complaint or "no such pool" in complaint:
        pool = name.split("/", maxsplit=1)[0].split("@", maxsplit=1)[0]
        return NotFound(
            f"there is no dataset '{name}'",
            complaint,
            f"'zfs list -r {pool}' shows what there is; 'zpool import' shows pools that are not imported",
        )
    if "invalid dataset name" in complaint:
        return NotFound(f"'{name}' is no dataset name", complaint)
    return ToolFailed(f"cannot list '{name}'", complaint)
