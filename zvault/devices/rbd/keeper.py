"""The keeper of an image's lease: it takes the lease, and renews it for as long as this host has the image.

It is a process of its own, in ``zvault-rbd-lease@NAME.service``, and outlives zvaultd. The lease says which host may
map the image; it does not protect it: the image's exclusive lock does, and whoever takes the lease from a host has the
cluster refuse that host's client first. So a keeper that cannot reach the cluster goes on trying.

``python -m zvault.devices.rbd.keeper show|take|keep|note|lease|put … -- pool=… image=…``: ``show`` and ``take`` as
s3_lease/guard.py has them, ``note``, ``lease`` and ``put`` as s3_lease/note.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

from zvault.core.errors import Busy, ToolFailed, ZvaultError
from zvault.core.units import is_number
from zvault.devices.rbd.objects import RadosObjects
from zvault.devices.rbd.place import ImagePlace
from zvault.devices.s3_lease.answers import log_lease_line, report_lease_error
from zvault.devices.s3_lease.held_lease import HeldLease
from zvault.devices.s3_lease.lease_object import LeaseContent, LeaseLost, LeaseObjectStore
from zvault.devices.s3_lease.lease_process import make_lease_parser, run_with_lease
from zvault.devices.s3_lease.note import NoteStore, answer_note
from zvault.devices.s3_lease.takeover import BootClock, acknowledge_shutout
from zvault.object_store.interface import NO_OBJECT_YET, ObjectMissing, PreconditionFailed

EPOCH_TRIES = 5
RENEWAL_RETRY_PAUSE = 1.0
"""Seconds until a renewal that failed is tried again."""


class ImageLeases(LeaseObjectStore):
    """The lease of one image. Ceph is known to keep to the conditions of a put."""

    def __init__(self, image: ImagePlace, objects: RadosObjects) -> None:
        super().__init__(image, objects)
        self.image = image
        self.objects = objects

    @classmethod
    def of(cls, params: list[str]) -> ImageLeases:
        """By the words of an argv. Raises ZvaultError."""
        image = ImagePlace.of(params)
        return cls(image, RadosObjects(image))

    def refuse_without_conditions(self, lease: LeaseContent, *, at_once: bool) -> None:
        """Do nothing: RADOS keeps to each condition."""


def raise_epoch(place: ImagePlace, objects: RadosObjects) -> int:
    """Raise the number that each host which gets the lease raises. Raises Busy, StoreError."""
    for _ in range(EPOCH_TRIES):
        number, condition = 0, NO_OBJECT_YET
        with contextlib.suppress(ObjectMissing):
            data, condition, _ = objects.read_aged(place.epoch)
            text = data.decode("ascii", "replace")
            if not is_number(text):
                raise ToolFailed(
                    f"the epoch of {place.image} cannot be read",
                    f"the object {place.epoch} is no number",
                    f"see who wrote it; 'rados -p {place.image.pool} rm {place.epoch}' has it begin anew",
                )
            number = int(text)
        with contextlib.suppress(PreconditionFailed):
            objects.put(place.epoch, str(number + 1).encode(), condition)
            return number + 1
    raise Busy(f"the epoch of {place.image} cannot be raised", "others raise it all the time", "try again")


class LeaseKeeper(HeldLease):
    """Renews one image's lease until it is told to stop."""

    async def keep(self, epoch: int, held: Path) -> None:
        """Renew the lease, then give it back; ``held`` tells the epoch once it is sure. Raises Busy when it is lost."""
        self._heed_signals()
        # The epoch was raised with the lease in hand: so whoever takes it later has a greater one.
        await asyncio.to_thread(self._renew_once)
        _write(held, epoch)
        wait = self.pause
        while not await self._stopped(wait):
            try:
                await asyncio.to_thread(self._renew_once)
            except Busy:
                raise
            except (ZvaultError, LeaseLost) as error:
                log_lease_line(f"the lease could not be renewed, trying again: {error}")
                wait = RENEWAL_RETRY_PAUSE
            else:
                wait = self.pause
        await self._give_back()

    async def _stopped(self, seconds: float) -> bool:
        """Wait so long; whether the keeper is to stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)
        return self.stop.is_set()


def main() -> int:
    parser = make_lease_parser("zvault.devices.rbd.keeper", "show", "take", "keep", "note", "lease", "put")
    parser.add_argument("--bound", type=float, default=0.0)
    parser.add_argument("--etag", default="")
    parser.add_argument("--held", type=Path)
    parser.add_argument("place", nargs="+")
    given = parser.parse_args()
    if given.verb in ("note", "lease", "put"):
        return answer_note(lambda: _notes(given.place), given.verb, given.etag)

    def hold(store: ImageLeases, mine: LeaseContent, etag: str, clock: BootClock) -> None:
        keeper = LeaseKeeper(store, mine, etag, clock)
        asyncio.run(_kept(keeper, raise_epoch(store.image, store.objects), given))

    return run_with_lease(given, lambda: ImageLeases.of(given.place), hold)


def _notes(params: list[str]) -> NoteStore:
    leases = ImageLeases.of(params)
    return NoteStore(leases, leases.objects, leases.image.note)


async def _kept(keeper: LeaseKeeper, epoch: int, given: argparse.Namespace) -> NoReturn:
    code = 0
    try:
        await keeper.keep(epoch, given.held)
    except ZvaultError as error:
        report_lease_error(error, given.report)
        # Whoever waits for it has shut this host's client out of the cluster before.
        await asyncio.to_thread(acknowledge_shutout, keeper.store, keeper.mine)
        code = 1
    os._exit(code)  # not held up by a thread that waits for the cluster


def _write(held: Path, epoch: int) -> None:
    """As a whole, for whoever looks for it at the same time."""
    new = held.with_name(f".{held.name}.new")
    new.write_text(json.dumps({"epoch": epoch}), encoding="utf-8")
    new.replace(held)


if __name__ == "__main__":
    sys.exit(main())
