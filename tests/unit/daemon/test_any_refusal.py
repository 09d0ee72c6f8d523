"""Any dataset may refuse any step with any errno: all others are done, that one is named, nothing is lost.

zvaultd's own runs over the pools of the simulated year, in which no time passes but the loop's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.daemon.year import year_oracle as oracle
from tests.unit.daemon.year.simulated_time import SimulatedLoop
from tests.unit.daemon.year.simulated_zfs import Own, Point, carry
from tests.unit.daemon.year.year_world import CONFIG, OWN_TIME, VaultZfs, World
from zvault.api.events import DatasetFailed, RetryEvent, RunEvent, make_event_document
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName, split_point
from zvault.core.refusals import REFUSAL_ROWS, Duration, Speaker, describe_errnos, find_refusal
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.core.replication.plan_model import TransferPlan
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.core.replication.unlisted_datasets import is_in_unlisted
from zvault.ops import run
from zvault.ops.plan_documents import list_gone_documents, make_planned_documents
from zvault.ops.replication import transfer
from zvault.ops.replication.listing import list_both_sides
from zvault.ops.replication.plan_all import plan_all
from zvault.ops.replication.receive_properties import update_properties
from zvault.ops.stream.failure import raise_stream_failure
from zvault.ops.stream.run_stream import StreamResult
from zvault.system.process.pipeline import StageEnd
from zvault.system.process.runner import ProcessResult
from zvault.zfs.changes import ChangeFailure, list_some_names, make_change_error
from zvault.zfs.lzc_stream_words import describe_receive_errno, describe_send_errno
from zvault.zfs.whole_listing import PartialListing

KEEP = {"source": {"last": 2}, "vault": {"last": 3}}

BEGIN = 1_795_000_000.0
DATASETS = ["tank/a", *(f"tank/a/{name}" for name in ("below", "c", "d", "e"))]

STEPS = ("snapshot", "hold", "held", "release", "bookmark", "destroy_bookmarks", "destroy")
"""What is done with datasets of a source, beside listing and sending them."""

VAULT_STEPS = ("hold", "held", "release", "destroy")
"""What is done with datasets of a vault, beside listing, receiving and renaming them."""

STREAM_STEPS = ("send", "receive")
"""The ends of a stream. Either is refused in the words that both ways of a stream have for an errno: those of the
programs, which libzfs_core's are put into (zfs/lzc_stream_words.py)."""

ERRNOS = sorted(set(range(1, 134)) - {errno.ENOENT, errno.EEXIST, 41, 58})
"""All but those that say that it is gone, or done already."""


@dataclass
class Refused:
    """Which datasets refuse which steps, on either side, each with an errno, or in the words of a program.

    Where ZFS is to be ``silent`` it names nobody.
    """

    by_step: dict[tuple[str, str], int | str] = field(default_factory=dict)
    silent: bool = False
    calls: list[tuple[str, list[str]]] = field(default_factory=list)

    def words(self, step: str, name: str) -> str | None:
        """What a program says, or the kernel's errno in its words; None where the dataset does not refuse."""
        self.calls.append((step, [name]))
        code = self.by_step.get((split_point(name)[0], step))
        return said_by(step, name, code) if code is not None else None


def said_by(step: str, name: str, code: int | str) -> str:
    """What ``zfs send``, ``zfs receive`` or another command of zfs says of an errno."""
    if isinstance(code, str):
        return f"cannot {step} '{name}': {code}"
    return describe_receive_errno(code, name, name) if step == "receive" else describe_send_errno(code, name)


