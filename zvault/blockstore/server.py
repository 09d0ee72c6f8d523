"""A block store as a device's server has it: attached by the words of its command line, and telling how it fares.

Knows nothing of nbdkit; nbdkit_plugin.py does. The status file is one JSON document, made anew each second:

- ``at`` in seconds since the epoch, ``pid``, ``journal`` its folder (None for one that is only read);
- ``ready`` once it serves, ``closed`` once all is in the store and it will end;
- ``error``: why it could not begin, or could not put everything away; kind, what, why, next;
- ``trouble``: what is wrong now, in words; None while all goes well;
- ``engine``: what Engine.status or ReadOnly.status tells; ``requests``: those to the store, by kind (counts.Count);
  both None before it was attached; ``bounds``: the upper bounds of the requests' buckets, in seconds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zvault.blockstore.as_of import AsOf
from zvault.blockstore.attach import attach
from zvault.blockstore.engine import Engine
from zvault.blockstore.format import Superblock
from zvault.blockstore.history import Moment
from zvault.blockstore.locked_bucket import bare_store, see_that_it_locks
from zvault.blockstore.log.journal import NoRoom
from zvault.blockstore.maintenance.recover import moment_of
from zvault.blockstore.options import Options, ReadOptions
from zvault.blockstore.readonly import ReadOnly
from zvault.blockstore.recovery import create, kept_moment, newest_root, superblock
from zvault.config.device_specs.blockstore import MIN_JOURNAL, BlockstoreServer, of_words
from zvault.core.errors import ConfigError, NotFound, Refused, ToolMissing, ZvaultError
from zvault.core.units import format_size
from zvault.object_store.interface import ObjectStore
from zvault.object_store.metered import BOUNDS, MeteredStore
from zvault.object_store.rate_limited import Budget, RateLimitedStore
from zvault.object_store.retrying import RetryingStore
from zvault.object_store.s3_client import S3Settings
from zvault.system.credentials import keys_file
from zvault.system.opener import Opener

if TYPE_CHECKING:
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore
    from zvault.blockstore.encryption.store_key import StoreKey

EVERY = 1.0
"""Seconds between two status files."""

CLOSE_SECONDS = 540.0
"""Seconds to put everything away; the guard kills what takes longer.

See STOP_SECONDS of zvault/devices/nbd/blockstore_server.py."""

IN_MEMORY = frozenset({"tmpfs", "ramfs"})

OWN = frozenset({"status", "create", "readonly", "at", "before", "seen", "user"})
"""Words that are no settings of the block store."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the command line says: the device, where to tell of it, whether it may be made, or is only looked at."""

    spec: BlockstoreServer
    status: Path | None = None
    create: bool = False
    readonly: bool = False
    at: tuple[int, int] | None = None
    """Of which moment it is looked at, by epoch and number of its checkpoint; None: now."""
    before: float | None = None
    """Seconds since the epoch: versions that came later are not believed, and the moment need not be kept."""
    seen: Path | None = None
    """See Options.seen."""
    user: int | None = None
    """Whom the server becomes, where it begins as root: see own_user.py."""

    @classmethod
    def of(cls, words: Sequence[str]) -> ServeOptions:
        """From ``NAME=VALUE``. Raises ConfigError."""
        own = {name: value for name, _, value in (word.partition("=") for word in words)}
        rest = [word for word in words if word.partition("=")[0] not in OWN]
        readonly = own.get("readonly", "no")
        try:
            if readonly not in ("yes", "no"):
                raise ValueError(f"readonly must be yes or no, not {readonly}")
            if readonly == "yes" and own.get("create") == "yes":
                raise ValueError("readonly=yes and create=yes: what is made is written to")
            at = _moment(own["at"]) if own.get("at") else None
            before = float(own["before"]) if own.get("before") else None
            if at is not None and readonly == "no":
                raise ValueError("at= needs readonly=yes: the past is not written to")
            if before is not None and at is None:
                raise ValueError("before= needs at=")
            user = int(own["user"]) if own.get("user") else None
            spec = of_words(rest)
        except ValueError as error:
            raise ConfigError(
                "the block store cannot be served so", str(error), "correct its words"
            ) from error
        status = own.get("status")
        create = own.get("create") == "yes"
        seen = Path(own["seen"]) if own.get("seen") else None
        told = Path(status) if status else None
        return cls(spec, told, create, readonly == "yes", at, before, seen, user)


