"""The listing of a backup's source, with what a user property selects of it."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import replace

from zvault.config.schema import Backup
from zvault.core.errors import NotFound
from zvault.core.model import Tree
from zvault.core.name_rules import DatasetChoice, list_missing
from zvault.core.names import DatasetName
from zvault.core.property_selection import choose_by_property
from zvault.core.replication.unlisted_datasets import is_in_unlisted
from zvault.ops.state.clients import ZfsClients
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.zfs import properties

MISSING_NAMED = 3
"""Datasets named in one sentence."""


async def list_source(clients: ZfsClients, backup: Backup, *, sizes: bool = True) -> Tree:
    """The datasets of a backup's source, with those that cannot be listed named beside them.

    What the backup sends decrypted counts as not encrypted: it does not go raw.

    Raises NotFound, HostUnreachable, ToolFailed. For ``sizes`` see Zfs.tree.
    """
    zfs, root = clients.source_of(backup), backup.source.dataset
    tree = await list_existing_around_damage(zfs, root, sizes=sizes)
    missing = [part for part in backup.source.parts if part not in tree.datasets]
    if missing := [part for part in missing if not is_in_unlisted(part, tree.unlisted)]:
        raise make_missing_source_error(backup, missing[0])
    if backup.send.encrypted == "decrypted":
        tree = replace(tree, datasets={one.name: replace(one, encrypted=False) for one in tree})
    choices = await read_property_choices(clients, backup, list(tree.datasets), tree.unlisted)
    return tree if choices is None else replace(tree, choices=choices)


async def read_property_choices(
    clients: ZfsClients, backup: Backup, names: Sequence[str], unlisted: Container[str] = ()
) -> dict[str, DatasetChoice] | None:
    """Which of a source's datasets the backup's property selects, and why; None where it selects by none."""
    if backup.select is None:
        return None
    root, host = backup.source.dataset, clients.source_of(backup).host
    if root in unlisted:
        values = await properties.read_each_property(host, backup.select, names)
    else:
        values = await properties.read_user_property(host, root, backup.select, names)
    found = choose_by_property(values, root, unlisted)
    return {name: replace(one, reason=f"{backup.select}: {one.reason}") for name, one in found.items()}


async def list_chosen_by_property(
    clients: ZfsClients, backup: Backup, names: Sequence[str], unlisted: Container[str] = ()
) -> frozenset[str] | None:
    """Those of a source's datasets that the backup's property selects; None where it selects by none. For
    ``unlisted`` see Tree.
    """
    found = await read_property_choices(clients, backup, names, unlisted)
    return None if found is None else frozenset(name for name, one in found.items() if one.taken)


def make_missing_source_error(backup: Backup, part: DatasetName) -> NotFound:
    """That one of a backup's sources is not there."""
    return NotFound(
        f"there is no dataset '{part}'",
        f"it is one of the sources of backup {backup.name}, and a run takes all of them or none",
        "create it, or take it out of 'source' in zvault.toml",
    )


def find_missing_included(
    backup: Backup, there: Container[str], unlisted: Collection[DatasetName] = ()
) -> NotFound | None:
    """That datasets which ``include`` names are not ``there``, among those of the source; None where all are. Whether
    one is there that is ``unlisted``, or lies below such a one, is not known: that is told in another place.

    Others that it names may still be taken. Without this a dataset that was renamed would be backed up no more, and
    everything be well.
    """
    named = list_missing(backup.include, there)
    sought = [name for name in map(DatasetName, named) if name.is_within(backup.source.dataset)]
    missing = [name for name in sought if not is_in_unlisted(name, unlisted)]
    if not missing:
        return None
    shown, more = ", ".join(f"'{name}'" for name in missing[:MISSING_NAMED]), len(missing) - MISSING_NAMED
    return NotFound(
        f"there is no dataset {shown}" + (f", and {more} more are missing" if more > 0 else ""),
        f"'include' of backup {backup.name} names it, so it was renamed, destroyed, or is misspelt",
        "name in 'include' of zvault.toml what it is called now, or take it out there",
    )
