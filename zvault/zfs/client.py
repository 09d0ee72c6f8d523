"""One host's ZFS: listings, estimates, and the few changes that only the command line can make."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from zvault.core.errors import NotFound, ToolFailed, VaultFull, understood
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName, parse_name
from zvault.core.replication.dataset_plan import PLACEHOLDER_BYTES
from zvault.core.replication.plan_model import Action, Interrupted, Step
from zvault.core.replication.send_record import fault
from zvault.system.process.runner import Result, Runner
from zvault.zfs import parse
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.changes import Changes
from zvault.zfs.gate.resume_token import BadToken, decode
from zvault.zfs.host import Host, LocalHost, SshHost
from zvault.zfs.known_datasets import KnownDatasets, Listed
from zvault.zfs.listing_cache import FEW, Cache, DatasetPoints
from zvault.zfs.lzc import Lzc
from zvault.zfs.pool.change_reader import Changed
from zvault.zfs.pool.pool import suspended
from zvault.zfs.remote import Remote
from zvault.zfs.stream import Flags

LIST_DEADLINE = 300.0
"""Seconds: a listing of 65,000 snapshots takes minutes on a cold pool (zrepl issues 354 and 480)."""

SUSPENDED = "I/O is currently suspended"
"""What the zfs command says of each dataset of such a pool (libzfs_util.c, zfs_standard_error)."""

LISTINGS = 3
"""How often a tree is listed that is renamed or destroyed in part while that is done."""

NAMES_IN_ARGV = 1000
"""Snapshots named in one command: the longest names still fit the kernel's limit of 2 MiB."""