def _moment(text: str) -> tuple[int, int]:
    epoch, dash, number = text.partition("-")
    if not (dash and epoch.isdecimal() and number.isdecimal()):
        raise ValueError(f"{text} is no epoch and number of a checkpoint, as in at=3-120")
    return int(epoch), int(number)


@dataclass(frozen=True, slots=True)
class ReachedStore:
    """An object store, and what it is looked at with: ``counted`` is next to it, ``patient`` waits for it."""

    patient: RetryingStore
    counted: MeteredStore
    bare: ObjectStore
    """Without patience: for what has to be known at once."""
    encrypted: EncryptedStore | None = None
    """The patient one, where its objects are encrypted."""

    @property
    def objects(self) -> ObjectStore:
        """As the block store sees its objects."""
        return self.patient if self.encrypted is None else self.encrypted


def settings_of(spec: BlockstoreServer) -> S3Settings:
    """How its bucket is talked to. Raises NotFound for a credential that is not there."""
    words = {"bucket": spec.bucket, **dict(word.split("=", 1) for word in spec.settings)}
    sse = spec.setting("sse")
    return replace(
        S3Settings.of_words(words, keys_file(words)),
        storage_class=spec.setting("storage-class") or None,
        sse="aws:kms" if sse == "aws:kms" else "AES256" if sse else None,
        sse_kms_key_id=spec.setting("sse-kms-key-id") or None,
        lock=spec.lock,
    )


def reach(
    spec: BlockstoreServer,
    stopping: threading.Event,
    say: Say,
    opener: Opener | None = None,
    key: StoreKey | None = None,
) -> ReachedStore:
    """Its object store, within its budgets; asks nothing yet. ``opener`` opens what its keys are in.

    ``key``: that its objects are encrypted with; None: they are not.

    Raises ToolMissing, NotFound.
    """
    settings = _opened_by(settings_of(spec), opener)
    counted = MeteredStore(bare_store(settings, spec))
    budget = Budget(spec.requests, spec.bandwidth("upload"), spec.bandwidth("download"), sleep=stopping.wait)
    bare = RateLimitedStore(counted, budget)
    patient = RetryingStore(bare, stopping=stopping, say=say)
    if key is None:
        return ReachedStore(patient, counted, bare)
    objects = encrypted_store(patient, spec.key, key, say)
    return ReachedStore(patient, counted, objects.over(bare), objects)


def as_of(
    store: ObjectStore, encrypted: EncryptedStore | None, prefix: str, before: float
) -> tuple[AsOf, ObjectStore]:
    """A store's bucket as it was then; and the same as the block store sees its objects, with the keys of then."""
    then = AsOf(store, prefix, before)
    return then, then if encrypted is None else encrypted.over(then)


def encryption_key(spec: BlockstoreServer) -> StoreKey | None:
    """The key that its objects are encrypted with; None where they are not. Raises NotFound, ToolMissing, ConfigError.

    May run a program.
    """
    if not spec.encryption:
        return None
    with _cryptography():
        from zvault.blockstore.encryption.key_source import key_of
    return key_of(spec.encryption)


def encrypted_store(store: ObjectStore, prefix: str, key: StoreKey, say: Say) -> EncryptedStore:
    """An object store with its objects encrypted; asks nothing yet. ``say`` is told of those that are not authentic."""
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore, StoreKeys

    return EncryptedStore(store, StoreKeys(prefix, key, say))


