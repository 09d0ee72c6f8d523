"""How a block store is served: what the configuration chooses."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zvault.core.policy.object_lock import ObjectLock
from zvault.core.policy.retention import KeepRules
from zvault.core.units import parse_size

WriteMode = Literal["strict", "writeback"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Sizes in bytes, times in seconds.

    ``mode``: a flush answers when all is in the store (strict), or when it is in the journal (writeback).
    ``uploads``: segments on their way at once; 0: no threads, for tests. ``checkpoint_segments``: a checkpoint after
    so many. ``linger``: how long what is not flushed stays in memory. ``stored``: at most so many bytes are stored for
    each live one. ``collect_rate``: bytes a second that collecting garbage may move. ``watch``: between two looks
    whether the store has another writer. ``give_up_journal``: lose what only the journal has, where another host wrote
    or the journal is missing.
    ``seen``: the folder where this host keeps how far it knows stores to have come; None: it does not.
    ``open_position`` opens the file there, by the store's uuid, where this process itself may not.
    ``history``: which moments of the past are kept; None: those that are, and no more; without any rule: none.
    ``lock``: how what is needed is locked; the store locks what is put. ``gc_elsewhere``: nothing is removed here.
    ``keeps_locked``: whether it has all locked again when that is due.
    ``accept_older``: go on with a store that is older than that, or than the journal.
    ``journal_name``: what people call the folder of the journal; ``boot``: the boot of this host, b"" where a journal
    in memory is not looked after.
    """

    journal: Path
    mode: WriteMode = "strict"
    journal_size: int = parse_size("256M")
    cache: Path | None = None
    cache_size: int = parse_size("10G")
    memory: int = parse_size("256M")
    uploads: int = 4
    checkpoint_segments: int = 64
    linger: float = 5.0
    idle: float = 60.0
    stored: float = 1.25
    collect_rate: float = float(parse_size("20M"))
    watch: float = 10.0
    give_up_journal: bool = False
    seen: Path | None = None
    accept_older: bool = False
    open_position: Callable[[bytes], int] | None = None
    history: KeepRules | None = None
    lock: ObjectLock | None = None
    gc_elsewhere: bool = False
    keeps_locked: bool = True
    clock: Callable[[], float] = time.time
    journal_name: str = ""
    boot: bytes = b""

    @property
    def removes_at_once(self) -> bool:
        """True if a plain delete removes an object: neither is it locked, nor is that left to others."""
        return self.lock is None and not self.gc_elsewhere


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a store that is served only to be looked at.

    Sizes in bytes; ``workers``: requests at once, 0: no threads.
    """

    cache: Path | None = None
    cache_size: int = parse_size("10G")
    memory: int = parse_size("256M")
    workers: int = 8