class Zfs:
    """ZFS on one host. ``lzc`` makes what is atomic or batched, the ``zfs`` command the rest.

    With a ``feed`` of this host's events, what did not change since it was listed is not listed again.
    """

    def __init__(self, runner: Runner, host: SshHost | None = None, feed: ChangeFeed | None = None) -> None:
        self.host: Host = LocalHost(runner) if host is None else host
        self.lzc: Changes = Lzc() if host is None else Remote(host)
        self._cache = Cache()
        self._known = KnownDatasets()
        self._feed = feed
        if feed is not None:
            feed.follow(self)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unknown: set[str] = set()

    async def close(self) -> None:
        """End the helper process, or let the connection go."""
        await self.lzc.close()

    def note(self, changed: Changed) -> None:
        """Take in what the feed tells."""
        self._known.note(changed)
        if changed.missed:
            self._cache.clear()
        for name in changed.datasets:
            self._cache.forget(name)

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        """List a dataset and all below it with snapshots and bookmarks. Raises NotFound.

        What surely did not change since the last listing is not listed again. Who comes while another lists the same
        pool waits, and then lists but what has changed since. Without ``sizes``, ``used`` and ``written`` may be of
        any earlier listing: no event tells of them.
        """
        async with self._turns[DatasetName(root).pool]:
            try:
                await self._collect()
                known = None if sizes else await self._known_tree(root)
                return await self._tree(root) if known is None else known
            except (ValueError, KeyError) as error:
                raise ToolFailed(f"the listing of '{root}' cannot be understood", str(error)) from None

    async def _collect(self) -> None:
        if self._feed is not None:
            await self._feed.collect()

    async def _known_tree(self, root: str) -> Tree | None:
        """The tree as it is known, once what changed was listed again; None where all has to be listed."""
        found = self._known.changed(root)
        stale = found if found is None else found | self._known.unfinished(root)
        for _ in range(LISTINGS):
            if stale is None or len(stale) > FEW:
                return None
            if not stale:
                break
            await self._list_again(sorted(stale))
            # What changed while it was listed may have been seen in part.
            await self._collect()
            stale = self._known.changed(root)
        known = self._known.below(root)
        if stale is None or root not in known.points:
            return None
        return parse.tree(known.lines, known.points, known.own)

    async def _list_again(self, names: Sequence[str]) -> None:
        """List some datasets by name: they changed, came, or went."""
        moment, began, gone = self._known.moment, self._cache.now(), set[str]()
        lines = await self._list(names, "-d0", "filesystem,volume", parse.DATASET_COLUMNS, gone)
        if here := [line.partition("\t")[0] for line in lines]:
            points = await self._points(here, "-d1", gone)
            own = await self._own(here, "-d0", gone)
            lines = [line for line in lines if line.partition("\t")[0] not in gone]
            stamps = parse.stamps(lines)
            self._cache.keep(list(stamps), stamps, points, began)
            self._known.keep_some(names, Listed(moment, lines, points, own))
        else:
            self._known.keep_some(names, Listed(moment, (), {}, {}))

    async def _tree(self, root: str) -> Tree:
        """As ``tree``. Two listings make one: what is renamed or destroyed between them has both made again, for a
        dataset seen without its snapshots would be taken for another. What moves each time is left out.
        """
        for _ in range(LISTINGS):
            moment = self._known.moment
            datasets, points, moved = await self._listed(root)
            if not moved:
                break
            await self._collect()
        if root in moved:
            raise NotFound(f"there is no dataset '{root}'", "it went while it was listed")
        left = [line for line in datasets if line.partition("\t")[0] not in moved]
        own = self._known_own(left)
        listed = Listed(moment, left, points, await self._own([root]) if own is None else own)
        if self._feed is not None and not moved:
            self._known.keep(root, listed)
        return parse.tree(left, points, listed.own)

    def _known_own(self, lines: Sequence[str]) -> dict[str, Mapping[str, str]] | None:
        """zvault's own properties of these datasets, where no event tells of a change of any; else None."""
        known = self._known.unchanged(parse.stamps(lines))
        return {name: one.own for name, one in known.items()} if len(known) == len(lines) else None

    async def _listed(self, root: str) -> tuple[list[str], dict[str, DatasetPoints], set[str]]:
        """The lines of the datasets, what each has, and the names under which datasets came or went meanwhile."""
        began = self._cache.now()
        datasets = await self._list([root], "-r", "filesystem,volume", parse.DATASET_COLUMNS)
        stamps = parse.stamps(datasets)
        known = self._known.unchanged(stamps)
        stale = [name for name in self._cache.stale(stamps) if name not in known]
        fresh = stamps.keys() - set(stale)
        kept = {name: one.points for name, one in known.items()}
        kept |= self._cache.points(fresh - known.keys())
        if not stale:
            return datasets, kept, set()
        moved: set[str] = set()
        whole = len(stale) > FEW or not fresh
        where, depth = ([root], "-r") if whole else (stale, "-d1")
        listed = await self._points(where, depth, None if whole else moved)
        if whole:
            stale, kept = list(stamps), {}
            moved |= listed.keys() - stamps.keys()
            moved |= await self._gone(
                [name for name in stale if name not in listed and stamps[name][1] != "-"]
            )
        # The stamps are by the clock of their host: by that of another nobody can tell what they prove.
        if self.host.address is None:
            self._cache.keep([name for name in stale if name not in moved], stamps, listed, began)
        return datasets, kept | listed, moved

    async def _points(
        self, where: Sequence[str], depth: str, gone: set[str] | None
    ) -> dict[str, DatasetPoints]:
        """The snapshots and bookmarks of datasets, by dataset; what does not exist is added to ``gone``."""
        lines = await self._list(where, depth, "snapshot,bookmark", parse.POINT_COLUMNS, gone)
        made, unknown = parse.dated(lines)
        return parse.points(lines, made | await self._created(unknown))

    async def _gone(self, names: Sequence[str]) -> set[str]:
        """Which of these datasets do not exist any more: one that once had snapshots and has none now is asked."""
        gone: set[str] = set()
        for start in range(0, len(names), NAMES_IN_ARGV):
            some = names[start : start + NAMES_IN_ARGV]
            await self._list(some, "-d0", "filesystem,volume", ("name",), gone)
        return gone

    async def names(self, root: str) -> list[DatasetName]:
        """The names of a dataset and of all below it, without their snapshots. Raises NotFound."""
        lines = await self._list([root], "-r", "filesystem,volume", ("name",))
        return [DatasetName(line) for line in lines]

    async def _own(
        self, where: Sequence[str], depth: str = "-r", gone: set[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """zvault's own properties of datasets and all below them, where they are set on the dataset itself.

        What does not exist (any more) is added to ``gone``. Without that it is an error.
        """
        of = ["-t", "filesystem,volume", "-o", "name,property,value", ",".join(parse.OWN)]
        result = await self.host.run(
            ["zfs", "get", "-Hp", depth, "-s", "local", *of, *where], deadline=LIST_DEADLINE, check=False
        )
        if result.returncode != 0:
            if gone is None or not parse.only_gone(result.stderr):
                raise _list_failure(where[0], result)
            gone |= parse.gone(result.stderr)
        return parse.own_properties(result.stdout.splitlines())

    def forget(self, dataset: str) -> None:
        """The bookmarks or holds of a dataset were changed: list it again next time."""
        self._cache.forget(dataset)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        """As ``tree``, but empty where the root does not exist. Raises NotFound where a dataset went meanwhile."""
        try:
            return await self.tree(root, sizes=sizes)
        except NotFound:
            if await self.exists(root):
                return await self.tree(root, sizes=sizes)
            return Tree()

    async def _list(
        self,
        names: Sequence[str],
        depth: str,
        types: str,
        columns: Sequence[str],
        gone: set[str] | None = None,
    ) -> list[str]:
        """A listing; a column that this host's OpenZFS is too old for is ``-`` in every line.

        What is named and does not exist (any more) is added to ``gone``. Without that it is an error.
        """
        asked = [column for column in columns if column not in self._unknown]
        result = await self.host.run(
            ["zfs", "list", "-Hp", depth, "-t", types, "-o", ",".join(asked), *names],
            deadline=LIST_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            unknown = parse.unknown_property(result.stderr)
            if unknown in asked:
                self._unknown.add(unknown)
                return await self._list(names, depth, types, columns, gone)
            if gone is None or not parse.only_gone(result.stderr):
                raise _list_failure(names[0], result)
            gone |= parse.gone(result.stderr)
        lines = result.stdout.splitlines()
        if (foreign := parse.foreign(lines, names)) is not None:
            raise ToolFailed(
                f"the listing of '{names[0]}' cannot be believed",
                f"it tells of {foreign!r}, which is nothing below it",
                "see what 'zfs list' is on that host",
            )
        try:
            return parse.filled(lines, asked, columns)
        except ValueError as error:
            raise ToolFailed(f"the listing of '{names[0]}' cannot be understood", str(error)) from None

    async def _created(self, points: Sequence[str]) -> dict[str, int]:
        """When snapshots and bookmarks were made, by name; one that is gone by now is left out."""
        made: dict[str, int] = {}
        for start in range(0, len(points), NAMES_IN_ARGV):
            names = points[start : start + NAMES_IN_ARGV]
            result = await self.host.run(
                ["zfs", "list", "-Hp", "-t", "snapshot,bookmark", "-o", "name,creation", *names],
                deadline=LIST_DEADLINE,
                check=False,
            )
            if result.returncode != 0 and not parse.only_gone(result.stderr):
                raise _list_failure(names[0], result)
            for line in result.stdout.splitlines():
                name, _, creation = line.partition("\t")
                made[name] = parse.whole(creation)
        return made

    async def holds(self, snapshots: Sequence[str]) -> dict[str, set[str]]:
        """The hold tags of each snapshot named that has any. Raises ToolFailed where they cannot be told."""
        held: dict[str, set[str]] = defaultdict(set)
        for start in range(0, len(snapshots), NAMES_IN_ARGV):
            names = snapshots[start : start + NAMES_IN_ARGV]
            result = await self.host.run(["zfs", "holds", "-H", *names], deadline=LIST_DEADLINE, check=False)
            _refuse_unknown(result, "the holds of snapshots cannot be told")
            for line in result.stdout.splitlines():
                name, tag, *_ = [*line.split("\t"), ""]
                held[name].add(tag)
        return dict(held)

    async def tagged(self, snapshots: Sequence[str], tag: str) -> set[str]:
        """Which of the snapshots named a tag holds. Raises ToolFailed where that cannot be told.

        On this host that takes no process. On another, `zfs holds` opens each snapshot.
        """
        if isinstance(self.lzc, Lzc):
            return set(await self.lzc.tagged(snapshots, tag)) if snapshots else set()
        return {name for name, tags in (await self.holds(snapshots)).items() if tag in tags}

    async def held_below(self, root: str) -> list[SnapshotName]:
        """Every snapshot below a dataset that anybody holds. Raises NotFound.

        This column makes a listing twice as long, and is still a third of asking every snapshot for its holds.
        """
        lines = await self._list([root], "-r", "snapshot", ("name", "userrefs"))
        with understood(f"the listing of '{root}'"):
            rows = [line.split("\t") for line in lines]
            return [SnapshotName(name) for name, count in rows if parse.number(count)]

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        """The hold tags of some of the snapshots of each of these datasets, as of when they were last listed."""
        found: dict[str, set[str]] = {}
        unknown: list[tuple[Dataset, list[SnapshotName]]] = []
        for dataset, snapshots in asked:
            known = self._cache.holds(dataset.name, dataset.snapshots)
            found |= {snap.name: known[snap.name] for snap in snapshots if snap.name in known}
            if names := [snap.name for snap in snapshots if snap.name not in known]:
                unknown.append((dataset, names))
        told = await self.holds([name for _, names in unknown for name in names])
        for dataset, names in unknown:
            tags: dict[str, set[str]] = {name: told.get(name, set()) for name in names}
            self._cache.keep_holds(dataset.name, dataset.snapshots, tags)
            found |= tags
        return found

    async def clones(self, snapshots: Sequence[str]) -> dict[str, list[DatasetName]]:
        """The clones of each snapshot named that has any. A receive that waits to be resumed is one too.

        Raises ToolFailed where they cannot be told.
        """
        found: dict[str, list[DatasetName]] = {}
        for start in range(0, len(snapshots), NAMES_IN_ARGV):
            names = snapshots[start : start + NAMES_IN_ARGV]
            result = await self.host.run(
                ["zfs", "list", "-Hp", "-t", "snapshot", "-o", "name,clones", *names],
                deadline=LIST_DEADLINE,
                check=False,
            )
            _refuse_unknown(result, "the clones of snapshots cannot be told")
            for line in result.stdout.splitlines():
                name, _, clones = line.partition("\t")
                if clones not in {"", "-"}:
                    found[name] = [DatasetName(clone) for clone in clones.split(",")]
        return found

    async def interrupted(self, token: str) -> Interrupted:
        """What a resume token means, and whether this host can still serve it.

        What it means is decoded from the token itself. ``zfs send -nvP -t`` is asked whether the snapshot is still
        there, and how much is left. Raises ToolFailed when that does not work.
        """
        try:
            told = decode(token)
        except BadToken as error:
            return Interrupted(token, 0, f"its resume token is corrupt: {error}")
        result = await self.host.run(
            ["zfs", "send", "-nvP", "-t", token], deadline=LIST_DEADLINE, check=False
        )
        said = result.stdout + result.stderr
        problem = "" if result.returncode == 0 else result.complaint().removeprefix("cannot resume send: ")
        if problem and fault(problem) == "other":
            if "resume token contents" not in said:
                raise ToolFailed("cannot tell whether an interrupted receive can be resumed", problem)
            problem = ""  # a trouble of the host's: the token may be as good as ever
        return Interrupted(
            token,
            told.to_guid,
            problem,
            done=told.done,
            left=parse.stream_size(said),
            flags=told.flags,
            from_guid=told.from_guid,
            pool=SnapshotName(told.to_name).pool,
        )

    async def estimate(self, step: Step, flags: Flags) -> int | None:
        """The size of a step's stream in bytes, None where it cannot be told."""
        if step.kind is Action.RESUME and step.token is not None:
            result = await self.host.run(
                ["zfs", "send", "-nvP", "-t", step.token], deadline=LIST_DEADLINE, check=False
            )
            return parse.stream_size(result.stdout + result.stderr)
        try:
            return await self.lzc.send_space(step.to.name, step.base.name if step.base else None, flags.lzc())
        except ToolFailed:
            return None

    async def make_parents(self, dataset: str) -> None:
        """Make the filesystems above ``dataset`` that are not there, never mounted, marked as placeholders.

        Raises VaultFull, PoolSuspended, or ToolFailed.
        """
        for above in itertools.islice(DatasetName(dataset).ancestors, 1, None):
            if not await self.exists(above):
                result = await self.host.run(
                    [
                        "zfs",
                        "create",
                        "-u",
                        "-o",
                        "canmount=off",
                        "-o",
                        f"{parse.PLACEHOLDER}={above}",
                        above,
                    ],
                    deadline=LIST_DEADLINE,
                    check=False,
                )
                # Another stream below the same parent may have made it meanwhile.
                if result.returncode != 0 and "already exists" not in result.stderr:
                    if SUSPENDED in result.stderr:
                        raise suspended(above.pool)
                    kind = VaultFull if "out of space" in result.stderr else ToolFailed
                    advice = "make room on the vault: prune more, or grow its device"
                    raise kind(
                        f"cannot make '{above}'", result.complaint(), advice if kind is VaultFull else ""
                    )

    async def filled(self, placeholder: str) -> str:
        """What a placeholder holds itself by now, in words, or nothing. Raises NotFound, ToolFailed."""
        own = (await self._own([placeholder], "-d0")).get(placeholder, {})
        known = await self.get(placeholder, "written", "origin", "type")
        snapshots = await self._list([placeholder], "-d1", "snapshot", ("name",))
        if own.get(parse.PLACEHOLDER) != placeholder or known["type"] != "filesystem":
            return "it is none that zvault made"
        if snapshots or known["origin"] not in {"-", ""}:
            return "it has snapshots" if snapshots else "it is a clone"
        with understood(f"the properties of '{placeholder}'"):
            written = parse.number(known["written"])
        return f"{written} bytes were written to it" if written > PLACEHOLDER_BYTES else ""

    async def exists(self, dataset: str) -> bool:
        """Whether a dataset or snapshot exists. Raises PoolSuspended, ToolFailed where that cannot be known."""
        result = await self.host.run(
            ["zfs", "list", "-H", "-o", "name", dataset], deadline=LIST_DEADLINE, check=False
        )
        if result.returncode == 0:
            return True
        failure = _list_failure(dataset, result)
        if isinstance(failure, NotFound):
            return False
        raise failure

    async def abort_receive(self, dataset: str) -> None:
        """Give up an interrupted receive's partial state (``zfs receive -A``).

        That there is none, though there is a token (OpenZFS #8801, #10439) or was, is no error. Raises ToolFailed.
        """
        result = await self.host.run(["zfs", "receive", "-A", dataset], deadline=LIST_DEADLINE, check=False)
        none = ("any resumable receive state", "dataset does not exist")
        if result.returncode != 0 and not any(words in result.stderr for words in none):
            raise ToolFailed(
                f"cannot give up the interrupted receive of '{dataset}'",
                result.complaint(),
                "if another receive runs, wait for it to end",
            )

    async def get(self, dataset: str, *properties: str) -> dict[str, str]:
        """Exact values of some properties of one dataset. Raises NotFound."""
        result = await self.host.run(
            ["zfs", "get", "-Hp", "-o", "property,value", ",".join(properties), dataset],
            deadline=LIST_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise _list_failure(dataset, result)
        with understood(f"the properties of '{dataset}'"):
            found = dict(line.split("\t", 1) for line in result.stdout.splitlines())
            return {name: found[name] for name in properties}

    async def number(self, dataset: str, name: str) -> int:
        """The exact value of a property that is a number, 0 for ``-``. Raises NotFound, ToolFailed."""
        known = await self.get(dataset, name)
        with understood(f"the property {name} of '{dataset}'"):
            return parse.number(known[name])

    async def mount(self, dataset: str) -> None:
        """Mount one filesystem."""
        await self.host.run(["zfs", "mount", dataset], deadline=LIST_DEADLINE)


def _list_failure(name: str, result: Result) -> Exception:
    complaint = result.complaint()
    pool = parse_name(name).pool
    if SUSPENDED in complaint:
        return suspended(pool)
    if "does not exist" in complaint or "no such pool" in complaint:
        return NotFound(
            f"there is no dataset '{name}'",
            complaint,
            f"'zfs list -r {pool}' shows what there is; 'zpool import' shows pools that are not imported",
        )
    if "invalid dataset name" in complaint:
        return NotFound(f"'{name}' is no dataset name", complaint)
    return ToolFailed(f"cannot list '{name}'", complaint)


def _refuse_unknown(result: Result, what: str) -> None:
    """Raise ToolFailed for a command that failed, unless some of its snapshots are gone, and nothing else."""
    told = [line for line in result.stderr.splitlines() if line.startswith(("cannot ", "internal error"))]
    if result.returncode != 0 and not (told and all(line.endswith("does not exist") for line in told)):
        raise ToolFailed(what, result.complaint(), "nothing that depends on it was changed; run it again")
