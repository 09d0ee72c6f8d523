"""Two clients of a made-up pool that post events, and looks at what they know while something happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.unit.zfs.event_pool import FakePool
from tests.unit.zfs.event_world import FakeFeed, FakeTools
from zvault.core.errors import NotFound
from zvault.core.model import Dataset, Tree
from zvault.zfs.client import Zfs

Change = tuple[Callable[[FakePool, int, int], None], int, int]

BESIDE = "tank/c"
"""A root that is asked for at the same time as another."""

Seen = tuple[Dataset, dict[str, set[str]], int | None]
"""A dataset as it was told, with its holds, and how many lapses there had been."""


class Looks:
    """Two clients of one host's pools, and what is done around them."""

    def __init__(self) -> None:
        self.pool = FakePool()
        self.feed = FakeFeed(self.pool)
        self.tools = [FakeTools(self.pool), FakeTools(self.pool)]
        self.clients = [Zfs(tools, feed=self.feed, key_root="tank") for tools in self.tools]
        self.before: list[dict[str, Seen]] = [{}, {}]

    def change(self, changes: Sequence[Change]) -> None:
        for change, one, other in changes:
            change(self.pool, one, other)

    def disturb(self, what: str) -> None:
        if what == "read" and self.feed.reader is not None:
            self.feed.reader.read()
        elif what == "restart":
            self.feed.restart()
        elif what == "broken":
            self.feed.kill()
        elif what == "sleep":
            self.feed._asleep -= 60

    async def look(self, number: int, root: str, sizes: bool, during: Sequence[Change]) -> None:
        """A look while something changes may see any part of it, and must not break."""
        left = list(during)

        def meanwhile() -> None:
            if left:
                self.change([left.pop(0)])

        self.tools[number].meanwhile = meanwhile
        await asyncio.gather(
            tree(self.clients[number], root, sizes),
            tree(self.clients[1 - number], root, True),
            *(tree(client, BESIDE, False) for client in self.clients),
            self._others(),
        )
        self.tools[number].meanwhile = lambda: None
        self.change(left)

    async def _others(self) -> None:
        """Other clients hear of changes while these two list."""
        for _ in range(5):
            await asyncio.sleep(0)
            await self.feed.collect()

    async def check(self, root: str) -> None:
        """Nothing happens now, so what is known is what there is."""
        await self._check(BESIDE)
        await self._check(root)

    async def _check(self, root: str) -> None:
        now = await tree(Zfs(FakeTools(self.pool), key_root="tank"), root, True)
        for client in self.clients:
            assert bare(await tree(client, root, False)) == bare(now)
            assert await tree(client, root, True) == now
            assert bare(await tree(client, root, False)) == bare(now)
        for client, before in zip(self.clients, self.before, strict=True):
            await self._check_holds(client, before, await tree(client, root, False))

    async def _check_holds(self, client: Zfs, before: dict[str, Seen], found: Tree | None) -> None:
        """Holds are as they are; and what is the same object, with no lapse between, has the same holds."""
        for name, one in found.datasets.items() if found is not None else ():
            points = self.pool.datasets[name].points.items()
            held = {name + short: self.pool.held.get(at[0], set()) for short, at in points if short[0] == "@"}
            assert await client.held([(one, list(one.snapshots))]) == held
            if name in before and before[name][0] is one and before[name][2] == client.lapses:
                assert before[name][1] == held
            before[name] = one, {snap: set(tags) for snap, tags in held.items()}, client.lapses


async def tree(client: Zfs, root: str, sizes: bool) -> Tree | None:
    try:
        return await client.tree(root, sizes=sizes)
    except NotFound:
        return None


def bare(found: Tree | None) -> Tree | None:
    """Without what no event tells of."""
    return found and Tree({name: replace(one, used=0, written=0) for name, one in found.datasets.items()})


def asked(looks: Looks) -> list[Sequence[str]]:
    """What was listed, of which, since this was last asked: each command's types and names."""
    argvs, looks.tools[0].started = looks.tools[0].started, []
    return [
        [argv[argv.index("-t") + 1], *argv[argv.index("-o") + 2 :]] for argv in argvs if argv[1] == "list"
    ]
