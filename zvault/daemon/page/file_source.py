"""What the page tells of snapshots that are mounted: their files, as a process of its own lists them.

It may hang with the snapshot's pool, so it has a deadline, and few run at a time; zvaultd goes on.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zvault.core.errors import DeadlineExceeded, ZvaultError
from zvault.core.integrity.verification import escape_path
from zvault.daemon.journald import log
from zvault.daemon.page.page_model import FilesPage, MountDocument
from zvault.ops.context import Context
from zvault.ops.state.activity import ActiveMount
from zvault.system.list_folder import encode_question, list_folder_argv
from zvault.system.process.unprivileged import read_everything_argv

ENTRY_ROWS = 200
"""Entries on a page."""

LIST_FOLDER_DEADLINE = 5.0
"""Seconds in which a folder is listed."""

FOLDERS_AT_ONCE = 2
"""Folders that are listed at a time."""

FOLDER_PAUSE, LONGEST_FOLDER_PAUSE = 60.0, 3600.0
"""Seconds that a snapshot which did not answer is left alone: twice as long each time, for what hangs stays there."""


@dataclass(slots=True)
class _Silence:
    until: float
    seconds: float


class FileSource:
    """Lists folders of mounted snapshots, where the configuration wants that."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._at_work = 0
        self._silent: dict[str, _Silence] = {}

    @property
    def wanted(self) -> bool:
        """True if files are listed: only on a page that is for certain users."""
        page = self._context.env.config.page
        return page.files and page.guarded

    def mounts(self, backup: str) -> list[MountDocument]:
        """The snapshots of a backup that are mounted."""
        return list(self._mounts(backup))

    def _mounts(self, backup: str) -> Iterator[MountDocument]:
        for number, one in self._context.activity.mounts.items():
            if one.backup == backup:
                yield _document(number, one)

    async def page(self, subject: str) -> FilesPage | None:
        """A folder's page; ``subject`` is the mount's number, the first entry's and the path in base64, between zero
        bytes. None where there is no such mount, or nothing is to be listed.
        """
        number, first, text = (*subject.split("\0"), "", "")[:3]
        one = self._context.activity.mounts.get(number) if self.wanted else None
        if one is None or not first.isascii() or not first.isdigit():
            return None
        try:
            path = b64decode(text, validate=True)
        except (NotBase64, ValueError):
            return None
        found = await self._listed(number, one, path, int(first))
        return {
            "now": self._context.env.clock.time(),
            "host": self._context.env.host,
            "backup": one.backup,
            "mount": _document(number, one),
            "path": text,
            "first": int(first),
            "entries": found.get("entries", []),
            "total": found.get("total", 0),
            "more": found.get("more", False),
            "error": found.get("error", ""),
        }

    async def _listed(self, number: str, one: ActiveMount, path: bytes, first: int) -> dict[str, Any]:
        silence = self._silent.get(number)
        if silence is not None and self._context.env.clock.monotonic() < silence.until:
            return {"error": "it did not answer a moment ago, and is left alone for a while"}
        if self._at_work >= FOLDERS_AT_ONCE:
            return {"error": "others are being listed: try again"}
        self._at_work += 1
        asked = encode_question(one.snapshot, one.folder, path, first, ENTRY_ROWS)
        try:
            done = await self._context.env.runner.run(
                read_everything_argv(list_folder_argv()),
                deadline=LIST_FOLDER_DEADLINE,
                stdin=asked,
                check=False,
            )
        except DeadlineExceeded:
            seconds = min(LONGEST_FOLDER_PAUSE, 2 * silence.seconds) if silence is not None else FOLDER_PAUSE
            # Those that are no longer mounted are forgotten.
            kept = self._context.activity.mounts
            self._silent = {name: it for name, it in self._silent.items() if name in kept}
            self._silent[number] = _Silence(self._context.env.clock.monotonic() + seconds, seconds)
            log.warning(
                "%s: a folder of %s was not listed within %g s",
                one.folder,
                one.snapshot,
                LIST_FOLDER_DEADLINE,
            )
            return {"error": f"it did not answer within {LIST_FOLDER_DEADLINE:g} seconds: its pool may hang"}
        except ZvaultError as error:
            return {"error": str(error)}
        finally:
            self._at_work -= 1
        self._silent.pop(number, None)
        if done.returncode != 0:
            log.error("listing %s below %s failed: %s", escape_path(path), one.folder, done.complaint())
            return {"error": "it cannot be listed: see zvaultd's journal"}
        return _parse_listing(done.stdout)


def _parse_listing(text: str) -> dict[str, Any]:
    """What the program says, which reads what others wrote."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return {"error": "what lists it cannot be understood"}
    return found


def _document(number: str, one: ActiveMount) -> MountDocument:
    return {"id": number, "snapshot": one.snapshot, "folder": one.folder, "since": one.since}
