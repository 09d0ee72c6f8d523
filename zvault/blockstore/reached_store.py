"""The object store of a block store, as its settings say: with its keys, within its budgets, encrypted or not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zvault.blockstore.bucket_as_of import BucketAsOf
from zvault.blockstore.locked_bucket import open_bare_store
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.core.errors import ToolMissing
from zvault.object_store.interface import ObjectStore
from zvault.object_store.metered_store import MeteredStore
from zvault.object_store.request_budget import RequestBudget
from zvault.object_store.retrying_store import RetryingStore
from zvault.object_store.s3_settings import S3Settings
from zvault.system.credentials import find_keys_file
from zvault.system.opener import FileOpener

if TYPE_CHECKING:
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore
    from zvault.blockstore.encryption.store_key import StoreKey

Say = Callable[[str], None]


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


def make_s3_settings(spec: BlockstoreServer) -> S3Settings:
    """Return the settings for talking to its bucket. Raises NotFound for a credential that is not there."""
    words = {"bucket": spec.bucket, **dict(word.split("=", 1) for word in spec.settings)}
    sse = spec.setting("sse")
    return replace(
        S3Settings.of_words(words, find_keys_file(words)),
        storage_class=spec.setting("storage-class") or None,
        sse="aws:kms" if sse == "aws:kms" else "AES256" if sse else None,
        sse_kms_key_id=spec.setting("sse-kms-key-id") or None,
        lock=spec.lock,
    )


def reach_store(
    spec: BlockstoreServer,
    stopping: threading.Event,
    say: Say,
    opener: FileOpener | None = None,
    key: StoreKey | None = None,
    *,
    bound: float | None = None,
) -> ReachedStore:
    """Its object store, within its budgets; asks nothing yet. ``opener`` opens what its keys are in.

    ``key``: that its objects are encrypted with; None: they are not. ``bound``: seconds that a read is tried again, of
    which each try waits as long; None: for ever.

    Raises ToolMissing, NotFound.
    """
    settings = open_keys_by(make_s3_settings(spec), opener)
    if bound is not None:
        settings = replace(settings, read_seconds=bound)
    counted = open_metered_store(settings, spec, stopping)
    patient = RetryingStore(counted, stopping=stopping, say=say, bound=bound)
    if key is None:
        return ReachedStore(patient, counted, counted)
    objects = encrypt_store(patient, spec.key, key, say)
    return ReachedStore(patient, counted, objects.over(counted), objects)


def open_metered_store(
    settings: S3Settings, spec: BlockstoreServer, stopping: threading.Event
) -> MeteredStore:
    """Its object store without patience, within its budgets; asks nothing yet. Raises ToolMissing, NotFound."""
    budget = RequestBudget(
        spec.requests, spec.bandwidth("upload"), spec.bandwidth("download"), sleep=stopping.wait
    )
    return MeteredStore(open_bare_store(settings, spec), budget=budget)


def open_bucket_as_of(
    store: ObjectStore, encrypted: EncryptedStore | None, prefix: str, before: float
) -> tuple[BucketAsOf, ObjectStore]:
    """A store's bucket as it was then; and the same as the block store sees its objects, with the keys of then."""
    then = BucketAsOf(store, prefix, before)
    return then, then if encrypted is None else encrypted.over(then)


def read_encryption_key(spec: BlockstoreServer) -> StoreKey | None:
    """The key that its objects are encrypted with; None where they are not. Raises NotFound, ToolMissing, ConfigError.

    May run a program.
    """
    if not spec.encryption:
        return None
    with _cryptography():
        from zvault.blockstore.encryption.key_source import read_store_key
    return read_store_key(spec.encryption)


def encrypt_store(store: ObjectStore, prefix: str, key: StoreKey, say: Say) -> EncryptedStore:
    """An object store with its objects encrypted; asks nothing yet. ``say`` is told of those that are not authentic."""
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore, StoreKeyring

    return EncryptedStore(store, StoreKeyring(prefix, key, say))


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


def open_keys_by(settings: S3Settings, opener: FileOpener | None) -> S3Settings:
    """The same, with its keys opened by ``opener``, if there is one."""
    return settings if opener is None else replace(settings, open_file=opener.read)


def describe_place(spec: BlockstoreServer) -> str:
    """Say in words where its objects are."""
    return f"s3://{spec.bucket}/{spec.key}" + (f" at {spec.endpoint}" if spec.endpoint else "")
