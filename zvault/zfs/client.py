"""One host's ZFS: listings, estimates, and the few changes that only the command line can make."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

from zvault.core.errors import NotFound, ToolFailed, refuse_unparsable
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.refusals import find_cure, make_refusal
from zvault.core.replication.dataset_plan import PLACEHOLDER_BYTES
from zvault.core.replication.plan_model import InterruptedReceive, TransferAction, TransferStep
from zvault.core.replication.receive_properties import find_lacking, find_unlisted
from zvault.core.replication.resume_receive import classify_resume_fault
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.core.replication.vault_encryption import KeysAbove
from zvault.system.process.runner import ProcessResult, ProcessRunner
from zvault.zfs import parse_listing
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.changes import Changes
from zvault.zfs.gate.resume_token import BadToken, decode_token
from zvault.zfs.host import LocalHost, SshHost, ZfsHost
from zvault.zfs.list_command import (
    SUSPENDED_WORDS,
    ZFS_LIST_DEADLINE,
    ListCommand,
    make_list_error,
    split_in_batches,
)
from zvault.zfs.listing_cache_files import ListingCacheFiles
from zvault.zfs.lzc import Lzc
from zvault.zfs.pool.pool import make_suspended_error
from zvault.zfs.remote import RemoteChanges
from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.tree_listing import TreeListing
from zvault.zfs.vault_keys import VaultKeyReader
from zvault.zfs.whole_listing import PartialListing

HELD_COLUMNS = ("name", "userrefs")


class Zfs:
    """ZFS on one host. ``lzc`` makes what is atomic or batched, the ``zfs`` command the rest.

    With a ``feed`` of this host's events, what did not change since it was listed is not listed again. ``key_root``:
    see parse_listing.build_tree. ``kept``: the listings of this host that outlive the process.
    """

    def __init__(
        self,
        runner: ProcessRunner,
        host: SshHost | None = None,
        feed: ChangeFeed | None = None,
        key_root: str = "",
        kept: ListingCacheFiles | None = None,
    ) -> None:
        self.host: ZfsHost = LocalHost(runner) if host is None else host
        lzc = Lzc() if host is None else RemoteChanges(host)
        self.lzc: Changes = lzc
        self._lister = ListCommand(self.host)
        self._trees = TreeListing(self._lister, feed, key_root, lzc.list_names, kept)
        self._keys = VaultKeyReader(self.host)
        self._settable: set[str] | None = None

    async def close(self) -> None:
        """End the helper process, or let the connection go."""
        await self.lzc.close()

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        """List a dataset and all below it with snapshots and bookmarks. Raises NotFound.

        Without ``sizes``, ``used`` and ``written`` may be of any earlier listing: no event tells of them.
        """
        return await self._trees.tree(root, sizes=sizes)

    async def tree_around_damage(self, root: str, why: PartialListing) -> Tree:
        """As ``tree``, with what cannot be listed in ``unlisted``, be it the root. Raises ``why`` where nothing can be,
        and ToolFailed where the kernel of its host cannot be asked for names (another host may have no Python).
        """
        return await self._trees.tree_around_damage(root, why)

    async def names_around_damage(self, root: str, why: PartialListing) -> list[DatasetName]:
        """The names of a dataset and of all below it that can be opened. Raises as ``tree_around_damage``."""
        return await self._trees.names_around_damage(root, why)

    async def names(self, root: str) -> list[DatasetName]:
        """The names of a dataset and of all below it, without their snapshots. Raises NotFound."""
        lines = await self._lister.lines([root], "-r", "filesystem,volume", ("name",))
        return [DatasetName(line) for line in lines]

    async def snapshot_facts(self, names: Sequence[str], *, below: bool = False) -> list[SnapshotFacts]:
        """Return what decides whether snapshots can be made of these datasets, and, if so asked, of all below them.

        Those that are gone are left out.
        """
        found: list[SnapshotFacts] = []
        for some in split_in_batches(names):
            depth = "-r" if below else "-d0"
            lines = await self._lister.lines(
                some, depth, "filesystem,volume", parse_listing.SNAPSHOT_FACTS, set()
            )
            with refuse_unparsable("the listing of what snapshots need"):
                found += map(parse_listing.parse_snapshot_facts, lines)
        return found

    async def used(self, names: Sequence[str]) -> dict[str, int]:
        """The bytes that each dataset of these uses with all below it; those that are gone are left out."""
        found: dict[str, int] = {}
        for some in split_in_batches(names):
            lines = await self._lister.lines(some, "-d0", "filesystem,volume", ("name", "used"), set())
            with refuse_unparsable("the listing of what datasets use"):
                found |= {
                    name: parse_listing.parse_number(used)
                    for name, used in (line.split("\t") for line in lines)
                }
        return found

    async def keys_above(self, root: DatasetName, there: Dataset | None) -> KeysAbove:
        """See VaultKeyReader.above."""
        return await self._keys.above(root, there)

    def forget_keys_above(self) -> None:
        """See VaultKeyReader.forget."""
        self._keys.forget()

    async def loaded_keys(self, roots: Sequence[str]) -> set[str]:
        """See VaultKeyReader.loaded."""
        return await self._keys.loaded(roots)

    async def unlisted_properties(self) -> tuple[str, ...]:
        """The properties that the ZFS there can set and zvault lists nowhere. Empty where that cannot be told.

        They are asked for once: what is there now is there until zvaultd starts again, whatever is installed meanwhile.
        """
        return find_unlisted(await self._list_settable())

    async def lacking_properties(self) -> frozenset[str]:
        """Those that a vault keeps out and the ZFS there does not have; asked for once, with the unlisted ones."""
        return find_lacking(await self._list_settable())

    async def _list_settable(self) -> set[str]:
        if self._settable is None:
            result = await self.host.run(["zfs", "get"], deadline=ZFS_LIST_DEADLINE, check=False)
            self._settable = parse_listing.parse_settable(result.stderr)
        return self._settable

    def forget(self, dataset: str) -> None:
        """The bookmarks or holds of a dataset were changed: list it again next time."""
        self._trees.cache.forget(dataset)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        """As ``tree``, but empty where the root does not exist. Raises NotFound where a dataset went meanwhile."""
        try:
            return await self.tree(root, sizes=sizes)
        except NotFound:
            if await self.exists(root):
                return await self.tree(root, sizes=sizes)
            return Tree()

    async def holds(self, snapshots: Sequence[str]) -> dict[str, set[str]]:
        """The hold tags of each snapshot named that has any. Raises ToolFailed where they cannot be told."""
        held: dict[str, set[str]] = defaultdict(set)
        for names in split_in_batches(snapshots):
            result = await self.host.run(
                ["zfs", "holds", "-H", *names], deadline=ZFS_LIST_DEADLINE, check=False
            )
            _refuse_unknown(result, "the holds of snapshots cannot be told")
            for line in result.stdout.splitlines():
                name, tag, *_ = [*line.split("\t"), ""]
                held[name].add(tag)
        return dict(held)

    @property
    def lapses(self) -> int | None:
        """The number of times that it was lost what changed on this host since it was first listed; None where no event
        tells.

        While this is the same, whatever is listed as the same object was not changed: by no hold or property either.
        """
        return self._trees.lapses

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
        return _select_held(root, await self._lister.lines([root], "-r", "snapshot", HELD_COLUMNS))

    async def held_in(self, datasets: Sequence[str]) -> list[SnapshotName]:
        """The same of these datasets alone, as where one beside them cannot be opened; those that are gone are left
        out.
        """
        found: list[SnapshotName] = []
        for some in split_in_batches(datasets):
            lines = await self._lister.lines(some, "-d1", "snapshot", HELD_COLUMNS, set())
            found += _select_held(some[0], lines)
        return found

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        """The hold tags of some of the snapshots of each of these datasets, as of when they were last listed."""
        found: dict[str, set[str]] = {}
        unknown: list[tuple[Dataset, list[SnapshotName]]] = []
        for dataset, snapshots in asked:
            known = self._trees.cache.holds(dataset.name, dataset.snapshots)
            found |= {snap.name: known[snap.name] for snap in snapshots if snap.name in known}
            if names := [snap.name for snap in snapshots if snap.name not in known]:
                unknown.append((dataset, names))
        told = await self.holds([name for _, names in unknown for name in names])
        for dataset, names in unknown:
            tags: dict[str, set[str]] = {name: told.get(name, set()) for name in names}
            self._trees.cache.keep_holds(dataset.name, dataset.snapshots, tags)
            found |= tags
        return found

    async def clones(self, snapshots: Sequence[str]) -> dict[str, list[DatasetName]]:
        """The clones of each snapshot named that has any. A receive that waits to be resumed is one too.

        Raises ToolFailed where they cannot be told.
        """
        found: dict[str, list[DatasetName]] = {}
        for names in split_in_batches(snapshots):
            result = await self.host.run(
                ["zfs", "list", "-Hp", "-t", "snapshot", "-o", "name,clones", *names],
                deadline=ZFS_LIST_DEADLINE,
                check=False,
            )
            _refuse_unknown(result, "the clones of snapshots cannot be told")
            for line in result.stdout.splitlines():
                name, _, clones = line.partition("\t")
                if clones not in {"", "-"}:
                    found[name] = [DatasetName(clone) for clone in clones.split(",")]
        return found

    async def interrupted(self, token: str) -> InterruptedReceive:
        """Decode what a resume token means, and whether this host can still serve it.

        What it means is decoded from the token itself. ``zfs send -nvP -t`` is asked whether the snapshot is still
        there, and how much is left. Raises ToolFailed when that does not work.
        """
        try:
            told = decode_token(token)
        except BadToken as error:
            return InterruptedReceive(token, 0, f"its resume token is corrupt: {error}")
        result = await self.host.run(
            ["zfs", "send", "-nvP", "-t", token], deadline=ZFS_LIST_DEADLINE, check=False
        )
        said = result.stdout + result.stderr
        problem = "" if result.returncode == 0 else result.complaint().removeprefix("cannot resume send: ")
        if problem and classify_resume_fault(problem) == "other":
            if "resume token contents" not in said:
                raise ToolFailed("cannot tell whether an interrupted receive can be resumed", problem)
            problem = ""  # a trouble of the host's: the token may be as good as ever
        return InterruptedReceive(
            token,
            told.to_guid,
            problem,
            done=told.done,
            left=parse_listing.parse_stream_size(said),
            flags=told.flags,
            from_guid=told.from_guid,
            pool=SnapshotName(told.to_name).pool,
        )

    async def estimate(self, step: TransferStep, flags: SendFlags) -> int | None:
        """The size of a step's stream in bytes, None where it cannot be told."""
        if step.kind is TransferAction.RESUME and step.token is not None:
            result = await self.host.run(
                ["zfs", "send", "-nvP", "-t", step.token], deadline=ZFS_LIST_DEADLINE, check=False
            )
            return parse_listing.parse_stream_size(result.stdout + result.stderr)
        try:
            return await self.lzc.send_space(step.to.name, step.base.name if step.base else None, flags.lzc())
        except ToolFailed:
            return None

    async def make_parents(self, dataset: str, known: set[str] | None = None) -> None:
        """Make the filesystems above ``dataset`` that are not there, never mounted, marked as placeholders.

        Those that are ``known`` to be there are not asked for, and what is found or made is added to them. Raises
        PoolSuspended, ToolFailed, or what else ZFS has against it (core/refusals.py).
        """
        known = set() if known is None else known
        for above in itertools.islice(DatasetName(dataset).ancestors, 1, None):
            if above in known:
                continue
            if not await self.exists(above):
                result = await self.host.run(
                    [
                        "zfs",
                        "create",
                        "-u",
                        "-o",
                        "canmount=off",
                        "-o",
                        f"{parse_listing.PLACEHOLDER}={above}",
                        above,
                    ],
                    deadline=ZFS_LIST_DEADLINE,
                    check=False,
                )
                # Another stream below the same parent may have made it meanwhile.
                if result.returncode != 0 and "already exists" not in result.stderr:
                    if SUSPENDED_WORDS in result.stderr:
                        raise make_suspended_error(above.pool)
                    raise make_refusal(f"cannot make '{above}'", result.complaint(), ToolFailed)
            known.add(above)

    async def describe_content(self, placeholder: str) -> str:
        """Say in words what a placeholder holds itself by now; empty where nothing. Raises NotFound, ToolFailed."""
        own = (await self._lister.own([placeholder], "-d0")).get(placeholder, {})
        known = await self.get(placeholder, "written", "origin", "type")
        snapshots = await self._lister.lines([placeholder], "-d1", "snapshot", ("name",))
        if own.get(parse_listing.PLACEHOLDER) != placeholder or known["type"] != "filesystem":
            return "it is none that zvault made"
        if snapshots or known["origin"] not in {"-", ""}:
            return "it has snapshots" if snapshots else "it is a clone"
        with refuse_unparsable(f"the properties of '{placeholder}'"):
            written = parse_listing.parse_number(known["written"])
        return f"{written} bytes were written to it" if written > PLACEHOLDER_BYTES else ""

    async def exists(self, dataset: str) -> bool:
        """True if a dataset or snapshot exists. Raises PoolSuspended, ToolFailed where that cannot be known."""
        result = await self.host.run(
            ["zfs", "list", "-H", "-o", "name", dataset], deadline=ZFS_LIST_DEADLINE, check=False
        )
        if result.returncode == 0:
            return True
        failure = make_list_error(dataset, result)
        if isinstance(failure, NotFound):
            return False
        raise failure

    async def abort_receive(self, dataset: str) -> None:
        """Give up an interrupted receive's partial state (``zfs receive -A``).

        That there is none, though there is a token (OpenZFS #8801, #10439) or was, is no error. Raises ToolFailed.
        """
        result = await self.host.run(
            ["zfs", "receive", "-A", dataset], deadline=ZFS_LIST_DEADLINE, check=False
        )
        none = ("any resumable receive state", "dataset does not exist")
        if result.returncode != 0 and not any(words in result.stderr for words in none):
            raise ToolFailed(
                f"cannot give up the interrupted receive of '{dataset}'",
                result.complaint(),
                find_cure(result.complaint()) or "if another receive runs, wait for it to end",
            )

    async def get(self, dataset: str, *properties: str) -> dict[str, str]:
        """Exact values of some properties of one dataset. Raises NotFound."""
        result = await self.host.run(
            ["zfs", "get", "-Hp", "-o", "property,value", ",".join(properties), dataset],
            deadline=ZFS_LIST_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise make_list_error(dataset, result)
        with refuse_unparsable(f"the properties of '{dataset}'"):
            found = dict(line.split("\t", 1) for line in result.stdout.splitlines())
            return {name: found[name] for name in properties}

    async def number(self, dataset: str, name: str) -> int:
        """The exact value of a property that is a number, 0 for ``-``. Raises NotFound, ToolFailed."""
        known = await self.get(dataset, name)
        with refuse_unparsable(f"the property {name} of '{dataset}'"):
            return parse_listing.parse_number(known[name])

    async def mount(self, dataset: str) -> None:
        """Mount one filesystem."""
        await self.host.run(["zfs", "mount", dataset], deadline=ZFS_LIST_DEADLINE)


GONE_ENDINGS = ("does not exist", "no such pool or dataset")
"""How ZFS ends a complaint of a snapshot that is gone: when it was opened, or between that and what was asked of it
(EZFS_NOENT of libzfs_util.c)."""


def _refuse_unknown(result: ProcessResult, what: str) -> None:
    """Raise ToolFailed for a command that failed, unless some of its snapshots are gone, and nothing else."""
    told = [line for line in result.stderr.splitlines() if line.startswith(("cannot ", "internal error"))]
    if result.returncode != 0 and not (told and all(line.endswith(GONE_ENDINGS) for line in told)):
        said = result.complaint()
        raise ToolFailed(
            what, said, find_cure(said) or "nothing that depends on it was changed; the next run asks anew"
        )


def _select_held(what: str, lines: Sequence[str]) -> list[SnapshotName]:
    """The snapshots that anybody holds, of a listing of what there is below ``what``."""
    with refuse_unparsable(f"the listing of '{what}'"):
        rows = [line.split("\t") for line in lines]
        return [SnapshotName(name) for name, count in rows if parse_listing.parse_number(count)]
