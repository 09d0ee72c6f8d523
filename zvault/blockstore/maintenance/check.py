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
    ObjectDamaged,
    Superblock,
    find_key_numbers,
    make_map_key,
    make_segment_key,
)
from zvault.blockstore.log_tail import LogGap, LogTail, survey_log_tail
from zvault.blockstore.maintenance.check_map import (
    CheckedMap,
    CheckpointMoved,
    drop_map_objects,
    list_missing_map_objects,
    make_page_problem,
    make_part_problem,
    read_map,
)
from zvault.blockstore.maintenance.check_report import (
    PROBLEM_RUNS,
    CheckReport,
    Progress,
    StoreProblem,
    map_ordered,
)
from zvault.blockstore.maintenance.check_segments import (
    NewestView,
    SegmentJob,
    SegmentResult,
    check_segment,
    list_segment_jobs,
)
from zvault.blockstore.maintenance.find_strays import find_strays
from zvault.blockstore.maintenance.log_cut import measure_cut
from zvault.blockstore.maintenance.past_figures import list_past_problems
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.read_roots import check_superblock, parse_any_root
from zvault.blockstore.map.root import CheckpointRoot, estimate_largest_root
from zvault.blockstore.recovery import (
    WriterEpoch,
    list_checkpoint_keys,
    read_newest_root,
    read_superblock,
    refuse_older_root,
)
from zvault.core.errors import NotFound
from zvault.object_store.interface import ObjectMissing, ObjectStore

CHECK_MEMORY = 128 << 20
ROOT_LOOKS = 8
"""How often the newest checkpoint is looked at again, at most; a writer that is quick may be two ahead each time."""
UPLOAD_SETTLE_TIME = 2.0
"""Seconds that an upload may lag behind a later one."""


def find_store_problems(
    store: ObjectStore,
    prefix: str,
    *,
    share: float,
    pool: Executor,
    progress: Progress = lambda *_: None,
    chance: Callable[[], float] = random.random,
    settle: float = UPLOAD_SETTLE_TIME,
) -> CheckReport:
    """Check a store, reading this ``share`` of its segments whole. Raises NotFound, StoreUnreachable, StoreDenied."""
    return StoreCheck(store, prefix, pool, progress, settle).run(share, chance)


