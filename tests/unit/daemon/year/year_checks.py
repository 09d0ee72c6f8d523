"""What is compared while the days pass: what each side has, what lag is told, and whether each base is protected."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tests.unit.daemon.year import year_oracle as oracle
from tests.unit.daemon.year.simulated_zfs import Point
from tests.unit.daemon.year.year_world import CONFIG, RULES, World


@dataclass
class Checks:
    """Looks at both sides and at what zvaultd tells of them, and counts how often there was something to compare.

    ``before`` is what each side had at the last look, by side and dataset: what went since must be what no rule keeps.
    """

    world: World
    exact: int = 0
    lags: int = 0
    before: dict[tuple[str, str], dict[int, Point]] = field(default_factory=dict)

    def look(self) -> None:
        for backup in CONFIG["backup"]:
            for dataset in [one for one in ("tank/a", "tank/a/below", "tank/b") if f"tank/{backup}" in one]:
                self._retention(dataset)
                self._lag(backup, dataset)
                self._base(dataset)

    def _retention(self, dataset: str) -> None:
        """Each side has what its rules keep; no more, unless the dates are out of order."""
        source, there = self.world.sides(dataset)
        newest = oracle.base(source, there)
        unsent = {one.guid for one in source.points.values() if newest is None or one.txg >= newest.txg}
        sides: list[tuple[str, list[Point], set[int]]] = [("source", list(source.points.values()), unsent)]
        if there is not None and newest is not None:
            sides.append(("vault", list(there.points.values()), {newest.guid}))
        for side, history, needed in sides:
            has = {one.guid: one for one in history}
            there_was = self.before.get((side, dataset), {}) | has
            self.before[side, dataset] = has
            every = sorted(there_was.values(), key=lambda one: one.txg)
            stays = oracle.kept(every, RULES[side], needed)
            told = f"{side} of {dataset}: {_difference(there_was, has, stays)}"
            # What is dated later than what came after it displaces nothing, so more may stay then.
            assert has.keys() >= stays, told
            if oracle.in_order(every):
                self.exact += 1
                assert has.keys() == stays, told

    def _lag(self, backup: str, dataset: str) -> None:
        """The lag that is told is the true one."""
        told = self.world.daemon.status.dataset_lags(backup).get(dataset)
        so = oracle.lag(*self.world.sides(dataset), self.world.clock.time())
        if told is None or told[1] is None:
            return
        assert so is not None
        assert abs(told[1] - so) <= 1.0, f"{dataset}: {told[1]:.0f} s are told, {so:.0f} s are true"
        self.lags += 1

    def _base(self, dataset: str) -> None:
        """What both sides have last is held on the source, and bookmarked."""
        source, there = self.world.sides(dataset)
        newest = oracle.base(source, there)
        if newest is not None:
            assert source.holds.get(newest.snapname), f"the base of {dataset} is not held"
            assert newest.guid in {mark.guid for mark in source.marks.values()}


def _difference(points: Mapping[int, Point], has: Collection[int], stays: Collection[int]) -> str:
    more = sorted(points[guid].snapname for guid in set(has) - set(stays))
    lacks = sorted(points[guid].snapname for guid in set(stays) - set(has))
    return f"no rule keeps {more}, and what a rule keeps is gone: {lacks}"