@contextlib.contextmanager
def _cryptography() -> Iterator[None]:
    """What only encrypted stores need."""
    try:
        yield
    except ImportError as error:
        raise ToolMissing(
            "an encrypted block store cannot be used",
            f"Python has no {error.name}",
            "apt install python3-cryptography",
        ) from error


def _opened_by(settings: S3Settings, opener: Opener | None) -> S3Settings:
    return settings if opener is None else replace(settings, open_file=opener.read)


def options_of(spec: BlockstoreServer) -> Options:
    """How it is to be attached. Raises Refused for a journal that would not outlive a power cut."""
    if spec.journal is None:
        raise ConfigError("the block store has no journal", "", "give it journal=/path")
    journal, size = Path(spec.journal), spec.journal_size
    kind = file_system(journal)
    if spec.mode == "strict" and kind in IN_MEMORY:
        size = min(size, max(MIN_JOURNAL, free(journal) // 2))
    if spec.mode == "writeback" and kind in IN_MEMORY:
        raise Refused(
            f"{journal} is no place for a journal",
            f"it is in memory ({kind}), and with mode=writeback it holds what is nowhere else yet",
            "name a folder on a disk by journal=, or leave mode=strict",
        )
    return Options(
        journal=journal,
        mode=spec.mode,
        journal_size=size,
        cache=Path(spec.cache) if spec.cache is not None else None,
        cache_size=spec.cache_size,
        memory=spec.memory,
        uploads=spec.uploads,
        history=spec.history,
        lock=spec.lock,
        gc_elsewhere=spec.gc_elsewhere,
    )


def read_options_of(spec: BlockstoreServer) -> ReadOptions:
    """How it is to be looked at only."""
    cache = Path(spec.cache) if spec.cache is not None else None
    return ReadOptions(cache, spec.cache_size, spec.memory, max(8, 2 * spec.uploads))


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of file system that a path is in, or will be; "" where it cannot be told."""
    real, kind, longest = str(path.resolve()), "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/")
        if (real == point or real.startswith(f"{point}/")) and len(point) >= longest:
            kind, longest = found, len(point)
    return kind


def free(path: Path) -> int:
    """Bytes that there is room for where a path is, or will be."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return shutil.disk_usage(there).free


def owner() -> str:
    """Who writes, as others are told."""
    return f"{socket.gethostname()}, process {os.getpid()}"


class ServedDevice:
    """One device that is being served."""

    def __init__(self, words: ServeOptions, say: Say) -> None:
        self.words = words
        self.device: Engine | ReadOnly | None = None
        self._say = say
        self._stopping = threading.Event()
        self._reached: ReachedStore | None = None
        self._error: dict[str, str] | None = None
        self._closed = False
        self._told = threading.Event()
        self._writing = threading.Lock()
        self._complaint = ""
        self._opener: Opener | None = None
        self._names: Mapping[str, str] = {}
        self._key: StoreKey | None = None

    def take_key(self) -> None:
        """Have the key to its objects in memory, if they are encrypted: later it may be out of reach.

        Raises ZvaultError.
        """
        try:
            self._key = self._key or encryption_key(self.words.spec)
        except BaseException as error:
            if self.words.status is not None:
                with contextlib.suppress(OSError):
                    self.words.status.parent.mkdir(mode=0o700, exist_ok=True)
            self._fail(error)
            raise

    def become(self, words: ServeOptions, opener: Opener, names: Mapping[str, str]) -> None:
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
        options: Options | ReadOptions = read_options_of(spec) if self.words.readonly else self._options()
        self.take_key()
        if self._reached is None:
            self._reached = reach(spec, self._stopping, self._say, self._opener, self._key)
        if isinstance(options, Options):
            see_that_it_locks(self._settings())
        elif self.words.before is not None and self.words.at is not None:
            self._begin_as_of(self.words.before, self.words.at, options, self._reached)
            return
        what = self._there(self._reached.bare)
        if spec.size not in (None, what.size):
            raise Refused(
                f"the block store in {place(spec)} has {format_size(what.size)}",
                f"size={spec.setting('size')} says otherwise, and a store keeps the size that it was made with",
                f"write size={format_size(what.size)}",
            )
        patient, counted = self._reached.objects, self._reached.counted
        if isinstance(options, ReadOptions):
            at = None if self.words.at is None else kept_moment(patient, spec.key, what, *self.words.at)
            self.device = ReadOnly(patient, spec.key, what, options, self._say, place=place(spec), at=at)
            self._say(f"serving {self.device}, read-only: {self.device.shows}")
        else:
            if self._reached.encrypted is not None:
                self._reached.encrypted.keep_copy()
            self.device = attach(patient, spec.key, options, owner(), self._say)
            self.device.requests = counted.totals
        self._serving()

    def _begin_as_of(
        self, before: float, at: tuple[int, int], options: ReadOptions, reached: ReachedStore
    ) -> None:
        """What there was, by the versions of then, whatever is there now."""
        spec = self.words.spec
        _, then = as_of(reached.patient, reached.encrypted, spec.key, before)
        what = superblock(then, spec.key)
        moment = moment_of(then, spec.key, what, *at)
        self.device = ReadOnly(then, spec.key, what, options, self._say, place=place(spec), at=moment)
        self._say(
            f"serving {self.device}, read-only: checkpoint {at[1]} of epoch {at[0]}, by versions of then"
        )
        self._serving()

    def past(self) -> list[Moment]:
        """The moments that are kept, without serving anything and without patience. Raises NotFound, StoreError."""
        spec = self.words.spec
        reached = reach(spec, self._stopping, self._say, self._opener, self._key)
        return newest_root(reached.bare, spec.key, superblock(reached.bare, spec.key)).past

    def _serving(self) -> None:
        self.write_status()
        threading.Thread(target=self._tell, name="status", daemon=True).start()

    def _settings(self) -> S3Settings:
        return _opened_by(settings_of(self.words.spec), self._opener)

    def _options(self) -> Options:
        opens = self._opener.write if self._opener is not None else None
        return replace(options_of(self.words.spec), seen=self.words.seen, open_position=opens)

    def _there(self, store: ObjectStore) -> Superblock:
        """What the store is, which is made if that is asked for."""
        spec = self.words.spec
        try:
            return superblock(store, spec.key)
        except NotFound as error:
            if not self.words.create:
                raise NotFound(
                    f"there is no block store in {place(spec)}",
                    error.why,
                    "'zvaultctl vault create' makes it with the vault; if there was one, see the bucket and the key",
                ) from error
        if spec.encryption:
            raise Refused(
                f"no encrypted block store is made in {place(spec)}",
                "it has a recovery key, which is shown once, to whoever makes the store",
                "make it with 'zvaultctl blockstore create', and keep what that shows; then go on",
            )
        if spec.size is None:
            what = f"the block store in {place(spec)} cannot be made"
            raise Refused(what, "its size is not known", f"add size=10T to {spec}")
        self._say(f"making a block store of {format_size(spec.size)} in {place(spec)}")
        return create(store, spec.key, spec.size)

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
        while not self._told.wait(EVERY):
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


def place(spec: BlockstoreServer) -> str:
    """Where its objects are, in words."""
    return f"s3://{spec.bucket}/{spec.key}" + (f" at {spec.endpoint}" if spec.endpoint else "")


def number_of(error: BaseException) -> int:
    """The errno that a client is told. Of a full disk below the journal it can do something."""
    return errno.ENOSPC if isinstance(error, NoRoom) else errno.EIO


def say(text: str) -> None:
    """To the unit's journal, on one line."""
    print(" ".join(text.split()), file=sys.stderr, flush=True)  # noqa: T201 - the unit's journal
