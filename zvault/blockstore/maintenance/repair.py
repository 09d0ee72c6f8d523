"""Repairs a store: the map from the segments, the rest as well as it can be. Nobody may write to it meanwhile.

The order makes a crash at any moment harmless: first the store is taken, so that whoever had it can write no more; then
a checkpoint is put whose map is whole again, under the epoch of the last one, so that a journal of this host still
fits; then the store is opened as by a server, which brings back what only the journal has; and last, garbage goes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import setitem
from typing import Literal

import numpy as np

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.format import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    ObjectDamaged,
    Superblock,
    find_key_numbers,
    make_checkpoint_key,
    parse_key_numbers,
)
from zvault.blockstore.maintenance.check import StoreCheck
from zvault.blockstore.maintenance.check_report import CheckReport, Progress
from zvault.blockstore.maintenance.rebuild import MapRebuilder, RebuiltParts
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.map_writer import MapWriter
from zvault.blockstore.map.read_roots import check_superblock, parse_any_root
from zvault.blockstore.map.root import MAP_REFERENCE, CheckpointRoot, EpochStart, estimate_largest_root
from zvault.blockstore.map.usage import PAGE_SEGMENTS, SegmentUsage
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import WriterEpoch, list_checkpoint_keys
from zvault.core.errors import Busy, Refused
from zvault.core.units import format_size
from zvault.object_store.interface import NO_OBJECT_YET, ObjectMissing, ObjectStore, PreconditionFailed

DoubtfulChoice = Literal["", "fail", "data"]
NEVER_CHECKPOINT = 1 << 30
"""Segments and seconds: an engine with these takes no checkpoint by itself."""


@dataclass(slots=True)
class RepairJob:
    """The options of a repair, and what it did. ``size``: of the device in bytes, where its first object is lost.

    ``doubtful``: what becomes of blocks that may have been zeroed since (rebuild.py); "": refuse. ``cut``: let the log
    end before a segment whose own account is damaged.
    """

    options: EngineOptions
    owner: str
    size: int | None = None
    doubtful: DoubtfulChoice = ""
    cut: bool = False
    done: list[str] = field(default_factory=list)
    say: Callable[[str], None] = lambda _: None

    def did(self, text: str) -> None:
        """Record what was repaired."""
        self.done.append(text)
        self.say(text)


def quiet_options(options: EngineOptions) -> EngineOptions:
    """The options for an engine that takes checkpoints and collects garbage only when it is told to."""
    never = float(NEVER_CHECKPOINT)
    return replace(
        options,
        checkpoint_segments=NEVER_CHECKPOINT,
        idle=never,
        collect_rate=1e12,
        linger=never,
        keeps_locked=False,
    )


def repair_store(
    store: ObjectStore, prefix: str, job: RepairJob, pool: Executor, progress: Progress = lambda *_: None
) -> CheckReport:
    """Repair what can be repaired; what is wrong afterwards. Raises Refused where one has to choose, StoreError."""
    _superblock(store, prefix, job)
    _take(store, prefix, job)
    checked = StoreCheck(store, prefix, pool, progress, settle=0)
    report = checked.run(0, lambda: 1.0)
    if not checked.complete:
        why = "; ".join(f"{one.key}: {one.why}" for one in report.of("checkpoint", "store"))
        following = "bring back an older version of a checkpoint, if the bucket keeps versions"
        raise Refused(f"the block store {prefix} cannot be repaired", why, following)
    _map(store, prefix, checked, job, pool, progress)
    # What is cut off was chosen: this host knew it.
    options = replace(quiet_options(job.options), accept_older=job.options.accept_older or job.cut)
    engine = attach_store(store, prefix, options, job.owner, job.say)
    try:
        _rescue(engine, checked, job)
        _remove(store, report, job)
        engine.checkpoint()
        engine.checkpoint()
        engine.close()
    except BaseException:
        engine.abandon()
        raise
    return StoreCheck(store, prefix, pool, progress, settle=0).run(0, lambda: 1.0)


def _superblock(store: ObjectStore, prefix: str, job: RepairJob) -> None:
    """Make the first object anew, from a checkpoint and the size that is given, where the two do not agree."""
    key, condition, found = f"{prefix}/store", None, None
    try:
        data, condition = store.read(key)
        found = check_superblock(Superblock.of_bytes(data))
    except ObjectMissing:
        condition = NO_OBJECT_YET
    except ObjectDamaged:
        pass
    root = _any_root(store, prefix)
    if root is None:
        if found is None:
            why = "no checkpoint tells which store it was"
            raise Refused(f"{key} cannot be made anew", why, "bring back an older version of it")
        return
    many = len(root.parts)
    if found is not None and found.identity == root.identity and -(-found.blocks // PART_BLOCKS) == many:
        return
    if job.size is None or -(-(job.size // BLOCK_SIZE) // PART_BLOCKS) != many or job.size % BLOCK_SIZE:
        most = format_size(many * PART_BLOCKS * BLOCK_SIZE)
        raise Refused(
            f"{key} cannot be made anew",
            f"the size of the device is not known: at most {most}, and less than "
            f"{PART_BLOCKS * BLOCK_SIZE >> 20}M below that",
            "give the size that it was made with, as size=… of the place",
        )
    made = Superblock(FORMAT_VERSION, root.identity.hex(), job.size, 0.0)
    store.put(key, made.as_bytes(), condition)
    job.did(f"made {key} anew, as of a store of {format_size(job.size)}")


def _any_root(store: ObjectStore, prefix: str) -> CheckpointRoot | None:
    """The newest checkpoint that can be read, whichever store it says that it is of."""
    for name in reversed(list_checkpoint_keys(store, prefix)):
        try:
            return parse_any_root(store.read(name, estimate_largest_root())[0], name)
        except (ObjectMissing, ObjectDamaged):
            continue
    return None


def _take(store: ObjectStore, prefix: str, job: RepairJob) -> WriterEpoch:
    """Shut every writer out. The epoch comes after each that any object tells of."""
    is_damaged = False
    try:
        now = WriterEpoch.read(store, prefix)
    except ObjectDamaged:
        is_damaged = True
        now = WriterEpoch(0, "", 0.0, _etag_of_damaged(store, WriterEpoch.key(prefix)))
        job.did(f"made {WriterEpoch.key(prefix)} anew")
    least = now.number
    for listed in store.list(f"{prefix}/"):
        kind = listed.key.removeprefix(f"{prefix}/").partition("/")[0]
        try:
            found = parse_key_numbers(listed.key)
        except ValueError:
            continue
        if kind in ("segments", "maps", "checkpoints"):
            least = max(least, found[0] if kind == "checkpoints" else found[1])
    if not now.etag and least and not is_damaged:
        job.did(f"made {WriterEpoch.key(prefix)} anew")
    taken = replace(now, number=least).taken_by(store, prefix, job.owner)
    job.say(f"the store is taken, as epoch {taken.number}: nobody else can write to it now")
    return taken


def _etag_of_damaged(store: ObjectStore, key: str) -> str:
    """The ETag that the object which replaces this one is put on condition of; "" where there must be none.

    One without an ETag is removed first: so of two repairs at once only one puts.
    """
    try:
        return store.read(key)[1]
    except ObjectDamaged:
        store.delete([key])
        return ""


def _map(
    store: ObjectStore, prefix: str, checked: StoreCheck, job: RepairJob, pool: Executor, progress: Progress
) -> None:
    """Put a checkpoint with a map that is whole again, where that is needed."""
    mapped, root = checked.mapped, checked.root.copy()
    if checked.broken is not None and not job.cut:
        raise Refused(
            f"the log of {prefix} cannot be read from segment {checked.broken} on",
            f"without it is lost {checked.report.cut.describe()}"
            if checked.report.cut is not None
            else "what was written from there on would be lost",
            "bring that object back if there is a copy; else repair with --cut-log",
        )
    rebuilt = RebuiltParts()
    if mapped.bad_parts:
        rebuilt = MapRebuilder(checked, pool, progress).run(job.doubtful)
        _refuse_doubtful(rebuilt, job)
    missing = _missing(checked)
    if mapped.bad_parts or mapped.bad_pages or missing or (not mapped.bad_pages and mapped.wrong_counts()):
        writer = MapWriter(store, prefix, root, checked.epoch.number)
        for part, made in rebuilt.parts.items():
            writer.add(made.as_bytes(), partial(setitem, root.parts, part))
        usage = _counted(checked, rebuilt, missing)
        pages = -(-len(usage.live) // PAGE_SEGMENTS)
        root.pages = np.zeros(pages, MAP_REFERENCE)
        for page in range(pages):
            writer.add(usage.page_bytes(page), partial(setitem, root.pages, page))
        writer.flush()
        _told(mapped.bad_parts, rebuilt, missing, job)
    elif checked.broken is None:
        return
    if checked.broken is not None:
        _cut(root, checked, job)
    put_root(store, prefix, root)


def _refuse_doubtful(rebuilt: RebuiltParts, job: RepairJob) -> None:
    if not (rebuilt.doubtful or rebuilt.unknown) or job.doubtful:
        return
    many = format_size((rebuilt.doubtful + rebuilt.unknown) * BLOCK_SIZE)
    why = (
        "the segments that said so are gone, as they should be, and the part of the map that knew is damaged"
    )
    if rebuilt.unknown:
        why = "the part of the map that knew is damaged, and so are segments, or what told which had been cleared"
    raise Refused(
        f"of {many} of the device nobody can tell whether they were discarded or zeroed since",
        why,
        "for a pool of ZFS, whose checksums tell, repair with --doubtful data; elsewhere with --doubtful fail, and"
        " reads of them fail",
    )


def _missing(checked: StoreCheck) -> list[int]:
    """Live segments whose objects are not there."""
    numbers = {
        number for one in checked.report.of("segment") if one.why == "it is missing" for number in one.numbers
    }
    size = checked.mapped.usage.size
    return sorted(one for one in numbers if one >= len(size) or size[one])


def _counted(checked: StoreCheck, rebuilt: RebuiltParts, missing: list[int]) -> SegmentUsage:
    """The usage, from the map as it is now and the objects that are there."""
    usage, prefix = SegmentUsage(), checked.prefix
    for key, size in checked.sizes.items():
        if key.startswith(f"{prefix}/segments/"):
            sequence, epoch = find_key_numbers(key)
            if 0 < sequence <= checked.root.applied and epoch == checked.root.epoch_of(sequence):
                usage.add(sequence, size)
    usage.gone(missing)
    usage._grow(checked.root.applied)
    live = np.zeros(len(usage.live), np.int64)
    live[: len(checked.mapped.live)] = checked.mapped.live
    for part in rebuilt.parts.values():
        np.add.at(live, part.runs["segment"], part.runs["less"].astype(np.int64) + 1)
    usage.live[:] = live.astype(np.uint16)
    return usage


def _told(bad_parts: list[int], rebuilt: RebuiltParts, missing: list[int], job: RepairJob) -> None:
    if bad_parts:
        job.did(f"rebuilt parts of the map from the segments: {len(rebuilt.parts)}")
    if rebuilt.doubtful or rebuilt.unknown:
        many = format_size((rebuilt.doubtful + rebuilt.unknown) * BLOCK_SIZE)
        fate = (
            "fail when read" if job.doubtful == "fail" else "may be of before they were discarded or zeroed"
        )
        job.did(f"{many} of the device that may have been discarded or zeroed {fate}")
    if missing:
        job.did(
            f"{len(missing)} segments are missing: reads of what they held fail, until it is written anew"
        )
    job.did("counted anew how much of each segment is live")


def _cut(root: CheckpointRoot, checked: StoreCheck, job: RepairJob) -> None:
    last, frame = root.applied + len(checked.rest.segments), root.frame
    if checked.rest.segments:
        frame = checked.rest.segments[-1].frame
    epoch = checked.epoch.number
    root.reigns = [*root.reigns, EpochStart(last + 1, epoch, frame)]
    root.epoch = epoch
    lost = checked.report.cut.describe() if checked.report.cut is not None else "what was written later"
    job.did(f"the log ends with segment {last}: lost is {lost}")


def put_root(store: ObjectStore, prefix: str, root: CheckpointRoot) -> None:
    """Put it as the newest, where nobody put one meanwhile. What it does not need of the map may be the past's."""
    there = [parse_key_numbers(key) for key in list_checkpoint_keys(store, prefix)]
    root.number = 1 + max([root.number, *(number for epoch, number in there if epoch == root.epoch)])
    used = {(int(ref["map"]), int(ref["epoch"])) for ref in (*root.parts, *root.pages)}
    root.past_maps = {key: told for key, told in root.past_maps.items() if key not in used}
    root.past_maps |= {key: (size, root.number) for key, size in root.maps.items() if key not in used}
    root.maps = {key: size for key, size in root.maps.items() if key in used}
    try:
        store.put(make_checkpoint_key(prefix, root.number, root.epoch), root.as_bytes(), NO_OBJECT_YET)
    except PreconditionFailed as error:
        why = "the writer that was shut out had just put a checkpoint"
        raise Busy(f"the block store {prefix} was not repaired", why, "try again") from error


def _rescue(engine: BlockEngine, checked: StoreCheck, job: RepairJob) -> None:
    """Write the blocks of segments anew whose own account is damaged: they could never be cleared."""
    saved = lost = 0
    for problem in checked.report.of("segment"):
        if problem.why == "it is missing":
            continue
        for block, count, _, _ in problem.runs.tolist():
            for at in range(block, block + count):
                try:
                    engine.write(at * BLOCK_SIZE, engine.read(at * BLOCK_SIZE, BLOCK_SIZE))
                    saved += 1
                except ObjectDamaged:
                    lost += 1
    if saved or lost:
        engine.put_all()
        job.did(f"wrote {format_size(saved * BLOCK_SIZE)} anew whose segments could not be read as such")


def _remove(store: ObjectStore, report: CheckReport, job: RepairJob) -> None:
    keys = [one.key for one in report.strays]
    keys += [one.key for one in report.of("checkpoint") if not one.key.endswith("/")]
    if not keys or not job.options.removes_at_once:
        return
    store.delete(keys)
    job.did(f"removed objects that belong to nothing: {len(keys)} ({format_size(report.stray_bytes)})")