class RefusingZfs(VaultZfs):
    """A pool whose datasets refuse steps: what names one of these is done of none, as by ZFS."""

    def __init__(self, world: World, name: str, refused: Refused) -> None:
        super().__init__(world.pools, name)
        self.refused = refused
        self.settings: dict[str, dict[str, str]] = {}
        self.around_damage = True
        self.host = SimpleNamespace(address=None, run=self._run)

    def _ask(self, step: str, names: Iterable[str]) -> None:
        asked = list(names)
        self.refused.calls.append((step, asked))
        found = [
            ChangeFailure("" if self.refused.silent else name, "ZFSGenericError", code, os.strerror(code))
            for name in asked
            if isinstance(code := self.refused.by_step.get((split_point(name)[0], step)), int)
        ]
        if found:
            raise make_change_error(f"{step} {list_some_names(asked)}", found)

    async def snapshot(self, names: Sequence[str], properties: Mapping[str, str]) -> None:
        self._ask("snapshot", names)
        await super().snapshot(names, properties)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self._ask("hold", names)
        await super().hold(names, tag)

    async def release(self, names: Sequence[str], tag: str) -> None:
        self._ask("release", names)
        await super().release(names, tag)

    async def bookmark(self, marks: Mapping[str, str]) -> None:
        self._ask("bookmark", marks)
        await super().bookmark(marks)

    async def destroy_bookmarks(self, names: Sequence[str]) -> None:
        self._ask("destroy_bookmarks", names)
        await super().destroy_bookmarks(names)

    async def destroy(self, names: Sequence[str]) -> None:
        self._ask("destroy", names)
        await super().destroy(names)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        self._ask("held", names)
        return await super().holds(names)

    async def held(self, asked: Iterable[tuple[Dataset, Sequence[Snapshot]]]) -> dict[str, set[str]]:
        return await self.holds([snap.name for _, snaps in asked for snap in snaps])

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        found = await super().tree(root)
        for name in found.datasets:
            if (said := self.refused.words("list", name)) is not None:
                raise PartialListing(f"'{root}' cannot be listed whole", said)
        return found

    async def tree_around_damage(self, root: str, why: PartialListing) -> Tree:
        """What is refused is named, and what lies below that is not seen, unless it is the root."""
        whole = await super().tree(root)
        if not self.around_damage:
            raise why
        said = {name: self.refused.words("list", name) for name in whole.datasets}
        unlisted = {DatasetName(name): words for name, words in said.items() if words is not None}
        hiding = [name for name in unlisted if name != root]
        seen = {
            name: one
            for name, one in whole.datasets.items()
            if one.name not in unlisted and not is_in_unlisted(one.name, hiding)
        }
        top = {name: words for name, words in unlisted.items() if not any(map(name.is_below, hiding))}
        return Tree(seen, unlisted=top)

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        return await self.tree(root)

    async def get(self, name: str, *properties: str) -> dict[str, str]:
        self._ask("get", [name])
        return await super().get(name, *properties)

    async def _run(self, argv: Sequence[str], *, check: bool = True, **_: object) -> ProcessResult:
        """The commands of zfs that rename datasets, and read or set their properties."""
        words = [word for word in argv[2:] if word != "-u"]
        names, out = [word for word in words if word.startswith(f"{self.vault}/") and "=" not in word], ""
        said = "; ".join(filter(None, (self.refused.words(argv[1], name) for name in names)))
        if argv[1] == "rename" and not said:
            datasets = self.pools.pools[self.vault].datasets
            datasets[words[1]] = datasets.pop(words[0])
        if argv[1] == "get" and not said:
            out = "".join(
                f"{name}\t{value or '-'}\t{'local' if value else '-'}\n"
                for name in names
                for value in [self.settings.get(name, {}).get(words[3], "")]
            )
        if argv[1] == "set" and not said:
            for word in words[:-1]:
                key, _, value = word.partition("=")
                self.settings.setdefault(words[-1], {})[key] = value
        if check and said:
            raise ToolFailed(f"zfs {argv[1]} failed", said)
        return ProcessResult(tuple(argv), int(bool(said)), out, said, 0.0)

    async def snapshot_facts(self, names: Sequence[str]) -> list[SnapshotFacts]:
        return [SnapshotFacts(DatasetName(name)) for name in names]


