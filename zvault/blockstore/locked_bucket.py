"""The buckets of a block store: that of its objects, which may lock them, and that which says who writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from zvault.blockstore.recovery import WriterEpoch
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.core.errors import Refused
from zvault.object_store.apart_store import ApartStore
from zvault.object_store.conditions import ROUNDS, Puts, find_fault, try_conditions
from zvault.object_store.interface import ObjectStore
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings


def open_bare_store(settings: S3Settings, spec: BlockstoreServer) -> ObjectStore:
    """Its objects, wherever they are, without any patience. Raises ToolMissing."""
    objects = S3Store(settings)
    if spec.lease_bucket == spec.bucket:
        return objects
    apart = S3Store(replace(settings, bucket=spec.lease_bucket, lock=None))
    return ApartStore(objects, apart, WriterEpoch.key(spec.key))


def writers_bucket(settings: S3Settings, spec: BlockstoreServer) -> S3Store:
    """The bucket that says who writes, without any patience. Raises ToolMissing."""
    return S3Store(replace(settings, bucket=spec.lease_bucket, lock=None))


def see_that_conditions_hold(
    bucket: Puts, spec: BlockstoreServer, say: Callable[[str], None] | None = None
) -> None:
    """See that the bucket that says who writes keeps to conditional puts. Raises Refused, StoreError.

    Without them a second writer is not shut out: each takes the other's segments for its own. ``say`` is told of a
    store that keeps to them one after the other and not at once, which does for a single host; without it nothing is
    tried at once.
    """
    results = try_conditions(bucket, f"{spec.key}.conditions", rounds=0 if say is None else ROUNDS)
    fault = find_fault(results)
    if fault is None:
        return
    if fault.is_race and say is not None:
        say(f"only one host may ever use {spec}: {fault.what}, {fault.came}")
        return
    raise Refused(
        f"s3://{spec.lease_bucket} is no place for a block store",
        f"{fault.what}: {fault.came}; so a writer that was shut out would go on unseen",
        "use a store that keeps to conditional puts; 'zvaultctl blockstore probe' tells",
    )


def require_locking(settings: S3Settings) -> None:
    """See that the bucket can lock what is put there, where that is wanted. Raises Refused, StoreError.

    Where the store does not say, or not to this key, the first put tells.
    """
    if settings.lock is None:
        return
    if S3Store(settings).bucket_lock().enabled is False:
        raise Refused(
            f"the bucket {settings.bucket} does not lock objects",
            "it has no object lock, and lock= of the device wants one",
            "make another bucket with object lock, which most stores only have from its beginning, or leave lock= out",
        )
