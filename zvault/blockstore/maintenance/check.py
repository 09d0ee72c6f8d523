"""Checking a store, while another may write to it: nothing is changed, and what was cleared meanwhile is no damage.

What is proved: the newest checkpoint, every part of the map and every page of the usage can be read; every position of
the map points into a segment that is there, to a slot that its table gives to that very block; live counts are those
of the map; of the segments that are read whole, every slot matches its checksum; and nothing lies beside all that.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace

import numpy as np

from zvault.blockstore.format import (
    Damaged,
    Superblock,
    map_key,
    numbers,
    segment_key,
)
from zvault.blockstore.log_tail import LogGap, LogTail, survey
from zvault.blockstore.maintenance.check_map import (
    Mapped,
    Moved,
    gone,
    page_problem,
    part_problem,
    read_map,
    without,
)
from zvault.blockstore.maintenance.check_segments import NewestView, SegmentJob, SegmentResult, jobs, look
from zvault.blockstore.maintenance.findings import RUNS, Problem, Progress, Report, ordered
from zvault.blockstore.maintenance.log_cut import measure_cut
from zvault.blockstore.maintenance.past import missing_of_past
from zvault.blockstore.maintenance.strays import find_strays
from zvault.blockstore.map.map_part import PART
from zvault.blockstore.map.read_roots import root_of_any, sound
from zvault.blockstore.map.root import Root, largest_root
from zvault.blockstore.recovery import (
    Epoch,
    checkpoint_keys,
    newest_root,
    see_that_it_did_not_go_back,
    superblock,
)
from zvault.core.errors import NotFound
from zvault.object_store.interface import ObjectMissing, ObjectStore

MEMORY = 128 << 20
LOOKS = 8
"""How often the newest checkpoint is looked at again, at most; a writer that is quick may be two ahead each time."""
SETTLE = 2.0
"""Seconds that an upload may lag behind a later one."""


def check(
    store: ObjectStore,
    prefix: str,
    *,
    share: float,
    pool: Executor,
    progress: Progress = lambda *_: None,
    chance: Callable[[], float] = random.random,
    settle: float = SETTLE,
) -> Report:
    """Check a store, reading this ``share`` of its segments whole. Raises NotFound, Unreachable, Denied."""
    return Check(store, prefix, pool, progress, settle).run(share, chance)


class Check:
    """One check, and what it knows afterwards: ``what`` and ``root``, and ``mapped`` where ``complete``."""

    what: Superblock
    root: Root
    mapped: Mapped

    def __init__(
        self, store: ObjectStore, prefix: str, pool: Executor, progress: Progress, settle: float = SETTLE
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.pool = pool
        self.progress = progress
        self.settle = settle
        self.report = Report()
        self.epoch = Epoch(0, "", 0.0)
        self.rest = LogTail([], [])
        self.broken: int | None = None
        """The first segment of the log whose own account cannot be read."""
        self.sizes: dict[str, int] = {}
        self.complete = False

    def run(self, share: float, chance: Callable[[], float]) -> Report:
        """Check all parts, again from the start while a writer goes on; see ``check``."""
        if not self._first_objects():
            return self.report
        for attempt in range(LOOKS):
            self.report.problems = [one for one in self.report.problems if one.kind in ("store", "epoch")]
            self.report.looks = attempt
            try:
                if not self._checkpoints(self.what):
                    return self.report
                self._map(self.what, last=attempt == LOOKS - 1)
            except Moved:
                continue
            break
        self.complete = True
        try:
            self._segments(self.mapped, share, chance)
            self._counts(self.mapped)
        finally:
            self.mapped.spool.close()
        find_strays(self)
        if self.broken is not None:
            self.report.cut = measure_cut(
                self.store, self.prefix, self.root, self.rest, self.sizes, self.pool
            )
        past = missing_of_past(self.store, self.prefix, self.what, self.root, set(self.sizes), self.pool)
        self.report.problems += past
        return self.report

    def _say(self, problem: Problem) -> None:
        self.report.problems.append(problem)

    def _first_objects(self) -> bool:
        found = True
        try:
            self.what = sound(superblock(self.store, self.prefix))
        except NotFound:
            if next(iter(self.store.list(f"{self.prefix}/")), None) is None:
                raise
            found = False
            self._say(Problem("store", f"{self.prefix}/store", "it is missing, so nothing can be read"))
        except Damaged as error:
            found = False
            self._say(Problem("store", f"{self.prefix}/store", error.why or error.what))
        try:
            self.epoch = Epoch.read(self.store, self.prefix)
        except Damaged as error:
            self._say(Problem("epoch", Epoch.key(self.prefix), error.why))
        return found

    def _checkpoints(self, what: Superblock) -> bool:
        """Find the newest root, and name those that are damaged. False: there is none that can be used."""
        keys = checkpoint_keys(self.store, self.prefix)
        for key in keys[-2:]:
            self._checkpoint(key, what)
        if self.report.of("store"):
            return False
        try:
            self.root = newest_root(self.store, self.prefix, what)
            see_that_it_did_not_go_back(self.epoch, self.root, self.prefix)
        except Damaged as error:
            if not self.report.of("checkpoint"):
                self._say(Problem("checkpoint", f"{self.prefix}/checkpoints/", f"{error.what}: {error.why}"))
            return False
        self.report.root = (self.root.epoch, self.root.number)
        self.report.applied = self.root.applied
        self.rest, self.broken = self._log(self.root)
        self.report.log = len(self.rest.segments)
        return True

    def _checkpoint(self, key: str, what: Superblock) -> None:
        """Say what is wrong with one of them."""
        try:
            data, _ = self.store.read(key, largest_root())
            root = root_of_any(data, key)
        except ObjectMissing:
            return
        except Damaged as error:
            self._say(Problem("checkpoint", key, error.why))
            return
        if root.identity != what.identity or len(root.parts) != -(-what.blocks // PART):
            why = (
                f"{key} is of a store of another uuid or size: {root.identity.hex()}, {len(root.parts)} parts"
            )
            if not self.report.of("store"):
                self._say(Problem("store", f"{self.prefix}/store", why))
        elif (root.epoch, root.number) != numbers(key):
            self._say(Problem("checkpoint", key, f"it is number {root.number} of epoch {root.epoch}"))
        elif root.epoch > self.epoch.number and not self.report.of("epoch"):
            why = f"it is missing or older than the checkpoint of epoch {root.epoch}"
            self._say(Problem("epoch", Epoch.key(self.prefix), why))

    def _log(self, root: Root) -> tuple[LogTail, int | None]:
        """The log, up to a segment that cannot be read."""
        found = survey(self.store, self.prefix, root, self.pool)
        if found.trouble is None or found.broken is None:
            return found, None
        newest = newest_root(self.store, self.prefix, self.what)
        if (newest.epoch, newest.number) != (root.epoch, root.number):
            raise Moved(found.broken)
        at = found.broken
        key = segment_key(self.prefix, at, root.epoch_of(at))
        if isinstance(found.trouble, LogGap):
            why = f"it is missing, and {found.trouble.why}"
            self._say(Problem("log", found.trouble.key, why, numbers=(at,)))
        else:
            why = f"the log cannot be read from here on: {found.trouble.why}"
            self._say(Problem("log", key, why, numbers=(at,)))
        return found, at

    def _map(self, what: Superblock, *, last: bool) -> None:
        root = self.root
        missing: set[tuple[int, int]] = set()
        lacking: tuple[list[int], list[int]] = ([], [])
        used = root
        while True:
            try:
                self.mapped = read_map(self.store, self.prefix, used, what.blocks, self.pool, self.progress)
                break
            except Moved:
                newest = newest_root(self.store, self.prefix, what)
                if (newest.epoch, newest.number) != (root.epoch, root.number) and not last:
                    raise
                missing |= gone(root, self.prefix, self.store)
                used, *found = without(root, missing)
                lacking = (found[0], found[1])
        self.mapped.root = root
        for key in sorted(missing):
            name = map_key(self.prefix, *key)
            parts = [part for part in lacking[0] if _points(root.parts[part], key)]
            pages = [page for page in lacking[1] if _points(root.pages[page], key)]
            if parts:
                self.mapped.problems.append(part_problem(name, parts, "it is missing", what.blocks))
            if pages:
                self.mapped.problems.append(page_problem(name, pages, "it is missing"))
        self.mapped.bad_parts += lacking[0]
        self.mapped.bad_pages += lacking[1]
        self.report.parts = int(np.count_nonzero(root.parts["map"]))
        now = self._now(root, self.rest)
        for problem in self.mapped.problems:
            runs = now.untold(problem.runs) if problem.kind == "part" else problem.runs
            self._say(replace(problem, runs=runs))
        if self.mapped.lost:
            runs = np.concatenate(self.mapped.lost)
            self._say(Problem("slots", self.prefix, "an earlier repair gave these blocks up", runs, True))

    def _now(self, root: Root, rest: LogTail) -> NewestView:
        return NewestView(self.store, self.prefix, root, rest, MEMORY)

    def _segments(self, mapped: Mapped, share: float, chance: Callable[[], float]) -> None:
        live = np.flatnonzero(mapped.live).tolist()
        total = len(live) + len(self.rest.segments)
        log = [segment.sequence for segment in self.rest.segments]
        chosen = None if share >= 1 else {one for one in [*live, *log] if chance() < share}
        suspects: list[SegmentResult] = []
        identity = mapped.root.identity
        runs = mapped.spool.windows()
        every = jobs(runs, mapped.root, self.prefix, chosen)
        done = 0
        for looked in ordered(self.pool, lambda job: look(self.store, identity, job), every):
            done += 1
            self.progress("segments", done, total)
            self._looked(looked, suspects)
        for segment in self.rest.segments:
            done += 1
            self.progress("segments", done, total)
            if chosen is None or segment.sequence in chosen:
                key = segment_key(self.prefix, segment.sequence, segment.epoch)
                job = SegmentJob(segment.sequence, key, np.zeros(0, RUNS), True)
                self._looked(look(self.store, identity, job), suspects)
        self.report.segments = total
        self._confirm(suspects)

    def _looked(self, looked: SegmentResult, suspects: list[SegmentResult]) -> None:
        self.report.verified_bytes += looked.verified
        self.report.read_segments += looked.verified > 0
        if looked.missing or looked.problems:
            suspects.append(looked)

    def _confirm(self, suspects: list[SegmentResult]) -> None:
        """Only what the newest checkpoint and log still need is damage."""
        for attempt in range(LOOKS if suspects else 0):
            try:
                self._confirmed(suspects, self._newest())
                return
            except (Moved, Damaged):
                # A part of the map went while it was asked for, or cannot be read: the map's own troubles are told.
                if attempt == LOOKS - 1:
                    self._confirmed(suspects, None)
                self.report.looks += 1

    def _newest(self) -> NewestView:
        root = newest_root(self.store, self.prefix, self.what)
        rest = self.rest
        if (root.epoch, root.number) != (self.root.epoch, self.root.number):
            self.report.looks += 1
            rest, _ = self._log(root)
        # Blocks of parts that cannot be read are told already.
        less = root.copy()
        bad = [part for part in self.mapped.bad_parts if root.parts[part] == self.root.parts[part]]
        less.parts[bad] = 0
        return self._now(less, rest)

    def _confirmed(self, suspects: list[SegmentResult], now: NewestView | None) -> None:
        found = []
        for looked in suspects:
            if looked.missing:
                runs = looked.job.runs if now is None else now.still(looked.job.runs)
                if len(runs):
                    why = "it is missing"
                    numbers = (looked.job.sequence,)
                    found.append(Problem("segment", looked.job.key, why, runs, True, numbers))
            for problem in looked.problems:
                runs = problem.runs if now is None else now.still(problem.runs)
                if len(runs) or problem.kind == "slots":
                    kept = (
                        problem if len(runs) else replace(problem, why=f"{problem.why}; none of them is live")
                    )
                    found.append(replace(kept, runs=runs, lost=problem.lost and len(runs) > 0))
        self.report.problems += found

    def _counts(self, mapped: Mapped) -> None:
        if mapped.bad_parts or mapped.bad_pages:
            return
        wrong = mapped.wrong_counts()
        if wrong:
            why = f"{len(wrong)} segments have another number of live slots than the map says"
            first = segment_key(self.prefix, wrong[0], mapped.root.epoch_of(wrong[0]))
            self._say(Problem("usage", first, why, numbers=tuple(wrong[:1000])))


def _points(ref: np.void, key: tuple[int, int]) -> bool:
    return (int(ref["map"]), int(ref["epoch"])) == key
