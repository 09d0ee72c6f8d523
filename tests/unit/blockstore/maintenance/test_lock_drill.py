"""The drill against buckets that keep what they say, and against those that only seem to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.unit.blockstore.locked_store import LOCK, POOL, opened
from tests.unit.blockstore.test_kept_moments import NOON
from tests.unit.object_store.locking_store import LockingStore
from zvault.blockstore.bucket_as_of import BucketAsOf
from zvault.blockstore.format import BLOCK_SIZE
from zvault.blockstore.maintenance.lock_drill import DRILL_LOCK_TIME, DrillAttempt, drill_locks
from zvault.blockstore.maintenance.recover import find_last_whole
from zvault.blockstore.recovery import create_store
from zvault.core.errors import NotFound
from zvault.core.policy.object_lock import LOCK_SPAN_FACTOR, ObjectLock
from zvault.object_store.interface import Buffer, StoreDenied
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_versions import VersionLock

HOUR = 3600.0


class Bucket(LockingStore):
    """What S3Store has beyond ObjectStore."""

    def now(self) -> float:
        return self.clock()

    def lock_of(self, key: str, version: str) -> VersionLock | None:
        one = self._version(key, version)
        return VersionLock(one.mode, one.until) if one.mode else None  # type: ignore[arg-type]

    def bypass(self, key: str, version: str) -> None:
        raise StoreDenied("it is not removed", "the store answers 403 AccessDenied", "")


class Redating(Bucket):
    """VersityGW: a version that is hidden has the date of that."""

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        self._hide(key)
        return super().put(key, data, condition)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._hide(key)
        super().delete(keys)

    def _hide(self, key: str) -> None:
        if self.kept.get(key):
            self.kept[key][-1].modified = self.clock()


class Reordering(Bucket):
    """The newest version is listed as the oldest."""

    def _add(self, key: str, data: bytes | None) -> None:
        super()._add(key, data)
        if data is not None:
            self.kept[key].insert(0, self.kept[key].pop())


def lived(kind: Callable[..., Bucket], folder: Path) -> tuple[Bucket, list[float]]:
    now = [NOON]
    bucket = kind(lambda: now[0], LOCK)
    create_store(bucket, "vault", 1 << 20)
    engine = opened(bucket, folder, now)
    engine.write(0, b"k" * BLOCK_SIZE)
    engine.put_all()
    engine.close()
    return bucket, now


def drilled(bucket: Bucket, now: list[float]) -> list[DrillAttempt]:
    objects = LockingStore(bucket.clock, LOCK)
    objects.kept, objects.objects = bucket.kept, bucket.objects
    bucket.lock = ObjectLock(LOCK.mode, DRILL_LOCK_TIME / LOCK_SPAN_FACTOR)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return drill_locks(cast(S3Store, bucket), objects, "vault", LOCK, pool=POOL, sleep=sleep)


def test_a_bucket_that_keeps_all_passes(tmp_path: Path) -> None:
    bucket, now = lived(Bucket, tmp_path)
    tried = drilled(bucket, now)
    assert [one.what for one in tried if not one.well] == []
    assert len(tried) == 8


@pytest.mark.parametrize(
    ("kind", "came"),
    [(Redating, "another date"), (Reordering, "listed as the oldest")],
    ids=["date", "order"],
)
def test_a_bucket_whose_versions_move_when_they_are_hidden_fails(
    tmp_path: Path, kind: Callable[..., Bucket], came: str
) -> None:
    bucket, now = lived(kind, tmp_path)
    wrong = [one for one in drilled(bucket, now) if one.well is False]
    assert any(came in one.came for one in wrong), wrong


def test_what_is_needed_and_not_there_is_said_to_be_missing_not_to_be_unlocked(tmp_path: Path) -> None:
    """SeaweedFS lost an acknowledged segment with its power; the vault went on, for nothing had to read it yet."""
    bucket, now = lived(Bucket, tmp_path)
    lost = next(key for key in bucket.objects if "/segments/" in key)
    del bucket.kept[lost], bucket.objects[lost]
    (wrong,) = [one for one in drilled(bucket, now) if one.well is not True]
    assert wrong.well is False
    assert "are missing" in wrong.came
    assert lost in wrong.came


def test_recover_says_which_versions_there_are_where_none_is_old_enough(tmp_path: Path) -> None:
    bucket, now = lived(Redating, tmp_path)
    before = now[0] + 60
    now[0] += HOUR
    bucket.delete(sorted(bucket.objects))
    with pytest.raises(NotFound, match="all are of later than") as error:
        find_last_whole(
            BucketAsOf(bucket, "vault", before), BucketAsOf(bucket, "vault", before), "vault", POOL
        )
    assert "blockstore drill" in error.value.next
    nothing = BucketAsOf(bucket, "elsewhere", before)
    with pytest.raises(NotFound, match="no version of any object"):
        find_last_whole(nothing, nothing, "elsewhere", POOL)