class Refusals:
    """A zvaultd over such a source, and what it told of each run of backup a."""

    def __init__(self, world: World, refused: Refused, source: RefusingZfs, vault: RefusingZfs) -> None:
        self.world, self.refused, self.source, self.vault = world, refused, source, vault
        self.told: list[RunEvent] = []

    async def run(self) -> tuple[str, list[RunEvent]]:
        """Run it; its result, and what was told."""
        self.told.clear()
        await asyncio.sleep(60.0)
        run = self.world.daemon.runs.start("a", "hand")
        await self.world.daemon.runs.runner.current[run].task
        found = self.world.daemon.history.run(run)
        assert found is not None
        return str(found["result"]), list(self.told)

    @property
    def backup(self) -> Backup:
        return self.world.daemon.context.env.backup("a")

    def sides(self, dataset: str) -> tuple[Own, Own]:
        source, there = self.world.sides(dataset)
        assert there is not None, f"the vault has nothing of {dataset}"
        return source, there

    def is_sent(self, dataset: str) -> bool:
        source, there = self.sides(dataset)
        newest = oracle.base(source, there)
        return newest is not None and newest.guid == list(source.points.values())[-1].guid

    def check_protected(self, dataset: str, *, marked: bool = True) -> None:
        """The base is there and held, and bookmarked too where bookmarks can be made."""
        source, there = self.sides(dataset)
        newest = oracle.base(source, there)
        assert newest is not None, f"{dataset} has no base any more"
        assert source.holds.get(newest.snapname), f"the base of {dataset} is not held"
        marks = {mark.guid for mark in source.marks.values()}
        assert newest.guid in marks if marked else marks, f"the base of {dataset} has no bookmark"

    def check_kept(self, dataset: str) -> None:
        """The vault has what its rules keep, and holds the newest of it."""
        _, there = self.sides(dataset)
        assert len(there.points) == 3, f"the vault has more or less of {dataset} than its rules keep"
        held = [name for name, tags in there.holds.items() if KEEP_HOLD in tags]
        assert held == list(there.points)[-1:], f"the newest of {dataset} is not held on the vault"


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Refusals]:
    for name in DATASETS:
        world.pools.pools["tank"].datasets.setdefault(name, Own(world.pools.new()))
    await world.start()
    refused = Refused()
    clients: Any = world.daemon.context.clients
    source = clients._sources[None] = RefusingZfs(world, "tank", refused)
    vault = clients._vaults["cold", None, ""] = RefusingZfs(world, "cold", refused)
    here = Refusals(world, refused, source, vault)
    clients.refused = refused
    world.daemon.events.subscribe(RunEvent, here.told.append)
    try:
        yield here
    finally:
        refused.by_step.clear()
        await world.stop()


async def carry_or_refuse(
    transfers: Any, step: Any, plan: TransferPlan, dataset: Dataset, *_: Any
) -> StreamResult:
    """What a stream brings, or its ends where either refuses."""
    refused: Refused = transfers.opened.context.clients.refused
    ends = [
        StageEnd(("zfs", verb, name), int(said is not None), said or "", 0.0)
        for verb, name in (("send", step.to.name), ("receive", str(plan.target)))
        for said in [refused.words(verb, name)]
    ]
    raise_stream_failure(ends)
    return await carry(transfers, step, plan, dataset)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Plays something in a world whose time is its own. Backups run by hand only; to their tables ``more`` is added."""
    loops: list[SimulatedLoop] = []

    def played(what: Callable[[Refusals], Awaitable[None]], **more: Any) -> None:
        loop = SimulatedLoop()
        loops.append(loop)
        world = World(tmp_path, loop, BEGIN, monkeypatch)
        by_hand = {
            name: {"source": table["source"], "vault": table["vault"], "keep": KEEP, "prune_limit": "100%"}
            | more
            for name, table in CONFIG["backup"].items()
        }
        monkeypatch.setitem(CONFIG, "backup", by_hand)
        monkeypatch.setattr(transfer.Transfers, "_carry", carry_or_refuse)
        monkeypatch.setattr(transfer, "RECEIVE_END_PATIENCE", 0.0)

        async def do() -> None:
            async with serving(world) as here:
                await what(here)

        loop.run_until_complete(do())

    yield played
    for loop in loops:
        loop.close()


def names_of(told: Sequence[RunEvent]) -> str:
    """All that a run told of what is wrong, in one text."""
    return "\n".join(
        str(make_event_document(one)) for one in told if one.name in {"dataset-failed", "warning"}
    )


ON_VAULT = "cold/host/"
"""What stands before a source dataset's name on the vault."""


