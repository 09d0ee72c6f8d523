"""What a device's server is told on its command line, and how its block store is to be attached by that."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zvault.blockstore.options import EngineOptions, ReadOptions
from zvault.config.device_specs.blockstore import BlockstoreServer, parse_store_words
from zvault.config.device_specs.blockstore_settings import MIN_JOURNAL
from zvault.core.errors import ConfigError, Refused
from zvault.system.record_store import read_boot_id

IN_MEMORY = frozenset({"tmpfs", "ramfs"})

SERVER_WORDS = frozenset(
    {"status", "create", "readonly", "latest", "at", "before", "seen", "user", "try-conditions"}
)
"""Words that are no settings of the block store."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of the command line: the device, where to tell of it, whether it may be made, or is only looked
    at.
    """

    spec: BlockstoreServer
    status: Path | None = None
    create: bool = False
    readonly: bool = False
    latest: bool = False
    """Whether it is looked at anew as its writer goes on, and no read fails: see latest_device.py."""
    at: tuple[int, int] | None = None
    """Of which moment it is looked at, by epoch and number of its checkpoint; None: now."""
    before: float | None = None
    """Seconds since the epoch: versions that came later are not believed, and the moment need not be kept."""
    seen: Path | None = None
    """See EngineOptions.seen."""
    user: int | None = None
    """Whom the server becomes, where it begins as root: see own_user.py."""

    tries_conditions: bool = False
    """Whether it is seen first that the store keeps to conditional puts: where no guard has seen to that."""

    @classmethod
    def of(cls, words: Sequence[str]) -> ServeOptions:
        """From ``NAME=VALUE``. Raises ConfigError."""
        own = {name: value for name, _, value in (word.partition("=") for word in words)}
        rest = [word for word in words if word.partition("=")[0] not in SERVER_WORDS]
        readonly, latest = own.get("readonly", "no"), own.get("latest", "no")
        try:
            for name, value in (("readonly", readonly), ("latest", latest)):
                if value not in ("yes", "no"):
                    raise ValueError(f"{name} must be yes or no, not {value}")
            if readonly == "yes" and own.get("create") == "yes":
                raise ValueError("readonly=yes and create=yes: what is made is written to")
            at = _moment(own["at"]) if own.get("at") else None
            before = float(own["before"]) if own.get("before") else None
            if latest == "yes" and (readonly == "no" or at is not None):
                raise ValueError("latest=yes needs readonly=yes, and no at=")
            if at is not None and readonly == "no":
                raise ValueError("at= needs readonly=yes: the past is not written to")
            if before is not None and at is None:
                raise ValueError("before= needs at=")
            user = int(own["user"]) if own.get("user") else None
            spec = parse_store_words(rest)
        except ValueError as error:
            raise ConfigError(
                "the block store cannot be served so", str(error), "correct its words"
            ) from error
        status = own.get("status")
        create = own.get("create") == "yes"
        seen = Path(own["seen"]) if own.get("seen") else None
        tries = own.get("try-conditions") == "yes"
        told = Path(status) if status else None
        return cls(spec, told, create, readonly == "yes", latest == "yes", at, before, seen, user, tries)


def _moment(text: str) -> tuple[int, int]:
    epoch, dash, number = text.partition("-")
    if not (dash and epoch.isdecimal() and number.isdecimal()):
        raise ValueError(f"{text} is no epoch and number of a checkpoint, as in at=3-120")
    return int(epoch), int(number)


def make_engine_options(spec: BlockstoreServer) -> EngineOptions:
    """Return the options to attach it with. Raises Refused for a journal that would not outlive a power cut."""
    if spec.journal is None:
        raise ConfigError("the block store has no journal", "", "give it journal=/path")
    journal, size = Path(spec.journal), spec.journal_size
    kind = find_file_system(journal)
    if spec.mode == "strict" and kind in IN_MEMORY:
        size = min(size, max(MIN_JOURNAL, measure_free_space(journal) // 2))
    if spec.mode == "writeback" and kind in IN_MEMORY:
        raise Refused(
            f"{journal} is no place for a journal",
            f"it is in memory ({kind}), and with mode=writeback it holds what is nowhere else yet",
            "name a folder on a disk by journal=, or leave mode=strict",
        )
    return EngineOptions(
        journal=journal,
        mode=spec.mode,
        journal_size=size,
        cache=Path(spec.cache) if spec.cache is not None else None,
        cache_size=spec.cache_size,
        memory=spec.memory,
        uploads=spec.uploads,
        history=spec.history,
        lock=spec.lock,
        gc_elsewhere=spec.gc_elsewhere,
        boot=read_boot_bytes(),
    )


def read_boot_bytes() -> bytes:
    """The boot of this host in 16 bytes; b"" where the kernel does not tell."""
    try:
        return uuid.UUID(read_boot_id()).bytes
    except (OSError, ValueError):
        return b""


def make_read_options(spec: BlockstoreServer) -> ReadOptions:
    """Return the options to look at it with."""
    cache = Path(spec.cache) if spec.cache is not None else None
    return ReadOptions(cache, spec.cache_size, spec.memory, max(8, 2 * spec.uploads))


def find_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of file system that a path is in, or will be; "" where it cannot be told."""
    real, kind, longest = str(path.resolve()), "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ").rstrip("/")
        if (real == point or real.startswith(f"{point}/")) and len(point) >= longest:
            kind, longest = found, len(point)
    return kind


def measure_free_space(path: Path) -> int:
    """Bytes that there is room for where a path is, or will be."""
    there = next(one for one in (path, *path.parents) if one.exists())
    return shutil.disk_usage(there).free
