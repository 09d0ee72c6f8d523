"""What is seen of a stream, a vault and its disks, as the doctor gets it."""

from __future__ import annotations

from dataclasses import replace

from zvault.core.diagnosis.observations import (
    DiskRequests,
    Observations,
    StreamFlow,
    StreamStage,
    WriteQueue,
)

KIB, MIB = 1 << 10, 1 << 20
MERGE = "zfs_vdev_aggregation_limit_non_rotating"
LEAST, MOST = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
DEFAULTS = {MERGE: 128 * KIB, LEAST: 2, MOST: 10, "zio_dva_throttle_enabled": 1, "zfs_txg_timeout": 5}
TUNED = {MERGE: 4 * MIB, LEAST: 4, MOST: 4, "zio_dva_throttle_enabled": 0, "zfs_txg_timeout": 5}


def stages(*full: float, cpu: float = 0.1, first: str = "source") -> tuple[StreamStage, ...]:
    kinds = {1: ["receive"], 2: ["buffer", "receive"], 3: ["limit", "buffer", "receive"]}[len(full)]
    rest = [StreamStage(kind, kind, cpu, share) for kind, share in zip(kinds, full, strict=True)]  # type: ignore[arg-type]
    return (StreamStage(first, first, cpu), *rest)  # type: ignore[arg-type]


def flow(*full: float, **changes: object) -> StreamFlow:
    return replace(StreamFlow("tank", "tank/data", stages(*full), 11e6), **changes)  # type: ignore[arg-type]


def disk(
    flying: float, latency: float, size: int, *, seconds: float = 5.0, busy: float = 1.0, rounds: float = 0.0
) -> DiskRequests:
    writes = round(flying * seconds / latency)
    return DiskRequests("nbd0", seconds, writes, writes * size, flying * seconds, busy=busy, rounds=rounds)


def vault(**changes: object) -> Observations:
    """A stream that waits for the vault, which takes two requests of 128 KiB at a time."""
    seen = Observations(
        "cold",
        "cold",
        "nbd-lan",
        5.0,
        "ONLINE",
        flows=(flow(1.0, 1.0),),
        disks=(disk(2, 0.022, 128 * KIB),),
        queue=WriteQueue(30, 2, 0.4, 0.022),
        request=128.0 * KIB,
        largest=32 * MIB,
        parameters=DEFAULTS,
    )
    return replace(seen, **changes)  # type: ignore[arg-type]
