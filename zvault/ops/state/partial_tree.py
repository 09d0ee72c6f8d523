"""The listing of a tree of which a part may be so damaged that ZFS cannot tell it."""

from __future__ import annotations

from collections.abc import Mapping

from zvault.core.model import Dataset, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.unlisted_datasets import is_in_unlisted, make_unlisted_error
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


async def list_existing_around_damage(zfs: Zfs, root: str, *, sizes: bool = True) -> Tree:
    """As ``list_around_damage``, of a dataset that has to exist. Raises NotFound as well."""
    try:
        return await zfs.tree(root, sizes=sizes)
    except PartialListing as error:
        return await zfs.tree_around_damage(root, error)


async def list_names_around_damage(
    zfs: Zfs, root: str
) -> tuple[list[DatasetName], Mapping[DatasetName, str]]:
    """The names of a dataset and of all below it, and what cannot be listed, with ZFS's words. Raises as
    ``list_existing_around_damage``.
    """
    try:
        return await zfs.names(root), {}
    except PartialListing as error:
        tree = await zfs.tree_around_damage(root, error)
    return [one.name for one in tree], tree.unlisted


async def find_one_dataset(zfs: Zfs, name: DatasetName) -> Dataset | None:
    """A dataset, None where it does not exist. What is damaged below it is nothing to it.

    Raises ToolFailed where it cannot be listed itself.
    """
    tree = await list_around_damage(zfs, name)
    if is_in_unlisted(name, tree.unlisted, tree.datasets):
        raise make_unlisted_error(tree.unlisted)
    return tree.get(name)