def is_permanent(step: str, code: int | str) -> bool:
    """Whether nothing changes by another try, by the table of refusals."""
    if step in {"send", "receive", "rename"}:
        speaker: Speaker = "send" if step == "send" else "receive" if step == "receive" else "any"
        row = find_refusal(said_by(step, "a/b", code), speaker)
        return row is not None and row.duration is Duration.PERMANENT
    return isinstance(code, int) and describe_errnos({code})[0] is Duration.PERMANENT


async def refuse(here: Refusals, refused: Mapping[tuple[str, str], int | str]) -> None:
    """Some runs in peace, some in which datasets refuse, and one in peace again."""
    bad = {dataset.removeprefix(ON_VAULT) for dataset, _ in refused}
    met: set[tuple[str, str]] = set()
    for _ in range(4):
        assert (await here.run())[0] == "ok"
    here.refused.by_step = dict(refused)
    for _ in range(3):
        here.refused.calls.clear()
        result, told = await here.run()
        assert result in {"ok", "partial"}
        if all(is_permanent(step, code) for (_, step), code in refused.items()):
            assert [one for one in told if isinstance(one, RetryEvent)] == [], (
                "nothing changes by another try"
            )
        for dataset in DATASETS:
            here.check_protected(dataset, marked=(dataset, "bookmark") not in refused)
            if dataset in bad:
                continue
            assert here.is_sent(dataset), f"{dataset} was not sent as {refused}"
            here.check_kept(dataset)
            assert f"'{dataset}'" not in names_of(told)
        for dataset, step in refused:
            asked = {split_point(n)[0] for one, of in here.refused.calls if one == step for n in of}
            if dataset in asked:
                met.add((dataset, step))
                named = dataset.removeprefix(ON_VAULT) in names_of(told)
                assert named, f"{dataset} refuses {step}, which nobody tells"
    assert met == refused.keys() or len(refused) > 1, "what it refuses was never asked of it"
    here.refused.by_step = {}
    assert (await here.run())[0] == "ok"
    for dataset in DATASETS:
        assert here.is_sent(dataset)
        here.check_protected(dataset)
        here.check_kept(dataset)
        source, _ = here.sides(dataset)
        assert len(source.marks) in {1, 2}, "of the base, and of the one before"
        assert sum(map(bool, source.holds.values())) == 1
        assert len(source.points) <= 3, "what expired while it was refused goes once it is not"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.ENOTSUP])
def test_one_that_refuses_one_step(step: str, code: int, play: Any) -> None:
    play(lambda here: refuse(here, {("tank/a/c", step): code}))


@pytest.mark.parametrize("step", VAULT_STEPS)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.ENOTSUP])
def test_one_that_refuses_one_step_on_the_vault(step: str, code: int, play: Any) -> None:
    play(lambda here: refuse(here, {("cold/host/tank/a/c", step): code}))


@pytest.mark.parametrize("step", STREAM_STEPS)
@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.ENOTSUP, errno.EINVAL, errno.ENOSPC])
def test_one_end_of_a_stream_refuses(step: str, code: int, play: Any) -> None:
    dataset = "tank/a/c" if step == "send" else "cold/host/tank/a/c"
    play(lambda here: refuse(here, {(dataset, step): code}))


def rows(speaker: Speaker, *, permanent: bool) -> Iterator[tuple[str, list[str]]]:
    """What one end of a stream says, by the table of refusals: for each dataset below the root one."""
    said = [
        row.words
        for row in REFUSAL_ROWS
        if row.speaker in {speaker, "any"} and (row.duration is Duration.PERMANENT) is permanent
    ]
    yield from ((speaker, said[start : start + 4]) for start in range(0, len(said), 4))


@pytest.mark.parametrize(
    ("step", "said"),
    [
        case
        for step in STREAM_STEPS
        for permanent in (True, False)
        for case in rows("send" if step == "send" else "receive", permanent=permanent)
    ],
)
def test_what_zfs_refuses_a_stream_for(step: str, said: list[str], play: Any) -> None:
    """Each known refusal, said of one of the datasets. One that is permanent has nothing tried again."""
    side = ON_VAULT if step == "receive" else ""
    refused: dict[tuple[str, str], int | str] = {
        (f"{side}{dataset}", step): words for dataset, words in zip(DATASETS[1:], said, strict=False)
    }
    play(lambda here: refuse(here, refused))


