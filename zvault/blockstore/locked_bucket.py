"""The buckets of a block store: that of its objects, which may lock them, and that which says who writes."""

from __future__ import annotations

from dataclasses import replace

from zvault.blockstore.recovery import Epoch
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.core.errors import Refused
from zvault.object_store.apart import ApartStore
from zvault.object_store.interface import ObjectStore
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings


def bare_store(settings: S3Settings, spec: BlockstoreServer) -> ObjectStore:
    """Its objects, wherever they are, without any patience. Raises ToolMissing."""
    objects = S3Store(settings)
    if spec.lease_bucket == spec.bucket:
        return objects
    apart = S3Store(replace(settings, bucket=spec.lease_bucket, lock=None))
    return ApartStore(objects, apart, Epoch.key(spec.key))


def see_that_it_locks(settings: S3Settings) -> None:
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
