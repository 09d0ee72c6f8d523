"""Keeps an eye on the vaults: what was last seen of each, what changed for worse or better, and mending what broke.

A look at a vault asks systemd and the kernel, and may still wait for a device that is lost (``zpool list`` does while
a pool is exported). So nobody here waits long for a look: where one does not come back what was seen last is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from zvault.core.errors import DeviceGone, ZvaultError
from zvault.daemon import journal
from zvault.daemon.journal import log
from zvault.ops.report import Document, own_document, unknown_document, vault_document
from zvault.ops.vault import Keeper, Vaults

LOOK_EVERY = 5.0
"""Seconds between looks of its own accord, for the metrics, the journal, and to see that something can be mended."""

PATIENCE = 0.8
"""Seconds to wait for a look before what was seen last is told instead."""

CHANGED_PATIENCE = 2.5
"""The same where the vault has come up or gone down since."""

STALE = 10.0
"""Seconds after which a vault that cannot be looked at counts as gone; so long the first look at it is waited for."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 120.0
"""Seconds between two tries to mend a vault, which double."""


@dataclass
class Sight:
    """One vault as it was seen last (``at``, monotonic seconds), and a look that has not come back, and when it began.

    ``told`` is what was wrong with it when the journal was told.
    """

    document: Document
    at: float
    seen: bool = False
    late: asyncio.Task[Document] | None = None
    begun: float = 0.0
    told: str = ""


@dataclass
class Mending:
    """When to try next (monotonic seconds), how long to pause after that, and what was in the way."""

    due: float = 0.0
    pause: float = FIRST_PAUSE
    why: str = ""
    task: asyncio.Task[None] | None = None


@dataclass
class Lookout:
    """Looks at all vaults again and again, and for whoever asks."""

    vaults: Vaults
    _sights: dict[str, Sight] = field(default_factory=dict)
    _mending: dict[str, Mending] = field(default_factory=dict)

    async def documents(self) -> list[Document]:
        """All vaults as they are now, side by side; one that cannot be looked at as it was seen last."""
        return await self._documents(self.vaults.all())

    async def _documents(self, keepers: Sequence[Keeper]) -> list[Document]:
        return await asyncio.gather(*map(self._document, keepers))

    async def _document(self, keeper: Keeper) -> Document:
        sight = self._sights.get(keeper.name)
        if sight is None:
            sight = self._sights[keeper.name] = Sight(unknown_document(keeper), time.monotonic())
        if sight.late is not None and (sight.late.done() or sight.begun < keeper.changed):
            sight.late.cancel()
            sight.late = None
        if sight.late is None:
            sight.begun = time.monotonic()
            look = asyncio.ensure_future(self._look(keeper, sight))
            done, _ = await asyncio.wait({look}, timeout=self._patience(keeper, sight))
            if done:
                return look.result()
            sight.late = look
        age, known = time.monotonic() - sight.at, sight.document | own_document(keeper)
        if age < STALE:
            return known
        silent = DeviceGone(
            f"vault '{keeper.name}' cannot be looked at",
            f"the kernel has not answered for {age:.0f} s",
            "see 'zpool status' and the kernel's log; what is shown is how it was before",
        )
        return {**known, "state": "gone", "error": silent.as_dict()}

    def _patience(self, keeper: Keeper, sight: Sight) -> float:
        if not sight.seen:
            return STALE
        return PATIENCE if sight.at > keeper.changed else CHANGED_PATIENCE

    async def _look(self, keeper: Keeper, sight: Sight) -> Document:
        sight.document = await vault_document(keeper)
        sight.at, sight.seen = time.monotonic(), True
        return sight.document

    async def watch(self) -> list[Document]:
        """Look, tell the journal what changed, and mend what can be mended; the result is what was seen."""
        keepers = self.vaults.all()
        documents = await self._documents(keepers)
        for keeper, document in zip(keepers, documents, strict=True):
            if not keeper.moving:
                self._tell(document, self._sights[keeper.name])
            self._look_after(keeper)
        return documents

    def _tell(self, document: Document, sight: Sight) -> None:
        now, before = trouble(document), sight.told
        fields = {"fields": {"VAULT": document["name"]}}
        if now and now != before:
            log.error("vault %s: %s", document["name"], now, extra=fields)
        elif before and not now:
            log.info("vault %s is well again", document["name"], extra=fields)
        sight.told = now

    def _look_after(self, keeper: Keeper) -> None:
        mending = self._mending.setdefault(keeper.name, Mending())
        if (mending.task is None or mending.task.done()) and time.monotonic() >= mending.due:
            mending.task = asyncio.create_task(self._mend(keeper, mending), name=f"mend {keeper.name}")

    async def _mend(self, keeper: Keeper, mending: Mending) -> None:
        try:
            await keeper.mend(journal.about(keeper.name))
        except ZvaultError as error:
            if str(error) != mending.why:
                fields = {"fields": {"VAULT": keeper.name}}
                log.warning("vault %s cannot be mended yet: %s", keeper.name, error, extra=fields)
            mending.why = str(error)
            mending.due = time.monotonic() + mending.pause
            mending.pause = min(2 * mending.pause, LONGEST_PAUSE)
        except Exception:
            log.exception("mending vault %s failed", keeper.name)
            mending.due = time.monotonic() + LONGEST_PAUSE
        else:
            mending.why, mending.pause = "", FIRST_PAUSE

    async def close(self) -> None:
        """End what is under way; what hangs in the kernel is left there."""
        tasks = [sight.late for sight in self._sights.values()] + [m.task for m in self._mending.values()]
        for task in tasks:
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ZvaultError):
                    await task


def trouble(document: Document) -> str:
    """What is wrong with a vault's storage, in words; nothing is if it is only down, or on its way up or down."""
    lost = [device for device in document["devices"] if device["state"] == "gone"]
    health = document["health"]
    words = [f"{device['name']} is gone: {device['detail']}" for device in lost]
    if health not in (None, "ONLINE"):
        words.append(f"its pool {document['pool']} is {health}")
    if not words and document["state"] == "gone" and document["error"] is not None:
        words.append(f"{document['error']['what']}: {document['error']['why']}")
    return "; ".join(words)
