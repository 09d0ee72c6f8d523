"""Reading the small objects of a store that may be damaged: which store it was, and its checkpoints."""

from __future__ import annotations

import json

from zvault.blockstore.format import BLOCK, UNREADABLE, Damaged, Superblock, checkpoint_key
from zvault.blockstore.map.root import Root, largest_root
from zvault.object_store.interface import ObjectMissing, ObjectStore, describe_loss


def sound(what: Superblock) -> Superblock:
    """It, where what it says can be. Raises Damaged."""
    try:
        if len(what.identity) == 16 and what.size > 0 and what.size % BLOCK == 0:
            return what
        why = f"a size of {what.size} bytes and the uuid {what.uuid} cannot be"
    except ValueError:
        why = f"{what.uuid} is no uuid"
    raise Damaged("the store's first object cannot be read", why, "see what the bucket holds there")


def root_of_any(data: bytes, key: str) -> Root:
    """A root, of whichever store it says that it is. Raises Damaged."""
    try:
        words = int.from_bytes(data[8:12], "little")
        identity = bytes.fromhex(json.loads(data[16 : 16 + words])["uuid"])
    except UNREADABLE as error:
        why = describe_loss(data) or "it cannot be read"
        raise Damaged(f"the checkpoint {key} is damaged", why, "") from error
    return Root.of_bytes(data, identity, key)


def previous_root(store: ObjectStore, prefix: str, root: Root) -> Root | None:
    """The checkpoint before this one; None where there is none that can be read."""
    mine = checkpoint_key(prefix, root.number, root.epoch)
    for key in reversed([one.key for one in store.list(f"{prefix}/checkpoints/") if one.key < mine]):
        try:
            return Root.of_bytes(store.read(key, largest_root())[0], root.identity, key)
        except (ObjectMissing, Damaged):
            continue
    return None
