"""A block store as a device's server has it: attached by the words of its command line, and telling how it fares.

Knows nothing of nbdkit; nbdkit_plugin.py does. The status file is one JSON document, made anew each second:

- ``at`` in seconds since the epoch, ``pid``, ``journal`` its folder (None for one that is only read);
- ``ready`` once it serves, ``closed`` once all is in the store and it will end;
- ``error``: why it could not begin, or could not put everything away; kind, what, why, next;
- ``trouble``: what is wrong now, in words; None while all goes well;
- ``engine``: what BlockEngine.status or ReadOnlyDevice.status tells; ``requests``: those to the store, by kind
  (counts.Count);
  both None before it was attached; ``bounds``: the upper bounds of the requests' buckets, in seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import Superblock
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.latest_device import READ_PATIENCE, LatestDevice
from zvault.blockstore.locked_bucket import require_locking, see_that_conditions_hold, writers_bucket
from zvault.blockstore.log.journal import JournalDiskFull
from zvault.blockstore.maintenance.recover import read_found_moment
from zvault.blockstore.options import EngineOptions, ReadOptions
from zvault.blockstore.reached_store import (
    ReachedStore,
    Say,
    describe_place,
    make_s3_settings,
    open_bucket_as_of,
    open_keys_by,
    reach_store,
    read_encryption_key,
)
from zvault.blockstore.readonly_device import ReadOnlyDevice
from zvault.blockstore.recovery import create_store, read_kept_moment, read_newest_root, read_superblock
from zvault.blockstore.serve_options import ServeOptions, make_engine_options, make_read_options
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.printable import make_printable
from zvault.core.units import format_size
from zvault.object_store.interface import ObjectStore
from zvault.object_store.metered_store import BOUNDS
from zvault.object_store.s3_settings import S3Settings
from zvault.system.opener import FileOpener

if TYPE_CHECKING:
    from zvault.blockstore.encryption.store_key import StoreKey

STATUS_FILE_INTERVAL = 1.0
"""Seconds between two status files."""

CLOSE_SECONDS = 540.0
"""Seconds to put everything away; the guard kills what takes longer.

