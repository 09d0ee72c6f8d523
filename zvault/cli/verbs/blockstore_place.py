"""Block stores as zvaultctl is told of them: ``zvault:BUCKET/KEY …``, or a vault of the configuration."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zvault.cli.output import print_trouble
from zvault.core.errors import ConfigError, NotFound, Refused

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from zvault.blockstore.bucket_as_of import BucketAsOf
    from zvault.blockstore.options import EngineOptions
    from zvault.config.device_specs.blockstore import BlockstoreServer
    from zvault.core.cost.prices import StorePrices
    from zvault.object_store.conditions import Puts
    from zvault.object_store.interface import ObjectStore

READ_RETRY_TIME = 60.0
"""Seconds that a request which reads is tried again and again."""
FIRST_BOUND = 10.0
"""Seconds that the first request is tried again: a person waits, and a wrong endpoint never answers."""
UPLOADS_AT_ONCE = 4
SCRATCH_JOURNAL_SIZE = 256 << 20


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A store by its words; ``journal`` is the folder of the server of a vault that has one in memory.

    ``vault`` and ``pool``: whose it is, by the configuration; "" for one that is told by its words.
    """

    spec: BlockstoreServer
    journal: Path | None = None
    prices: StorePrices | None = None
    vault: str = ""
    pool: str = ""

    def __str__(self) -> str:
        from zvault.blockstore.reached_store import describe_place

        return describe_place(self.spec)


def find_store(text: str) -> StorePlace:
    """The place that a word names. Raises ConfigError, NotFound, Refused."""
    from zvault.config.device_specs.blockstore import parse_blockstore

    if not text.startswith("zvault:"):
        return _of_vault(text)
    try:
        return StorePlace(parse_blockstore(text.removeprefix("zvault:")))
    except ValueError as error:
        raise ConfigError(f"{text} is no place of a block store", str(error), "correct its words") from error


def _of_vault(text: str) -> StorePlace:
    from zvault.config.device_specs.blockstore import BlockstoreServer
    from zvault.config.load_config import load_config
    from zvault.config.paths import Paths
    from zvault.devices.layer import DeviceSlot
    from zvault.devices.nbd.blockstore_server import find_memory_journal

    paths = Paths()
    name, _, number = text.partition("/")
    config = load_config(paths)
    vault = config.vault.get(name)
    if vault is None:
        known = ", ".join(config.vault) or "none"
        following = "name one of them, or a place, as in 'zvault:attic/cold endpoint=https://s3.example.org'"
        raise NotFound(f"there is no vault '{name}'", f"the configuration has {known}", following)
    stores = {index: one for index, one in enumerate(vault.device) if isinstance(one.nbd, BlockstoreServer)}
    if number:
        stores = {index: one for index, one in stores.items() if str(index) == number}
    if len(stores) != 1:
        why = f"{len(stores)} of its devices are block stores" + (f" of number {number}" if number else "")
        raise Refused(f"'{text}' is no block store", why, f"name one by its number, as in {name}/0")
    ((index, device),) = stores.items()
    spec = device.nbd
    if not isinstance(spec, BlockstoreServer):
        raise TypeError(spec)
    server = DeviceSlot(name, index, paths.run / "device").server
    journal = None if spec.journal is not None else find_memory_journal(server, spec)
    prices = device.prices.as_prices() if device.prices is not None else None
    return StorePlace(spec, journal, prices, name, vault.pool)


def reach_objects(place: StorePlace) -> ObjectStore:
    """Its object store, which waits a while for answers; encrypted, where it is. Raises ToolMissing, NotFound."""
    from zvault.blockstore.reached_store import encrypt_store, read_encryption_key

    key = read_encryption_key(place.spec)
    bare = reach_bare_objects(place)
    return bare if key is None else encrypt_store(bare, place.spec.key, key, print_trouble)


def reach_objects_as_of(place: StorePlace, before: float) -> tuple[BucketAsOf, ObjectStore]:
    """Its bucket as it was at a time, in seconds since the epoch; and the same decrypted, where it is encrypted."""
    from zvault.blockstore.reached_store import encrypt_store, open_bucket_as_of, read_encryption_key

    key, bare = read_encryption_key(place.spec), reach_bare_objects(place)
    encrypted = None if key is None else encrypt_store(bare, place.spec.key, key, print_trouble)
    return open_bucket_as_of(bare, encrypted, place.spec.key, before)


def reach_bare_objects(place: StorePlace) -> ObjectStore:
    """The same, with its objects as they are."""
    import threading

    from zvault.blockstore.reached_store import make_s3_settings, open_metered_store
    from zvault.object_store.retrying_store import RetryingStore

    spec, stopping = place.spec, threading.Event()
    bare = open_metered_store(make_s3_settings(spec), spec, stopping)
    return RetryingStore(
        bare, stopping=stopping, say=print_trouble, patience=0, bound=READ_RETRY_TIME, first_bound=FIRST_BOUND
    )


