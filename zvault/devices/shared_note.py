"""What the hosts that share a vault leave for each other in its bucket: the note, and whose the lease is.

The store is asked in a process of its own (s3_lease/note.py): it may not answer, and its client takes memory that
zvaultd need not have.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.tables.device import Device
from zvault.core.errors import DeviceGone, Refused, ZvaultError
from zvault.core.sharing.run_decision import LeaseHolder
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import guarded_server
from zvault.devices.rbd.image_lease import keeper_argv
from zvault.system.process.runner import ProcessRunner

NOTE_DEADLINE = 60.0
"""Seconds for a request, with the start of its process."""

Asked = Callable[[Mapping[str, int]], None]
"""Told how many requests there were, by kind."""


@dataclass(frozen=True, slots=True)
class ObservedNote:
    """An object as the store has it: ``data`` is None and ``etag`` "" where there is none.

    ``age``: seconds since it was put, by the store's clock; None where that is not told.
    """

    data: bytes | None
    etag: str
    age: float | None


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """The lease in the same way; ``holder`` is None where there is none."""

    holder: LeaseHolder | None
    etag: str
    age: float | None


@dataclass(frozen=True, slots=True)
class NoteClient:
    """The note and the lease of the first device of a vault."""

    slot: DeviceSlot
    device: Device
    runner: ProcessRunner
    asked: Asked = lambda _: None

    async def read(self) -> ObservedNote:
        """The note. Raises DeviceGone where the store does not answer, Refused where it will not."""
        said = await self._ask("note")
        data = base64.b64decode(said["data"]) if said["data"] is not None else None
        return ObservedNote(data, said["etag"], said["age"])

    async def read_lease(self) -> ObservedLease:
        """Read whose the lease is. Raises as ``read``."""
        said = await self._ask("lease")
        holder = LeaseHolder(**said["lease"]) if said["lease"] is not None else None
        return ObservedLease(holder, said["etag"], said["age"])

    async def put(self, data: bytes, etag: str) -> str | None:
        """Put the note in the place of the one with this ETag, "" for none; the new ETag.

        None where another was put meanwhile. Raises as ``read``.
        """
        said = await self._ask("put", f"--etag={etag}", data=data)
        new: str | None = said["etag"]
        return new

    async def _ask(self, verb: str, *words: str, data: bytes | None = None) -> dict[str, Any]:
        argv = self._command(verb, *words)
        result = await self.runner.run(argv, deadline=NOTE_DEADLINE, stdin=data, check=False)
        try:
            said: dict[str, Any] = json.loads(result.stdout)
        except ValueError:
            what = f"the note of {self.device.spec} cannot be had"
            raise ZvaultError(what, result.complaint(), "see that the store answers") from None
        self.asked(said["asked"])
        if "error" in said:
            error = guarded_server.parse_reported_error(said["error"])
            if isinstance(error, DeviceGone):
                raise error
            raise Refused(error.what, error.why, error.next)
        return said

    def _command(self, verb: str, *words: str) -> list[str]:
        if self.device.rbd is not None:
            return keeper_argv(self.device, verb, *words)
        spec = self.device.server
        if not isinstance(spec, BlockstoreServer):
            raise Refused(f"{self.device.spec} has no note", "only a block store of zvault's has one")
        argv = [sys.executable, "-P", "-m", "zvault.devices.s3_lease.note", verb, *words, "--"]
        return [*argv, *guarded_server.server_argv(self.slot, spec)]