See STOP_SECONDS of zvault/devices/nbd/blockstore_server.py."""


def name_owner() -> str:
    """Return who writes, as others are told."""
    return f"{socket.gethostname()}, process {os.getpid()}"


class ServedDevice:
    """One device that is being served."""

    def __init__(self, words: ServeOptions, say: Say) -> None:
        self.words = words
        self.device: BlockEngine | ReadOnlyDevice | LatestDevice | None = None
        self._say = say
        self._stopping = threading.Event()
        self._attaching = threading.Lock()
        self._reached: ReachedStore | None = None
        self._error: dict[str, str] | None = None
        self._closed = False
        self._told = threading.Event()
        self._writing = threading.Lock()
        self._complaint = ""
        self._opener: FileOpener | None = None
        self._names: Mapping[str, str] = {}
        self._key: StoreKey | None = None

    def take_key(self) -> None:
        """Have the key to its objects in memory, if they are encrypted: later it may be out of reach.

        Raises ZvaultError.
        """
        try:
            self._key = self._key or read_encryption_key(self.words.spec)
        except BaseException as error:
            if self.words.status is not None:
                with contextlib.suppress(OSError):
                    self.words.status.parent.mkdir(mode=0o700, exist_ok=True)
            self._fail(error)
            raise

    def become(self, words: ServeOptions, opener: FileOpener, names: Mapping[str, str]) -> None:
        """Go on with other words, for the same folders: ``names`` are their own, by those in ``words``."""
        self.words, self._opener, self._names = words, opener, names
        say = self._say
        self._say = lambda text: say(self.named(text))

    def named(self, text: str) -> str:
        """With the names that folders have for whoever reads it."""
        return re.sub(r"/proc/self/fd/\d+", lambda found: self._names.get(found[0], found[0]), text)

    def begin(self) -> None:
        """Attach, and make the store before if that is asked for and there is none. Raises ZvaultError."""
        try:
            self._begin()
        except BaseException as error:
            self._fail(error)
            raise

    def _begin(self) -> None:
        spec = self.words.spec
        options: EngineOptions | ReadOptions = (
            make_read_options(spec) if self.words.readonly else self._options()
        )
        self.take_key()
        if self._reached is None:
            bound = READ_PATIENCE if self.words.latest else None
            self._reached = reach_store(spec, self._stopping, self._say, self._opener, self._key, bound=bound)
        if isinstance(options, EngineOptions):
            require_locking(self._settings())
            if self.words.tries_conditions:
                see_that_conditions_hold(writers_bucket(self._settings(), spec), spec)
        elif self.words.before is not None and self.words.at is not None:
            self._begin_as_of(self.words.before, self.words.at, options, self._reached)
            return
        what = self._there(self._reached.bare)
        if spec.size not in (None, what.size):
            raise Refused(
                f"the block store in {describe_place(spec)} has {format_size(what.size)}",
                f"size={spec.setting('size')} says otherwise, and a store keeps the size that it was made with",
                f"write size={format_size(what.size)}",
            )
        patient, counted = self._reached.objects, self._reached.counted
        if isinstance(options, ReadOptions) and self.words.latest:
            self.device = LatestDevice(patient, spec.key, options, self._say, place=describe_place(spec))
            self._say(f"serving {self.device}, read-only: {self.device.shows}")
        elif isinstance(options, ReadOptions):
            at = None if self.words.at is None else read_kept_moment(patient, spec.key, what, *self.words.at)
            self.device = ReadOnlyDevice(
                patient, spec.key, what, options, self._say, place=describe_place(spec), at=at
            )
            self._say(f"serving {self.device}, read-only: {self.device.shows}")
        else:
            if self._reached.encrypted is not None:
                self._reached.encrypted.keep_copy()
            self.device = attach_store(patient, spec.key, options, name_owner(), self._say, counted.totals)
        self._serving()

    def _begin_as_of(
        self, before: float, at: tuple[int, int], options: ReadOptions, reached: ReachedStore
    ) -> None:
        """What there was, by the versions of then, whatever is there now."""
        spec = self.words.spec
        _, then = open_bucket_as_of(reached.patient, reached.encrypted, spec.key, before)
        what = read_superblock(then, spec.key)
        moment = read_found_moment(then, spec.key, what, *at)
        self.device = ReadOnlyDevice(
            then, spec.key, what, options, self._say, place=describe_place(spec), at=moment
        )
        self._say(
            f"serving {self.device}, read-only: checkpoint {at[1]} of epoch {at[0]}, by versions of then"
        )
        self._serving()

    def give_up_attaching(self) -> None:
        """Have ``begin`` wait for the store no more, where it has not attached yet: it has nothing to put away."""
        with self._attaching:
            if self.device is None:
                self._stopping.set()

    def past(self) -> list[KeptMoment]:
        """The moments that are kept, without serving anything and without patience. Raises NotFound, StoreError."""
        spec = self.words.spec
        reached = reach_store(spec, self._stopping, self._say, self._opener, self._key)
        return read_newest_root(reached.bare, spec.key, read_superblock(reached.bare, spec.key)).past

    def _serving(self) -> None:
        with self._attaching:
            self._stopping.clear()  # it came to be attached all the same, and has patience to put everything away
        self.write_status()
        threading.Thread(target=self._tell, name="status", daemon=True).start()

    def _settings(self) -> S3Settings:
        return open_keys_by(make_s3_settings(self.words.spec), self._opener)

    def _options(self) -> EngineOptions:
        opens = self._opener.write if self._opener is not None else None
        options = make_engine_options(self.words.spec)
        name = self.named(str(options.journal))
        return replace(options, seen=self.words.seen, open_position=opens, journal_name=name)

    def _there(self, store: ObjectStore) -> Superblock:
        """What the store is, which is made if that is asked for."""
        spec = self.words.spec
        try:
            return read_superblock(store, spec.key)
        except NotFound as error:
            if not self.words.create:
                raise NotFound(
                    f"there is no block store in {describe_place(spec)}",
                    error.why,
                    "'zvaultctl vault create' makes it with the vault; if there was one, see the bucket and the key",
                ) from error
        if spec.encryption:
            raise Refused(
                f"no encrypted block store is made in {describe_place(spec)}",
                "it has a recovery key, which is shown once, to whoever makes the store",
                "make it with 'zvaultctl blockstore create', and keep what that shows; then go on",
            )
        if spec.size is None:
            what = f"the block store in {describe_place(spec)} cannot be made"
            raise Refused(what, "its size is not known", f"add size=10T to {spec}")
        self._say(f"making a block store of {format_size(spec.size)} in {describe_place(spec)}")
        return create_store(store, spec.key, spec.size)

    def close(self) -> None:
        """Put everything into the store. Raises ZvaultError when that cannot be done in CLOSE_SECONDS."""
        if self.device is None:
            return
        enough = threading.Timer(CLOSE_SECONDS, self._stopping.set)
        enough.daemon = True
        enough.start()
        try:
            self.device.close()
            self._closed = True
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            enough.cancel()
            self._told.set()
            self.write_status()

    # How it fares

    def status(self) -> dict[str, Any]:
        """As the status file holds it."""
        engine, trouble = None, self._reached.patient.trouble if self._reached is not None else None
        if self.device is not None:
            try:
                engine = self.device.status()
                trouble = engine.get("trouble") or trouble
            except (ZvaultError, OSError) as error:
                trouble = str(error)
        requests = self._reached.counted.counts() if engine is not None and self._reached else {}
        return {
            "at": time.time(),
            "pid": os.getpid(),
            "journal": None if self.words.readonly else self.words.spec.journal,
            "ready": self.device is not None and self._error is None and not self._closed,
            "closed": self._closed,
            "error": self._error,
            "trouble": trouble,
            "engine": engine,
            "requests": {kind: count.as_dict() for kind, count in requests.items()} or None,
            "bounds": BOUNDS,
        }

    def write_status(self) -> None:
        """Make the status file anew, in one step. What goes wrong is only told, once: the device goes on."""
        file = self.words.status
        if file is None:
            return
        scratch = file.with_name(f".{file.name}")
        try:
            with self._writing:
                scratch.write_text(json.dumps(_renamed(self.status(), self.named)), encoding="utf-8")
                scratch.replace(file)
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self._say(f"{file} cannot be written: {error}")

    def _tell(self) -> None:
        while not self._told.wait(STATUS_FILE_INTERVAL):
            self.write_status()

    def _fail(self, error: BaseException) -> None:
        kind, what, why, next_ = type(error).__name__, f"{type(error).__name__}: {error}", "", ""
        if isinstance(error, ZvaultError):
            what, why, next_ = error.what, error.why, error.next
        self._error = {"kind": kind, "what": what, "why": why, "next": next_}
        self._told.set()
        with contextlib.suppress(Exception):
            self.write_status()


def _renamed(value: Any, named: Callable[[str], str]) -> Any:
    """A JSON document with its texts changed."""
    if isinstance(value, str):
        return named(value)
    if isinstance(value, Mapping):
        return {key: _renamed(one, named) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(one, named) for one in value]
    return value


def choose_errno(error: BaseException) -> int:
    """The errno that a client is told. Of a full disk below the journal it can do something."""
    return errno.ENOSPC if isinstance(error, JournalDiskFull) else errno.EIO


def log_server_line(text: str) -> None:
    """To the unit's journal, on one line."""
    print(make_printable(" ".join(text.split()), keep=""), file=sys.stderr, flush=True)  # noqa: T201 - the unit's journal