def reach_writers_bucket(place: StorePlace) -> Puts:
    """The bucket that says who writes, without any patience. Raises ToolMissing, NotFound."""
    from zvault.blockstore.locked_bucket import writers_bucket
    from zvault.blockstore.reached_store import make_s3_settings

    return writers_bucket(make_s3_settings(place.spec), place.spec)


def start_workers(count: int = 8) -> ThreadPoolExecutor:
    """Threads that ask the object store; to be opened as a context manager."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(count)


def find_lease_holder(place: StorePlace) -> tuple[str | None, bool]:
    """Return who has the lease beside it, and whether that is this host. Raises ZvaultError.

    None where nobody has it, "" where there is none.
    """
    from zvault.devices.s3_lease import lease_object

    spec = place.spec
    seen = lease_object.LeaseObjectStore(
        lease_object.BucketPlace.of([f"bucket={spec.bucket}", f"key={spec.key}", *spec.settings])
    ).read()
    if seen is None:
        return "", False
    owner = seen.lease.owner() if seen.lease.held and not seen.is_expired() else None
    return owner, lease_object.is_own_lease(seen.lease)


def refuse_store_in_use(place: StorePlace, what: str, epoch_owner: str, *, yes: bool) -> None:
    """See that no server has the store that is to be taken. Raises Refused, ZvaultError."""
    owner, is_ours = find_lease_holder(place)
    if owner and is_ours:
        name = f"zvaultctl vault down {place.vault}" if place.vault else "take the vault down"
        following = f"'{name}' on this host gives the lease back; if its server died, it runs out by itself"
        raise Refused(f"the block store in {place} is in use here, and cannot be {what}", owner, following)
    if owner:
        following = "take the vault down there; 'zvaultctl vault take' takes it from a host that died"
        raise Refused(f"the block store in {place} is in use, and cannot be {what}", owner, following)
    if owner == "" and epoch_owner and not yes:
        raise Refused(
            f"whether the block store in {place} is in use cannot be told",
            f"there is no lease beside it; {epoch_owner} had it last, and could not write to it any more",
            "if nobody uses it, say so with --yes",
        )


def name_this_writer(verb: str) -> str:
    """Return who writes, as others are told."""
    import socket

    return f"{socket.gethostname()}, zvaultctl blockstore {verb}, process {os.getpid()}"


@contextlib.contextmanager
def make_attach_options(place: StorePlace) -> Iterator[EngineOptions]:
    """Give the options to attach it with: with its own journal where that is, which may have what the store lacks.

    Raises Busy later.
    """
    from dataclasses import replace

    from zvault.blockstore.options import EngineOptions
    from zvault.blockstore.serve_options import make_engine_options, read_boot_bytes

    spec = place.spec
    folder, seen = spec.journal or place.journal, find_positions_folder()
    locked: dict[str, Any] = {"lock": spec.lock, "gc_elsewhere": spec.gc_elsewhere, "boot": read_boot_bytes()}
    if place.spec.journal is not None:
        yield replace(make_engine_options(place.spec), seen=seen)
    elif folder is not None and Path(folder).is_dir():
        size, uploads = spec.journal_size, spec.uploads
        yield EngineOptions(Path(folder), journal_size=size, uploads=uploads, seen=seen, **locked)
    else:
        with make_scratch_options(place) as it:
            yield replace(it, seen=seen, boot=read_boot_bytes())


def find_positions_folder() -> Path:
    """The folder where this host keeps how far it knows stores to have come."""
    from zvault.config.paths import Paths

    return Paths().blockstore_positions


@contextlib.contextmanager
def make_scratch_options(place: StorePlace) -> Iterator[EngineOptions]:
    """Options with a journal that nobody needs afterwards, for a store in this place."""
    import tempfile

    from zvault.blockstore.options import EngineOptions

    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own in it
    folder = memory if os.access(memory, os.W_OK) else None
    with _ending_in_order(), tempfile.TemporaryDirectory(prefix="zvault-journal-", dir=folder) as name:
        journal, lock = Path(name) / "journal", place.spec.lock
        elsewhere = place.spec.gc_elsewhere
        yield EngineOptions(
            journal,
            journal_size=SCRATCH_JOURNAL_SIZE,
            uploads=UPLOADS_AT_ONCE,
            lock=lock,
            gc_elsewhere=elsewhere,
        )


@contextlib.contextmanager
def _ending_in_order() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end what the block does as an error would: memory that it had is given back."""
    import signal
    import threading

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    ends = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if here and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ends:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)
