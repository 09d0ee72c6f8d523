"""Sessions: a dataset that stays open on both sides between the looks of somebody who walks through its past."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.ops.context import Context
from zvault.ops.restore.open_both_sides import BothSides, LookRequest, Say, open_both_sides
from zvault.ops.restore.source_path import find_dataset
from zvault.ops.vaults.vault import Vaults
from zvault.system.tasks import cancel_tasks

SESSION_NAME = re.compile(r"[0-9a-f]{16,64}")
"""What a session may be called: nobody guesses another's, or takes one twice by chance."""


@dataclass
class _Session:
    """``opened`` is what is open, or why nothing is; ``looks`` are under way in it."""

    opened: asyncio.Future[BothSides]
    looks: set[asyncio.Task[object]] = field(default_factory=set)


@dataclass
class BrowseSessions:
    """The sessions by name. Each ends with the request that began it; the looks in it are cancelled before."""

    _sessions: dict[str, _Session] = field(default_factory=dict)

    async def keep(self, context: Context, vaults: Vaults, name: str, wanted: LookRequest, say: Say) -> None:
        """Have a session open until this is cancelled. Raises Refused, and why the dataset cannot be opened."""
        if not SESSION_NAME.fullmatch(name) or name in self._sessions:
            raise Refused("no session of that name", "it is no new name of 16 to 64 hexadecimal digits")
        session = self._sessions[name] = _Session(asyncio.get_running_loop().create_future())
        say(f"opening the snapshots for backup '{wanted.backup}'")
        try:
            async with open_both_sides(context, vaults, wanted, say) as sides:
                session.opened.set_result(sides)
                try:
                    await asyncio.Event().wait()
                finally:
                    del self._sessions[name]
                    await cancel_tasks(*session.looks)
        except BaseException as error:
            self._sessions.pop(name, None)
            if not session.opened.done():
                session.opened.set_exception(error if isinstance(error, ZvaultError) else _ended())
                session.opened.exception()  # nobody may wait for it
            raise

    @asynccontextmanager
    async def look(
        self, context: Context, vaults: Vaults, wanted: LookRequest, session: str | None, say: Say
    ) -> AsyncIterator[tuple[BothSides, str]]:
        """Give both sides, open, and the path below the dataset's root: in a session, or for this one look."""
        if session is None:
            async with open_both_sides(context, vaults, wanted, say) as sides:
                yield sides, _text(sides.path)
            return
        found = self._sessions.get(session)
        if found is None:
            raise _ended()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside a coroutine there is one
        found.looks.add(task)
        try:
            sides = await asyncio.shield(found.opened)
            backup = context.env.backup(wanted.backup)
            dataset, path = await find_dataset(context, backup, wanted.dataset, wanted.path)
            if (backup.name, dataset) != (sides.backup.name, sides.dataset):
                raise Refused(
                    f"{dataset} is not looked into", f"the session is of {sides.dataset}", "begin another"
                )
            yield sides, path
        finally:
            found.looks.discard(task)


def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")


def _ended() -> NotFound:
    return NotFound("there is no such session", "it has ended", "begin another")
