"""Datasets of which ZFS tells nothing, as damaged ones: what must not be done beside them. Pure.

What is unknown is not absent. On the source such a dataset may be the one that a backup on the vault follows, under any
name; on the vault it may hold the base of any dataset. So nothing that is named for one of them, or lies below, is
touched on either side, and no dataset is renamed, set aside, or begun anew that one of them may have to do with.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from zvault.core.errors import ToolFailed
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import UnknownDataset

CANNOT_GO = "ZFS neither renames nor destroys what it cannot open"
"""As seen with OpenZFS 2.3: 'zfs destroy' and 'zfs rename' open it first, and a rename of what is above it goes through
all that lies below. Nothing else may have the kernel destroy it either: dsl_destroy_head_sync_impl() has a VERIFY0 that
it can be opened."""


def is_in_unlisted(name: DatasetName, unlisted: Iterable[DatasetName], listed: Container[str] = ()) -> bool:
    """Whether a dataset is one of those, or lies below one; what is ``listed`` all the same is not."""
    return name not in listed and any(name.is_within(one) for one in unlisted)


def hides_others(name: DatasetName, listed: Iterable[str]) -> bool:
    """Whether below a dataset that cannot be listed others may lie that nobody knows of: unless any is ``listed``, as
    below a root, of which all are sought (zfs/list_names_child.py).
    """
    return not any(one != name and DatasetName(one).is_within(name) for one in listed)


def describe_unlisted(unlisted: Mapping[DatasetName, str]) -> str:
    """The first of some datasets that cannot be listed, with ZFS's words, and how many more there are."""
    (name, said), more = next(iter(unlisted.items())), len(unlisted) - 1
    return f"{name} cannot be listed ({said})" + (f", nor can {more} more" if more else "")


def list_unlisted_lines(unlisted: Mapping[DatasetName, str]) -> list[str]:
    """A line for each dataset that cannot be listed, with ZFS's words."""
    return [f"{name} cannot be listed ({said})" for name, said in unlisted.items()]


def make_unlisted_error(unlisted: Mapping[DatasetName, str]) -> ToolFailed:
    """The error for what cannot be known, as some datasets cannot be listed."""
    pool = next(iter(unlisted)).pool
    return ToolFailed(describe_unlisted(unlisted), next=f"'zpool status {pool}' tells whether it is damaged")


def explain_unlisted_source(name: DatasetName, said: str) -> UnknownDataset:
    """What is told of a dataset of the source that cannot be listed."""
    return UnknownDataset(
        f"{name} cannot be listed ({said}), so nothing of it or below it is snapshotted, sent or pruned",
        f"'zpool status {name.pool}' tells whether it is damaged; what the vault has of it stays as it is, and"
        f" 'zvaultctl restore' gets that back under another name: {CANNOT_GO}",
    )


def explain_unlisted_target(target: DatasetName, unlisted: Mapping[DatasetName, str]) -> UnknownDataset:
    """What is told of a dataset of the source whose backup lies in, or below, what cannot be listed on the vault."""
    name = max((name for name in unlisted if target.is_within(name)), key=len)
    return UnknownDataset(
        f"{name} on the vault cannot be listed ({unlisted[name]}), so it is not known what the vault has",
        f"'zpool status {name.pool}' tells whether it is damaged; if it stays so, back up what belongs there to another"
        f" vault, or into a new pool: {CANNOT_GO}",
    )


def find_doubtful(
    pairs: Iterable[DatasetPair], unlisted: Mapping[DatasetName, str]
) -> dict[str, UnknownDataset]:
    """The datasets of the source whose backup may be another's, as some beside them cannot be listed; by name.

    A backup that lies in its place and goes on from its base is its own. One that lies elsewhere, or shares nothing
    with what is in its place, may belong to one of those that cannot be listed. So may the origin of a clone.
    """
    found: dict[str, UnknownDataset] = {}
    if not unlisted:
        return found
    because = f"{describe_unlisted(unlisted)}, so it is not known whose that is"
    for pair in pairs:
        there, origin = pair.vault, pair.source.origin
        problem = ""
        if there is not None and there.name != pair.target:
            problem = f"the backup of {pair.source.name} lies at {there.name}, and is not moved: {because}"
        elif there is not None and pair.base is None and not (there.placeholder or there.resume_token):
            problem = f"{pair.target} shares nothing with {pair.source.name}, and is left alone: {because}"
        elif pair.base is None and origin is not None and is_in_unlisted(origin.dataset, unlisted):
            problem = f"{pair.source.name} is a clone of {origin}, which is not known: {because}"
        if problem:
            advice = f"see to {next(iter(unlisted))} first ('zpool status {next(iter(unlisted)).pool}')"
            found[pair.source.name] = UnknownDataset(problem, advice)
    return found