@pytest.mark.parametrize("times", [1, 3, 10_000])
def test_a_stream_that_a_frozen_host_broke_off_is_sent_on(times: int, play: Any) -> None:
    """It is no trouble of anybody's, unless it never ends."""

    async def freeze(here: Refusals) -> None:
        left, target = times, "cold/host/tank/a/c"
        really = here.refused.words

        def words(step: str, name: str) -> str | None:
            nonlocal left
            if (step, name) == ("receive", target) and left:
                left -= 1
                return "cannot receive incremental stream: Interrupted system call"
            return really(step, name)

        here.refused.words = words  # type: ignore[method-assign]
        result, told = await here.run()
        loud = [one.name for one in told if one.name in {"warning", "dataset-failed", "retry"}]
        if times <= transfer.MOST_INTERRUPTIONS:
            assert (result, loud, left) == ("ok", [], 0)
            assert here.is_sent("tank/a/c")
        else:
            assert (result, here.is_sent("tank/a")) == ("partial", True)
            assert "tank/a/c" in names_of(told)

    play(freeze)


@pytest.mark.parametrize("seed", range(8))
def test_some_that_refuse_some_steps(seed: int, play: Any) -> None:
    """Each with an errno of its own, on either side. The root may be among them."""
    chance = random.Random(seed)
    bad = chance.sample(DATASETS, chance.randint(1, 3))
    steps = [("", step) for step in (*STEPS, "send")] + [
        (ON_VAULT, step) for step in (*VAULT_STEPS, "receive")
    ]
    refused: dict[tuple[str, str], int | str] = {}
    for name in (name for name in bad for _ in range(2)):
        side, step = chance.choice(steps)
        refused[f"{side}{name}", step] = chance.choice(ERRNOS)
    play(lambda here: refuse(here, refused))


@pytest.mark.parametrize("step", [step for step in STEPS if step != "snapshot"])
def test_one_that_refuses_and_is_not_named(step: str, play: Any) -> None:
    """ZFS says only that something refuses: it is found."""

    async def silent(here: Refusals) -> None:
        here.refused.silent = True
        await refuse(here, {("tank/a/c", step): errno.EIO})

    play(silent)


@pytest.mark.parametrize("step", VAULT_STEPS)
def test_one_that_refuses_on_the_vault_and_is_not_named(step: str, play: Any) -> None:
    async def silent(here: Refusals) -> None:
        here.refused.silent = True
        await refuse(here, {("cold/host/tank/a/c", step): errno.EIO})

    play(silent)