class StoreCheck:
    """One check, and what it knows afterwards: ``what`` and ``root``, and ``mapped`` where ``complete``."""

    what: Superblock
    root: CheckpointRoot
    mapped: CheckedMap

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        pool: Executor,
        progress: Progress,
        settle: float = UPLOAD_SETTLE_TIME,
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.pool = pool
        self.progress = progress
        self.settle = settle
        self.report = CheckReport()
        self.epoch = WriterEpoch(0, "", 0.0)
        self.rest = LogTail([], [])
        self.broken: int | None = None
        """The first segment of the log whose own account cannot be read."""
        self.sizes: dict[str, int] = {}
        self.complete = False

    def run(self, share: float, chance: Callable[[], float]) -> CheckReport:
        """Check all parts, again from the start while a writer goes on; see ``find_store_problems``."""
        if not self._first_objects():
            return self.report
        for attempt in range(ROOT_LOOKS):
            self.report.problems = [one for one in self.report.problems if one.kind in ("store", "epoch")]
            self.report.looks = attempt
            try:
                if not self._checkpoints(self.what):
                    return self.report
                self._map(self.what, last=attempt == ROOT_LOOKS - 1)
            except CheckpointMoved:
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
        past = list_past_problems(self.store, self.prefix, self.what, self.root, set(self.sizes), self.pool)
        self.report.problems += past
        return self.report

    def _say(self, problem: StoreProblem) -> None:
        self.report.problems.append(problem)

    def _first_objects(self) -> bool:
        found = True
        try:
            self.what = check_superblock(read_superblock(self.store, self.prefix))
        except NotFound:
            if next(iter(self.store.list(f"{self.prefix}/")), None) is None:
                raise
            found = False
            self._say(StoreProblem("store", f"{self.prefix}/store", "it is missing, so nothing can be read"))
        except ObjectDamaged as error:
            found = False
            self._say(StoreProblem("store", f"{self.prefix}/store", error.why or error.what))
        try:
            self.epoch = WriterEpoch.read(self.store, self.prefix)
        except ObjectDamaged as error:
            self._say(StoreProblem("epoch", WriterEpoch.key(self.prefix), error.why))
        return found

    def _checkpoints(self, what: Superblock) -> bool:
        """Find the newest root, and name those that are damaged. False: there is none that can be used."""
        keys = list_checkpoint_keys(self.store, self.prefix)
        for key in keys[-2:]:
            self._checkpoint(key, what)
        if self.report.of("store"):
            return False
        try:
            self.root = read_newest_root(self.store, self.prefix, what)
            refuse_older_root(self.epoch, self.root, self.prefix)
        except ObjectDamaged as error:
            if not self.report.of("checkpoint"):
                self._say(
                    StoreProblem("checkpoint", f"{self.prefix}/checkpoints/", f"{error.what}: {error.why}")
                )
            return False
        self.report.root = (self.root.epoch, self.root.number)
        self.report.applied = self.root.applied
        self.rest, self.broken = self._log(self.root)
        self.report.log = len(self.rest.segments)
        return True

    def _checkpoint(self, key: str, what: Superblock) -> None:
        """Say what is wrong with one of them."""
        try:
            data, _ = self.store.read(key, estimate_largest_root())
            root = parse_any_root(data, key)
        except ObjectMissing:
            return
        except ObjectDamaged as error:
            self._say(StoreProblem("checkpoint", key, error.why))
            return
        if root.identity != what.identity or len(root.parts) != -(-what.blocks // PART_BLOCKS):
            why = (
                f"{key} is of a store of another uuid or size: {root.identity.hex()}, {len(root.parts)} parts"
            )
            if not self.report.of("store"):
                self._say(StoreProblem("store", f"{self.prefix}/store", why))
        elif (root.epoch, root.number) != find_key_numbers(key):
            self._say(StoreProblem("checkpoint", key, f"it is number {root.number} of epoch {root.epoch}"))
        elif root.epoch > self.epoch.number and not self.report.of("epoch"):
            why = f"it is missing or older than the checkpoint of epoch {root.epoch}"
            self._say(StoreProblem("epoch", WriterEpoch.key(self.prefix), why))

    def _log(self, root: CheckpointRoot) -> tuple[LogTail, int | None]:
        """The log, up to a segment that cannot be read."""
        found = survey_log_tail(self.store, self.prefix, root, self.pool)
        if found.trouble is None or found.broken is None:
            return found, None
        newest = read_newest_root(self.store, self.prefix, self.what)
        if (newest.epoch, newest.number) != (root.epoch, root.number):
            raise CheckpointMoved(found.broken)
        at = found.broken
        key = make_segment_key(self.prefix, at, root.epoch_of(at))
        if isinstance(found.trouble, LogGap):
            why = f"it is missing, and {found.trouble.why}"
            self._say(StoreProblem("log", found.trouble.key, why, numbers=(at,)))
        else:
            why = f"the log cannot be read from here on: {found.trouble.why}"
            self._say(StoreProblem("log", key, why, numbers=(at,)))
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
            except CheckpointMoved:
                newest = read_newest_root(self.store, self.prefix, what)
                if (newest.epoch, newest.number) != (root.epoch, root.number) and not last:
                    raise
                missing |= list_missing_map_objects(root, self.prefix, self.store)
                used, *found = drop_map_objects(root, missing)
                lacking = (found[0], found[1])
        self.mapped.root = root
        for key in sorted(missing):
            name = make_map_key(self.prefix, *key)
            parts = [part for part in lacking[0] if _points(root.parts[part], key)]
            pages = [page for page in lacking[1] if _points(root.pages[page], key)]
            if parts:
                self.mapped.problems.append(make_part_problem(name, parts, "it is missing", what.blocks))
            if pages:
                self.mapped.problems.append(make_page_problem(name, pages, "it is missing"))
        self.mapped.bad_parts += lacking[0]
        self.mapped.bad_pages += lacking[1]
        self.report.parts = int(np.count_nonzero(root.parts["map"]))
        now = self._now(root, self.rest)
        for problem in self.mapped.problems:
            runs = now.select_untold(problem.runs) if problem.kind == "part" else problem.runs
            self._say(replace(problem, runs=runs))
        if self.mapped.lost:
            runs = np.concatenate(self.mapped.lost)
            self._say(
                StoreProblem("slots", self.prefix, "an earlier repair gave these blocks up", runs, True)
            )

    def _now(self, root: CheckpointRoot, rest: LogTail) -> NewestView:
        return NewestView(self.store, self.prefix, root, rest, CHECK_MEMORY)

    def _segments(self, mapped: CheckedMap, share: float, chance: Callable[[], float]) -> None:
        live = np.flatnonzero(mapped.live).tolist()
        total = len(live) + len(self.rest.segments)
        log = [segment.sequence for segment in self.rest.segments]
        chosen = None if share >= 1 else {one for one in [*live, *log] if chance() < share}
        suspects: list[SegmentResult] = []
        identity = mapped.root.identity
        runs = mapped.spool.windows()
        every = list_segment_jobs(runs, mapped.root, self.prefix, chosen)
        done = 0
        for looked in map_ordered(self.pool, lambda job: check_segment(self.store, identity, job), every):
            done += 1
            self.progress("segments", done, total)
            self._looked(looked, suspects)
        for segment in self.rest.segments:
            done += 1
            self.progress("segments", done, total)
            if chosen is None or segment.sequence in chosen:
                key = make_segment_key(self.prefix, segment.sequence, segment.epoch)
                job = SegmentJob(segment.sequence, key, np.zeros(0, PROBLEM_RUNS), True)
                self._looked(check_segment(self.store, identity, job), suspects)
        self.report.segments = total
        self._confirm(suspects)

    def _looked(self, looked: SegmentResult, suspects: list[SegmentResult]) -> None:
        self.report.verified_bytes += looked.verified
        self.report.read_segments += looked.verified > 0
        if looked.missing or looked.problems:
            suspects.append(looked)

    def _confirm(self, suspects: list[SegmentResult]) -> None:
        """Only what the newest checkpoint and log still need is damage."""
        for attempt in range(ROOT_LOOKS if suspects else 0):
            try:
                self._confirmed(suspects, self._newest())
                return
            except (CheckpointMoved, ObjectDamaged):
                # A part of the map went while it was asked for, or cannot be read: the map's own troubles are told.
                if attempt == ROOT_LOOKS - 1:
                    self._confirmed(suspects, None)
                self.report.looks += 1

    def _newest(self) -> NewestView:
        root = read_newest_root(self.store, self.prefix, self.what)
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
                    found.append(StoreProblem("segment", looked.job.key, why, runs, True, numbers))
            for problem in looked.problems:
                runs = problem.runs if now is None else now.still(problem.runs)
                if len(runs) or problem.kind == "slots":
                    kept = (
                        problem if len(runs) else replace(problem, why=f"{problem.why}; none of them is live")
                    )
                    found.append(replace(kept, runs=runs, lost=problem.lost and len(runs) > 0))
        self.report.problems += found

    def _counts(self, mapped: CheckedMap) -> None:
        if mapped.bad_parts or mapped.bad_pages:
            return
        wrong = mapped.wrong_counts()
        if wrong:
            why = f"{len(wrong)} segments have another number of live slots than the map says"
            first = make_segment_key(self.prefix, wrong[0], mapped.root.epoch_of(wrong[0]))
            self._say(StoreProblem("usage", first, why, numbers=tuple(wrong[:1000])))


def _points(ref: np.void, key: tuple[int, int]) -> bool:
    return (int(ref["map"]), int(ref["epoch"])) == key
