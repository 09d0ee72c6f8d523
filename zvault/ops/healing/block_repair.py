"""Damaged blocks of a vault put right where they lie: found in its pool, brought by streams, written below it.

Between the pool's word where a block is and the write nothing may move it. So the pool is exported, asked again, and
what it says otherwise now is left alone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zvault.core.errors import Busy, ToolFailed
from zvault.core.integrity.damage import HealTarget, find_oldest_damaged
from zvault.core.model import Tree
from zvault.ops.context import Context
from zvault.ops.vaults.mounts import describe_other_use
from zvault.ops.vaults.vault import ManagedVault, OpenVault
from zvault.zfs.pool import label
from zvault.zfs.repair import block_writer
from zvault.zfs.repair.block_writer import PieceResult, PoolBlock, RepairFolder, RepairTask
from zvault.zfs.repair.error_log import ErrorLog

PUT_DEADLINE = 3600.0
"""Seconds to read or write everything that was found: blocks, not files."""

VAULT_FREE_INTERVAL = 5.0
"""Seconds between two looks whether the vault is free."""

BLOCK_NOT_SHOWN = "zdb(8) does not show the block where the pool's error log has it: it may be gone by now"
MOVED = "the pool has another block in its place by now"
BLOCK_REREAD_DIFFERS = (
    "what was written over it reads back as something else, or is refused: the device does not keep it"
)
UNCONFIRMED = (
    "one other host alone sends bytes for it, and its checksum (fletcher) is one that a hostile host can make other"
    " bytes fit: no second host sends the same, and nobody said that this one is trusted"
)
BLOCK_UNKNOWN = "only its name is known, and not which of its blocks is damaged"


@dataclass
class BlockRepair:
    """The damaged blocks of one vault.

    ``why`` tells of those that cannot be healed in this way; ``sound`` are those that are well, be it that they were so
    all the time: of a read that failed because the storage was away ZFS keeps an error too.
    """

    context: Context
    vault: ManagedVault
    say: Callable[[str], None]
    folder: RepairFolder
    why: dict[HealTarget, str] = field(default_factory=dict)
    sound: set[HealTarget] = field(default_factory=set)
    _places: dict[HealTarget, str] = field(default_factory=dict)
    _pieces: dict[HealTarget, PoolBlock] = field(default_factory=dict)

    async def find(self, vault: OpenVault, tree: Tree, wounds: Iterable[HealTarget]) -> None:
        """Find where the blocks lie, and which of them are sound there."""
        devices = await self.context.clients.zpool.devices(vault.pool)
        log = ErrorLog(self.context.env.runner, vault.pool, devices)
        for wound in wounds:
            dataset = tree.datasets.get(wound.dataset or "")
            if dataset is None or wound.what != "data":
                continue
            if wound.logged is None:
                self.why[wound] = BLOCK_UNKNOWN
                continue
            first = find_oldest_damaged(dataset, wound)
            self._places[wound] = dataset.name if first is None else first.name
        self._pieces = await _look(log, self._places)
        for wound in self._places:
            piece = self._pieces.get(wound)
            obstacle = BLOCK_NOT_SHOWN if piece is None else piece.pointer.obstacle
            if obstacle is not None:
                self.why[wound] = obstacle
                self._pieces.pop(wound, None)
        vdevs = await label.read_vdevs(vault.guid, devices, self.context.env.runner)
        self.folder.begin(RepairTask(list(self._pieces.values()), vdevs))
        found: list[bool] = await self._run(block_writer.look_argv(self.folder.path), "read")
        self.sound = {wound for wound, well in zip(self._pieces, found, strict=True) if well}
        if self.sound:
            self.say(f"{len(self.sound)} of {len(self._pieces)} blocks are sound on the device")

    def missing(self) -> list[HealTarget]:
        """Those that are damaged, have a place, and no bytes yet."""
        return [
            wound
            for wound, piece in self._pieces.items()
            if wound not in self.sound and not self.folder.has(piece)
        ]

    def explain_unconfirmed(self) -> None:
        """Say why those stay for which bytes were sent that nobody else confirmed."""
        self.why |= {
            wound: UNCONFIRMED
            for wound in self.missing()
            if self.folder.lacks_confirmation(self._pieces[wound])
        }

    def ask(self, dataset: str) -> bool:
        """Say which blocks of a dataset the next stream is to be searched for; whether any of them is compressed here,
        and so has to be where it comes from.
        """
        pieces = [self._pieces[wound] for wound in self.missing() if wound.dataset == dataset]
        self.folder.begin(RepairTask(pieces, {}))
        return any(piece.pointer.compression != "uncompressed" for piece in pieces)

    async def put(self, user: str) -> None:
        """Write all that was found, once nobody uses the vault.

        Raises Refused, ToolFailed, what stands in the way of taking the vault up or down.
        """
        found = {wound: piece for wound, piece in self._pieces.items() if self.folder.has(piece)}
        if not found:
            return
        pool = self.vault.config.pool
        used = describe_other_use(pool, str(self.context.env.paths.run))
        also = f"; what is mounted of it is mounted again after that: {used}" if used else ""
        self.say(f"pool {pool} is exported to write {len(found)} blocks{also}")
        async with self._below(user) as (guid, devices):
            vdevs = await label.read_vdevs(guid, devices, self.context.env.runner)
            log = ErrorLog(self.context.env.runner, pool, devices)
            now = await _look(log, {wound: self._places[wound] for wound in found})
            still = [wound for wound, piece in found.items() if now.get(wound) == piece]
            self.why |= {wound: MOVED for wound in found if wound not in still}
            self.folder.begin(RepairTask([found[wound] for wound in still], vdevs))
            self.say(f"writing {len(still)} blocks below pool {pool}")
            results: list[PieceResult] = await self._run(block_writer.put_argv(self.folder.path), "written")
            for wound, result in zip(still, results, strict=True):
                if result == "lost":
                    self.why[wound] = BLOCK_REREAD_DIFFERS
                else:
                    self.sound.add(wound)

    async def _run(self, argv: list[str], what: str) -> Any:
        """The program's answer."""
        result = await self.context.env.runner.run(argv, deadline=PUT_DEADLINE, check=False)
        if result.returncode != 0:
            raise ToolFailed(
                f"the damaged blocks of vault '{self.vault.name}' could not be {what}",
                result.complaint(),
                "nothing sound was touched; see the vault's devices, then heal again",
            )
        return json.loads(result.stdout)

    @asynccontextmanager
    async def _below(self, user: str) -> AsyncIterator[tuple[int, list[str]]]:
        """The pool's GUID and devices, while nobody has it; waits until it is free."""
        async with AsyncExitStack() as stack:
            told = False
            while True:
                try:
                    held = await stack.enter_async_context(self.vault.below(user, self.say))
                    break
                except Busy as error:
                    if not self.vault.users:
                        raise
                    if not told:
                        self.say(f"waiting: {error}")
                    told = True
                await asyncio.sleep(VAULT_FREE_INTERVAL)
            yield held


@contextmanager
def make_scratch_folder(path: Path) -> Iterator[RepairFolder]:
    """An empty folder for one healing: what is in blocks is nobody's business but root's."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700, parents=True)
    try:
        yield RepairFolder(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


async def _look(log: ErrorLog, places: Mapping[HealTarget, str]) -> dict[HealTarget, PoolBlock]:
    """Where the pool has each damaged block; those that it does not have are missing."""
    wanted: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for wound, place in places.items():
        if wound.logged is not None:
            wanted[place][wound.logged.number].add(wound.logged.block)
    pointers = {place: await log.pointers(place, blocks) for place, blocks in wanted.items()}
    found = {}
    for wound, place in places.items():
        if (logged := wound.logged) is None:
            continue
        pointer = pointers[place].get((logged.number, logged.block))
        if pointer is None or logged.birth not in (0, pointer.birth):
            continue
        found[wound] = PoolBlock(logged.number, logged.block * pointer.logical, pointer)
    return found
