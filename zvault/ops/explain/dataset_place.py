"""Where a name lies that somebody asks about: on a backup's source, on its vault, or nowhere any more."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed
from zvault.core.model import Dataset
from zvault.core.name_rules import DatasetChoice
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import ASIDE_INFIX, DatasetPair
from zvault.core.replication.unlisted_datasets import is_in_unlisted, make_unlisted_error
from zvault.ops.replication.listing import BothListings, explain_choice_of
from zvault.ops.state.environment import Environment


@dataclass(frozen=True, slots=True)
class DatasetPlace:
    """A dataset as one look at both sides of a backup saw it. ``source``, ``vault``: None where it is not there.

    ``pair`` is its pair, ``taken`` whether the backup takes it. ``stray`` says of what only the vault has what it is
    there. ``named`` is the name on the source, ``target`` where its copy is or would be.
    """

    taken: bool
    choice: DatasetChoice
    source: Dataset | None = None
    vault: Dataset | None = None
    pair: DatasetPair | None = None
    named: DatasetName | None = None
    target: DatasetName | None = None
    stray: str = ""


def is_concerned(env: Environment, backup: Backup, name: DatasetName) -> bool:
    """True if a name lies where a backup reads, or where it writes."""
    root = env.wanted_target_of(backup, backup.source.dataset)
    beside = name.is_within(root.add_suffix(ASIDE_INFIX)) or name.startswith(root + ASIDE_INFIX)
    return name.is_within(backup.source.dataset) or name.is_within(root) or beside


def find_place(env: Environment, backup: Backup, sides: BothListings, name: DatasetName) -> DatasetPlace:
    """The place of a name that ``is_concerned`` a backup."""
    pairing = sides.pairing
    for pairs, taken in ((pairing.pairs, True), (pairing.unselected, False)):
        for pair in pairs:
            # What lies at a dataset's place on the vault need not be its copy.
            copy = pair.vault.name if pair.vault is not None else None
            if name in (pair.source.name, copy) or (name == pair.target and name not in sides.vault.datasets):
                choice = explain_choice_of(backup, sides.source, pair.source)
                return DatasetPlace(
                    *(taken, choice, pair.source, pair.vault, pair, pair.source.name),
                    target=pair.vault.name if pair.vault is not None else pair.target,
                )
    target = env.counterpart_of(backup, name)
    there = sides.vault.get(name) or (sides.vault.get(target) if target is not None else None)
    absent = DatasetChoice(False, "the source has no dataset of that name")
    named = name if name.is_within(backup.source.dataset) else None
    if there is None:
        return DatasetPlace(False, absent, named=named, target=target)
    return DatasetPlace(
        False, absent, vault=there, named=named, target=there.name, stray=_stray(sides, there)
    )


def refuse_unknown(env: Environment, backup: Backup, sides: BothListings, name: DatasetName) -> None:
    """Raise ToolFailed for a name of which nothing is known, as it cannot be listed on its side, or its counterpart
    cannot on the other: it may be there all the same.
    """
    for hurt, told in sides.unlisted.items():
        if name in (hurt, env.wanted_target_of(backup, DatasetName(hurt))):
            raise ToolFailed(told.problem, next=told.advice)
    for tree in (sides.source, sides.vault):
        if is_in_unlisted(name, tree.unlisted, tree.datasets):
            raise make_unlisted_error(
                {one: said for one, said in tree.unlisted.items() if name.is_within(one)}
            )


SOURCE_GONE = "its source is gone: what the vault has of it is kept by keep.gone"


def _stray(sides: BothListings, there: Dataset) -> str:
    """What a dataset is that only the vault has."""
    if there in sides.pairing.gone:
        return SOURCE_GONE
    if there in sides.pairing.aside:
        return "it was set aside when it could not follow its source: it is yours, and nothing sends to it or prunes it"
    if there.placeholder:
        return "zvault made it to hold the datasets below it"
    return "it follows no dataset of the source: zvault leaves it alone"
