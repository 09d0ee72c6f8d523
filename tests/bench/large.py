"""A block store of many TiB that nobody has written: its map and its counts are made, by what makes checkpoints.

Each 128 KiB record lies somewhere of its own, as after years of changes. The map of the first TiB is real in every
part; those of the others are the same parts again. How much of a segment is live is drawn at random. So the root, the
table of segments and the map of the first TiB have their true size, which is all that opening a store reads. There are
no segments: it can be opened, discarded and written, and not be read.

As a program: opens the store and prints what that took, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from zvault.blockstore.attach import attach_store
from zvault.blockstore.format import BLOCK_SIZE, SEGMENT_SLOTS, SEGMENT_TABLE, SLOT_SIZE
from zvault.blockstore.map.map_part import PART_BLOCKS, PART_RUNS, MapPart
from zvault.blockstore.map.map_writer import MapWriter
from zvault.blockstore.options import EngineOptions
from zvault.blockstore.recovery import create_store
from zvault.object_store.interface import ObjectStore
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings

RECORD = 32
"""Blocks of a record."""
PARTS_A_TIB = (1 << 40) // (PART_BLOCKS * BLOCK_SIZE)


def make(store: ObjectStore, prefix: str, tib: int, journal: Path) -> int:
    """Make one; the bytes that its checkpoint and its map take in the bucket."""
    create_store(store, prefix, tib << 40)
    engine = attach_store(store, prefix, EngineOptions(journal, uploads=0), "bench")
    root, per_part, per_segment = engine.blocks.root, PART_BLOCKS // RECORD, SEGMENT_SLOTS // RECORD
    order = np.random.default_rng(6).permutation(PARTS_A_TIB * per_part)
    writer = MapWriter(store, prefix, root, root.epoch, engine.changed)
    for part in range(PARTS_A_TIB):
        runs = np.zeros(per_part, PART_RUNS)
        runs["start"] = np.arange(per_part) * RECORD
        runs["less"] = RECORD - 1
        place = order[part * per_part : (part + 1) * per_part]
        runs["segment"], runs["slot"] = place // per_segment + 1, place % per_segment * RECORD
        engine.blocks.stage(part, MapPart(runs))
        writer.add(MapPart(runs).as_bytes(), partial(engine.blocks.stored, part))
    writer.flush()
    root.parts[:] = np.tile(root.parts[:PARTS_A_TIB], tib)
    segments = len(order) // per_segment * tib
    usage = engine.usage
    usage._grow(segments)
    usage.live[1 : segments + 1] = np.random.default_rng(7).integers(1, SEGMENT_SLOTS, segments)
    usage.size[1 : segments + 1] = SEGMENT_SLOTS * SLOT_SIZE + per_segment * SEGMENT_TABLE.itemsize
    usage.changed = set(range(segments // 8192 + 1))
    root.applied = segments
    engine.log.begin(engine.fence.epoch.number, segments, 0)
    engine.checkpoint()
    engine.close()
    return sum(found.size for found in store.list(f"{prefix}/"))


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Open the store of the command line: endpoint, bucket, prefix, a folder for its journal, parts to load."""
    endpoint, bucket, prefix, journal, parts = sys.argv[1:]
    store = S3Store(S3Settings(bucket, endpoint, region="default", keys="/run/blockstore-lab/keys"))
    store.read(f"{prefix}/store")  # boto3 itself takes its time to begin with
    before, began = resident(), time.monotonic()
    engine = attach_store(store, prefix, EngineOptions(Path(journal)), "bench")
    took, opened = time.monotonic() - began, resident()
    for part in range(int(parts)):
        engine.blocks.locate(part * PART_BLOCKS, 1)
    told = {
        "attach_s": round(took, 3),
        "attach_mib": round((opened - before) / (1 << 20), 1),
        "process_mib": round(opened / (1 << 20), 1),
        "map_mib_per_tib": round(engine.blocks.memory_used / max(1, int(parts)) * PARTS_A_TIB / (1 << 20), 1),
    }
    engine.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
