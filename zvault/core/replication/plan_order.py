"""In which order datasets are planned, and which plans have to be carried out before which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from zvault.core.names import DatasetName
from zvault.core.replication.lineage import DatasetPair
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.vault_changes import BranchDataset, RenameDataset


def order_origins_first(pairs: Sequence[DatasetPair]) -> Iterator[DatasetPair]:
    """Parents before children; and where that allows it, what others branched off from before those."""
    if not any(pair.ancestry for pair in pairs) and has_parents_first([pair.source.name for pair in pairs]):
        yield from pairs
        return
    by_name = {pair.source.name: pair for pair in pairs}
    done: set[DatasetName] = set()

    def visit(name: DatasetName, waiting: tuple[DatasetName, ...]) -> Iterator[DatasetPair]:
        waiting = (*waiting, name)
        origins = dict.fromkeys(snap.dataset for snap in by_name[name].ancestry)
        for other in (*name.ancestors, *origins):
            # What lies below one that waits for this cannot come before it.
            if other in by_name and other not in done and not any(other.is_within(one) for one in waiting):
                yield from visit(other, waiting)
        if name not in done:
            done.add(name)
            yield by_name[name]

    for name in by_name:
        if name not in done:
            yield from visit(name, ())


def has_parents_first(names: Sequence[DatasetName]) -> bool:
    """True if they come so already."""
    there = set(names)
    seen: set[DatasetName] = set()
    above: set[DatasetName] = set()
    for name in names:
        parent = name.parent
        if parent is not None and parent not in above:
            if any(one in there and one not in seen for one in name.ancestors):
                return False
            above.add(parent)
        seen.add(name)
    return True


class PlanOrder:
    """The plans so far, as far as others may have to come after them."""

    def __init__(self) -> None:
        # The datasets whose plans others may have to come after; by name on the vault, which of them touch it, which
        # touch what lies below it, and which are yet to be received there.
        self.rearranging: list[DatasetName] = []
        self._touched: dict[DatasetName, list[int]] = {}
        self._touched_below: dict[DatasetName, list[int]] = {}
        self._unborn: dict[DatasetName, list[int]] = {}
        # Clones that will be received, each with the dataset on the vault that its origin lies in.
        self._cloning: list[tuple[TransferPlan, DatasetName]] = []

    def needed(
        self, pair: DatasetPair, made: TransferPlan, plans: Sequence[TransferPlan]
    ) -> tuple[DatasetName, ...]:
        """Which of the ``plans`` so far this one needs."""
        moved = _touched(made)
        if not self.rearranging and not moved and _origin(made) is None:
            return made.after
        paths = [pair.target, *([pair.vault.name] if pair.vault is not None else []), *moved]
        if (origin := _origin(made)) is not None:
            # It is named as it will be once what was planned so far is carried out.
            paths.append(origin)
        needed = dict.fromkeys(made.after)
        # What a rename brings below a dataset that is yet to be received would find, or make, another in its place.
        found = _at_or_above((pair.target, *moved), self._unborn) | _at_or_above(paths, self._touched)
        needed.update(dict.fromkeys(self.rearranging[place] for place in sorted(found)))
        if moved:
            # Changes below what is renamed name it as it was before, so they come first.
            renamed = (change.old for change in made.changes if isinstance(change, RenameDataset))
            below = {place for old in renamed for place in self._touched_below.get(old, ())}
            needed.update(dict.fromkeys(self.rearranging[place] for place in sorted(below)))
            within = (plan for plan in plans if any(plan.target.is_within(path) for path in moved))
            needed.update(dict.fromkeys(plan.dataset for plan in within))
            cloning = (
                plan for plan, origin in self._cloning if any(origin.is_within(path) for path in moved)
            )
            needed.update(dict.fromkeys(plan.dataset for plan in cloning))
        return tuple(needed)

    def note(self, made: TransferPlan) -> None:
        """It is one of the plans from now on."""
        if (origin := _origin(made)) is not None:
            self._cloning.append((made, origin))
        touched = _touched(made)
        unborn = made.begins or (made.action is TransferAction.RESUME and made.base is None)
        if touched or unborn:
            place = len(self.rearranging)
            self.rearranging.append(made.dataset)
            for name in touched:
                self._touched.setdefault(name, []).append(place)
                for above in name.ancestors:
                    self._touched_below.setdefault(above, []).append(place)
            if unborn:
                self._unborn.setdefault(made.target, []).append(place)


def _at_or_above(paths: Iterable[DatasetName], places: Mapping[DatasetName, list[int]]) -> set[int]:
    """What there is at any of these names, or at what one of them lies in."""
    found: set[int] = set()
    if places:
        for path in paths:
            for name in (path, *path.ancestors):
                found.update(places.get(name, ()))
    return found


def _origin(plan: TransferPlan) -> DatasetName | None:
    """The dataset on the vault of which a snapshot has to be there when a plan's first stream is received."""
    origin = plan.steps[0].origin if plan.steps else None
    return origin.dataset if origin is not None else None


def _touched(plan: TransferPlan) -> tuple[DatasetName, ...]:
    """The names on the vault that a plan moves, or takes snapshots from."""
    names: list[DatasetName] = []
    for change in plan.changes:
        if isinstance(change, RenameDataset):
            names += [change.old, change.new]
        elif isinstance(change, BranchDataset):
            names += [change.origin.dataset, change.new]
    return tuple(names)