@pytest.mark.parametrize("step", ["get", "held"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOTSUP])
def test_one_that_does_not_tell_what_its_plan_needs(step: str, code: int, play: Any) -> None:
    """Somebody made a snapshot on the vault: whether anything was written since, and who holds it, has to be asked."""

    async def changed(here: Refusals) -> None:
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        pools, (_, there) = here.world.pools, here.sides("tank/a/c")
        there.points["foreign"] = Point("foreign", pools.new(), pools.new(), int(here.world.clock.time()))
        here.refused.by_step = {("cold/host/tank/a/c", step): code}
        result, told = await here.run()
        assert result == "partial"
        assert [one.dataset for one in told if isinstance(one, DatasetFailed)] == ["tank/a/c"]
        assert os.strerror(code) in names_of(told)
        for dataset in DATASETS:
            here.check_protected(dataset)
            if dataset != "tank/a/c":
                assert here.is_sent(dataset)
                here.check_kept(dataset)
        assert "foreign" in there.points
        del there.points["foreign"]
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        assert all(map(here.is_sent, DATASETS))

    play(changed)


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EIO, errno.EPERM, errno.EINVAL])
def test_one_that_cannot_be_renamed_on_the_vault(code: int, play: Any) -> None:
    """Two are renamed on the source. The one that cannot follow keeps all it has, and nothing of it is sent anew."""

    async def renamed(here: Refusals) -> None:
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        source, there = (here.world.pools.pools[name].datasets for name in ("tank", "cold"))
        for name in ("c", "d"):
            source[f"tank/a/{name}2"] = source.pop(f"tank/a/{name}")
        had = dict(there["cold/host/tank/a/c"].points)
        here.refused.by_step = {("cold/host/tank/a/c", "rename"): code}
        for _ in range(2):
            result, told = await here.run()
            assert result == "partial"
            assert "tank/a/c2" in names_of(told)
            assert [one for one in told if isinstance(one, RetryEvent)] == [] or not is_permanent(
                "rename", code
            )
            assert dict(there["cold/host/tank/a/c"].points) == had
            assert "cold/host/tank/a/c2" not in there
            newest = oracle.base(source["tank/a/c2"], there["cold/host/tank/a/c"])
            assert newest is not None
            assert source["tank/a/c2"].holds.get(newest.snapname)
            for name in ("tank/a", "tank/a/below", "tank/a/d2", "tank/a/e"):
                assert here.is_sent(name)
                here.check_protected(name)
                here.check_kept(name)
        assert "cold/host/tank/a/d" not in there
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        assert here.is_sent("tank/a/c2")
        here.check_protected("tank/a/c2")
        here.check_kept("tank/a/c2")
        assert "cold/host/tank/a/c" not in there

    play(renamed)


