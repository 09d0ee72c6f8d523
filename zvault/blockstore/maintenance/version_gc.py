"""Removing versions that nobody needs any more, beside whoever writes to the store: it is neither taken nor changed.

It goes by the newest checkpoint. What that does not need, nor the one before it or a moment that is kept, no later one
will need: writers only go on, and a store is only rewound to a moment that is kept.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from zvault.blockstore.attach import load_usage
from zvault.blockstore.lock_keeper import describe_tampering
from zvault.blockstore.map.read_roots import read_previous_root
from zvault.blockstore.map.usage import SegmentUsage
from zvault.blockstore.needed_objects import NeededObjects, ObjectVersions, group_versions
from zvault.blockstore.recovery import read_newest_root, read_superblock
from zvault.core.errors import Refused
from zvault.object_store.interface import ListedVersion, ObjectStore

VERSIONS_PER_REMOVAL = 1000
"""Versions that one request may remove: S3's bound."""


@dataclass(slots=True)
class RemovedVersions:
    """Sizes in bytes. ``locked`` are garbage that the store does not let go yet, or not for this key.

    ``strange``: objects that are needed and have a delete marker, or other contents besides.
    """

    removed: int = 0
    removed_bytes: int = 0
    locked: int = 0
    locked_bytes: int = 0
    needed_bytes: int = 0
    strange: list[str] = field(default_factory=list)


def remove_versions(
    store: ObjectStore,
    prefix: str,
    pool: Executor,
    *,
    do: bool,
    accept_tampered: bool = False,
) -> RemovedVersions:
    """Remove garbage; without ``do`` only see how much there is, locked or not, as ``removed``.

    Where somebody has been at what is needed nothing is removed, unless that is accepted. Raises Refused, NotFound,
    ObjectDamaged, StoreError.
    """
    what = read_superblock(store, prefix)
    root, usage = read_newest_root(store, prefix, what), SegmentUsage()
    load_usage(usage, store, prefix, root, pool)
    before = read_previous_root(store, prefix, root)
    needed = NeededObjects(prefix, root, usage, before.past if before is not None else ())
    if do and not accept_tampered:
        looked = _go(store, prefix, needed, do=False)
        if looked.strange:
            raise Refused(
                f"nothing of the block store {prefix} is removed",
                describe_tampering(looked.strange, []) or "",
                "bring the store back first; to remove garbage all the same, say so with --yes",
            )
    return _go(store, prefix, needed, do=do)


def _go(store: ObjectStore, prefix: str, needed: NeededObjects, *, do: bool) -> RemovedVersions:
    found, waiting = RemovedVersions(), list[ListedVersion]()
    for one in group_versions(store.versions(f"{prefix}/")):
        match needed.verdict(one.key):
            case "garbage":
                waiting += one.versions
            case "needed" | "fresh":
                _keep(one, prefix, found, store)
        if len(waiting) >= VERSIONS_PER_REMOVAL:
            _remove(store, waiting, found, do=do)
            waiting = []
    _remove(store, waiting, found, do=do)
    return found


def _keep(one: ObjectVersions, prefix: str, found: RemovedVersions, store: ObjectStore) -> None:
    found.needed_bytes += one.genuine.size if one.genuine is not None else 0
    if one.strange and one.key != f"{prefix}/epoch" and not one.same(store):
        found.strange.append(one.key)


def _remove(store: ObjectStore, versions: list[ListedVersion], found: RemovedVersions, *, do: bool) -> None:
    left = store.delete_versions(versions) if do and versions else []
    found.locked += len(left)
    found.locked_bytes += sum(one.size for one in left)
    found.removed += len(versions) - len(left)
    found.removed_bytes += sum(one.size for one in versions) - sum(one.size for one in left)
