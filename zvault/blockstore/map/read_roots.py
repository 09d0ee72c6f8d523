"""Reading the small objects of a store that may be damaged: which store it was, and its checkpoints."""

from __future__ import annotations

import json

from zvault.blockstore.format import BLOCK_SIZE, PARSE_ERRORS, ObjectDamaged, Superblock, make_checkpoint_key
from zvault.blockstore.map.root import CheckpointRoot, estimate_largest_root
from zvault.object_store.interface import ObjectMissing, ObjectStore, describe_loss


def check_superblock(what: Superblock) -> Superblock:
    """It, where what it says can be. Raises ObjectDamaged."""
    try:
        if len(what.identity) == 16 and what.size > 0 and what.size % BLOCK_SIZE == 0:
            return what
        why = f"a size of {what.size} bytes and the uuid {what.uuid} cannot be"
    except ValueError:
        why = f"{what.uuid} is no uuid"
    raise ObjectDamaged("the store's first object cannot be read", why, "see what the bucket holds there")


def parse_any_root(data: bytes, key: str) -> CheckpointRoot:
    """A root, of whichever store it says that it is. Raises ObjectDamaged."""
    try:
        words = int.from_bytes(data[8:12], "little")
        identity = bytes.fromhex(json.loads(data[16 : 16 + words])["uuid"])
    except PARSE_ERRORS as error:
        why = describe_loss(data) or "it cannot be read"
        raise ObjectDamaged(f"the checkpoint {key} is damaged", why, "") from error
    return CheckpointRoot.of_bytes(data, identity, key)


def read_previous_root(store: ObjectStore, prefix: str, root: CheckpointRoot) -> CheckpointRoot | None:
    """The checkpoint before this one; None where there is none that can be read."""
    mine = make_checkpoint_key(prefix, root.number, root.epoch)
    for key in reversed([one.key for one in store.list(f"{prefix}/checkpoints/") if one.key < mine]):
        try:
            return CheckpointRoot.of_bytes(store.read(key, estimate_largest_root())[0], root.identity, key)
        except (ObjectMissing, ObjectDamaged):
            continue
    return None