@pytest.mark.parametrize("step", ["set", "get"])
def test_one_whose_properties_cannot_be_set(step: str, play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse_some(here: Refusals) -> None:
        monkeypatch.setattr(run, "update_properties", update_properties)
        bad = ["cold/host/tank/a/c", "cold/host/tank/a/e"]
        here.refused.by_step = {(name, step): errno.EIO for name in bad}
        for _ in range(2):
            result, told = await here.run()
            assert result == "ok"
            assert all(name in names_of(told) for name in bad)
            for name in DATASETS:
                assert here.is_sent(name)
                is_set = here.vault.settings.get(f"{ON_VAULT}{name}", {}).get("sync") == "always"
                assert is_set is (f"{ON_VAULT}{name}" not in bad)
        here.refused.by_step = {}
        result, told = await here.run()
        assert (result, names_of(told)) == ("ok", "")
        assert all(here.vault.settings[f"{ON_VAULT}{name}"]["sync"] == "always" for name in DATASETS)

    play(refuse_some, receive={"set": {"sync": "always"}})


@pytest.mark.parametrize("dataset", ["tank/a/c", "cold/host/tank/a/c", "tank/a"])
def test_of_a_listing_that_is_not_whole_nothing_is_decided(dataset: str, play: Any) -> None:
    """ZFS leaves out what it cannot open and what comes after that, so no part of a listing is taken for all of it
    (unit/zfs/test_client_listings.py). Where nobody can tell what was left out, whatever is protected and kept of any
    stays so.
    """

    async def unlisted(here: Refusals) -> None:
        for client in (here.vault, here.source):
            client.around_damage = False
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        on_vault = {name: dict(here.sides(name)[1].points) for name in DATASETS}
        marks = {name: dict(here.sides(name)[0].marks) for name in DATASETS}
        here.refused.by_step = {(dataset, "list"): errno.EIO}
        for _ in range(3):
            result, told = await here.run()
            assert result == "failed"
            assert [one.name for one in told if one.name in {"pruned", "transfer-started"}] == []
            found = here.world.daemon.history.last("a")
            assert found is not None
            assert "cannot be listed whole" in str(found["error"])
            for name in DATASETS:
                source, there = here.sides(name)
                here.check_protected(name)
                assert (dict(there.points), dict(source.marks)) == (on_vault[name], marks[name])
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        for name in DATASETS:
            assert here.is_sent(name)
            here.check_protected(name)
            here.check_kept(name)

    play(unlisted)


@pytest.mark.parametrize("on_conflict", ["stop", "rollback", "new-dataset"])
@pytest.mark.parametrize("dataset", ["tank/a/c", "cold/host/tank/a/c", "tank/a", "cold/host/tank/a"])
def test_a_dataset_that_cannot_be_listed_stops_no_other(dataset: str, on_conflict: str, play: Any) -> None:
    """On either side, be it the root. It is named in each run, and what is known of it stays as it is on both."""
    bad = dataset.removeprefix(ON_VAULT)

    async def damaged(here: Refusals) -> None:
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        source, there = here.sides(bad)
        before = [dict(points) for points in (there.points, there.holds, source.marks, source.holds)]
        here.refused.by_step = {(dataset, "list"): errno.EIO}
        for _ in range(3):
            result, told = await here.run()
            assert result == "partial"
            assert [one.dataset for one in told if isinstance(one, DatasetFailed)] == [bad]
            assert f"{dataset} " in names_of(told)
            assert "cannot be listed" in names_of(told)
            assert "zpool status" in names_of(told)
            now = [dict(points) for points in (there.points, there.holds, source.marks, source.holds)]
            assert now == before
            for name in DATASETS:
                if name != bad:
                    assert here.is_sent(name)
                    here.check_protected(name)
                    here.check_kept(name)
        context: Any = here.world.daemon.context
        sides = await list_both_sides(context, here.backup, cast(Any, here.vault), elsewhere=True)
        plans = await plan_all(context, here.backup, sides)
        rows = await make_planned_documents(context, here.backup, plans, sides)
        told_of = {row["dataset"]: row["action"] for row in rows}
        assert told_of == dict.fromkeys(DATASETS, "nothing") | {bad: "conflict"}
        assert list_gone_documents("a", sides) == []
        lags = here.world.daemon.runs.readings.lags.get("a")
        assert lags is not None
        assert lags[bad].pending is None
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        for name in DATASETS:
            assert here.is_sent(name)
            here.check_protected(name)
            here.check_kept(name)

    play(damaged, on_conflict=on_conflict)


@pytest.mark.parametrize("on_conflict", ["stop", "new-dataset"])
def test_beside_what_cannot_be_listed_nothing_is_renamed_or_sent_anew(on_conflict: str, play: Any) -> None:
    """Of a dataset that was renamed nobody knows whether its backup is not that of the damaged one."""

    async def renamed(here: Refusals) -> None:
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        here.refused.by_step = {("tank/a/c", "list"): errno.EIO}
        tank, cold = (here.world.pools.pools[pool].datasets for pool in ("tank", "cold"))
        tank["tank/a/moved"], tank["tank/a/below"] = tank.pop("tank/a/d"), tank.pop("tank/a/e")
        before = {name: (own.guid, dict(own.points)) for name, own in cold.items()}
        moved = {name: dict(tank[name].marks) for name in ("tank/a/moved", "tank/a/below")}
        for _ in range(2):
            result, told = await here.run()
            assert result == "partial"
            failed = {one.dataset for one in told if isinstance(one, DatasetFailed)}
            assert failed == {"tank/a/c", "tank/a/moved", "tank/a/below"}
            now = {
                name: (own.guid, dict(own.points)) for name, own in cold.items() if name != "cold/host/tank/a"
            }
            before.pop("cold/host/tank/a", None)
            assert now == before, "nothing is renamed, sent anew or pruned"
            assert {name: dict(tank[name].marks) for name in moved} == moved, "its base is not disproved"
        here.refused.by_step = {}
        result, told = await here.run()
        # In the place of the other one lies what the source really gave up: that is for a person to decide.
        waits = ["tank/a/below"] if on_conflict == "stop" else []
        assert [one.dataset for one in told if isinstance(one, DatasetFailed)] == waits
        for name in {"tank/a", "tank/a/c", *moved}.difference(waits):
            assert here.is_sent(name)
        assert cold["cold/host/tank/a/moved"].guid == before["cold/host/tank/a/d"][0], (
            "it was renamed, not sent anew"
        )

    play(renamed, on_conflict=on_conflict)


def test_a_snapshot_at_its_own_time_names_what_cannot_be_listed(play: Any) -> None:
    async def damaged(here: Refusals) -> None:
        dataset = "tank/a/c"
        assert (await here.run())[0] == "ok"
        here.refused.by_step = {(dataset, "list"): errno.EIO}
        before = {name: [*here.world.sides(name)[0].points] for name in DATASETS}
        await asyncio.sleep(1300.0)
        made = [name for name in DATASETS if [*here.world.sides(name)[0].points][-1] not in before[name]]
        assert made == [name for name in DATASETS if name != dataset]
        assert [*here.world.sides(dataset)[0].points] == before[dataset], "nor is it pruned"
        rows = [run for run in here.world.daemon.history.runs("a", 99) if run["trigger"] == "snapshot"]
        assert rows[0]["result"] == "partial"
        assert dataset in str(rows[0]["error"])

    play(damaged, snapshot={"every": OWN_TIME})


def test_where_the_rest_of_the_pool_cannot_be_listed_only_what_is_sought_there_waits(play: Any) -> None:
    """Somebody's dataset in the vault's pool is damaged. One of ours lost its backup, which might be anywhere there."""

    async def lost(here: Refusals) -> None:
        for _ in range(4):
            assert (await here.run())[0] == "ok"
        there = here.world.pools.pools["cold"].datasets
        there["cold/others"] = Own(here.world.pools.new())
        here.refused.by_step = {("cold/others", "list"): errno.EIO}
        assert (await here.run())[0] == "ok", "nothing is sought there"
        del there["cold/host/tank/a/c"]
        for _ in range(2):
            result, told = await here.run()
            assert result == "partial"
            assert [one.dataset for one in told if isinstance(one, DatasetFailed)] == ["tank/a/c"]
            assert "cannot be listed whole" in names_of(told)
            assert "cold/host/tank/a/c" not in there, "it may be elsewhere: it is not sent anew"
            for name in DATASETS:
                if name != "tank/a/c":
                    assert here.is_sent(name)
                    here.check_protected(name)
                    here.check_kept(name)
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        assert all(map(here.is_sent, DATASETS))

    play(lost)


def test_snapshots_at_their_own_time_are_told_where_they_fail_and_else_only_made(play: Any) -> None:
    async def watch(here: Refusals) -> None:
        daemon = here.world.daemon
        backup = daemon.context.env.backup("a")

        def troubles() -> list[str]:
            verdict = daemon.status.backup_verdict(backup)
            return [one.condition.key for one in verdict.findings if one.condition.key == "not-snapshotted"]

        def rows() -> list[str]:
            return [
                str(run["result"]) for run in daemon.history.runs("a", 99) if run["trigger"] == "snapshot"
            ]

        def points(dataset: str) -> int:
            return len(here.world.sides(dataset)[0].points)

        assert daemon.status.backup(backup)["next_snapshot"] is not None
        await asyncio.sleep(3700.0)
        assert [points(name) for name in DATASETS] == [4] * 5, "one at the start, and one each 20 minutes"
        assert (rows(), troubles()) == ([], [])
        here.refused.by_step = {("tank/a/c", "snapshot"): errno.EBUSY}
        await asyncio.sleep(1300.0)
        assert [points(name) for name in DATASETS] == [5, 5, 4, 5, 5]
        assert (rows(), troubles()) == (["partial"], ["not-snapshotted"])
        assert daemon.history.last("a") is None, "that is no run"
        here.refused.by_step = {}
        await asyncio.sleep(1300.0)
        assert (rows(), troubles()) == (["partial"], [])
        assert (await here.run())[0] == "ok"
        for dataset in DATASETS:
            assert here.is_sent(dataset)
            assert len(here.sides(dataset)[1].points) == 3, "all that its rules keep were sent"

    play(watch, snapshot={"every": "20m"})


def test_a_read_only_source_without_a_snapshot_is_no_backup(play: Any) -> None:
    """Nothing can be snapshotted there, and nothing that is there may be sent: to end well would be a lie."""

    async def run(here: Refusals) -> None:
        here.refused.by_step = {
            (one, step): errno.EROFS for one in DATASETS for step in STEPS if step != "held"
        }
        result, told = await here.run()
        assert "is read-only" in names_of(told)
        assert result == "failed"
        here.refused.by_step = {}
        assert (await here.run())[0] == "ok"
        assert all(map(here.is_sent, DATASETS))

    play(run)
