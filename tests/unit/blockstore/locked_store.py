"""An engine on a bucket whose objects are locked for some days."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from zvault.blockstore.attach import attach_store
from zvault.blockstore.engine import BlockEngine
from zvault.blockstore.options import EngineOptions
from zvault.core.policy.object_lock import ObjectLock
from zvault.object_store.interface import ObjectStore

DAY = 86400.0
LOCK = ObjectLock("compliance", 10 * DAY)
POOL = ThreadPoolExecutor(2)


def opened(store: ObjectStore, folder: Path, now: list[float], **more: Any) -> BlockEngine:
    options = EngineOptions(
        folder / "journal", uploads=0, lock=LOCK, clock=lambda: now[0], linger=1e9, **more
    )
    return attach_store(store, "vault", options, "test")
