"""The listing of a tree of which a part may be so damaged that ZFS cannot tell it."""

from __future__ import annotations

from zvault.core.model import Tree
from zvault.zfs.client import Zfs
from zvault.zfs.whole_listing import PartialListing


async def list_around_damage(zfs: Zfs, root: str, *, sizes: bool = True) -> Tree:
    """The datasets below a root, empty where it does not exist; what cannot be listed is named in ``unlisted``.

    Whoever asks has to look there before it takes anything for absent. Raises as Zfs.tree_or_none, which lists all or
    nothing, and PartialListing where it cannot be told what was left out. For ``sizes`` see Zfs.tree.
    """
    try:
        return await zfs.tree_or_none(root, sizes=sizes)
    except PartialListing as error:
        return await zfs.tree_around_damage(root, error)
