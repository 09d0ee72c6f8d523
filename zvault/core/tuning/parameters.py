"""OpenZFS's module parameters that profiles use: meaning, default, versions, and the rule for two vaults that want
different values.

Defaults are those of the source of OpenZFS 2.1 to 2.4 (module/zfs/vdev_queue.c, zio.c, txg.c, arc.c, dmu_recv.c);
where zfs(4) differs, the source is right. The reasons for the rules were measured: see docs/explanation/tuning.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zvault.core.zfs_version import NEWEST_VERSION, Version

ParameterUnit = Literal["size", "count", "percent", "seconds", "switch", "text"]
CombineRule = Literal["larger", "smaller"]


@dataclass(frozen=True, slots=True)
class KnownParameter:
    """One parameter. ``rule`` decides between two vaults, for the reason ``because``; without a rule it is not set.

    OpenZFS has it from version ``since`` on, until before ``gone``; ``lost`` says what its absence means.
    """

    what: str
    default: str | None
    unit: ParameterUnit = "count"
    rule: CombineRule | None = None
    because: str = ""
    since: Version = (2, 1)
    gone: Version = NEWEST_VERSION
    lost: str = ""


_LARGE = "too high a limit costs a fast device little, too low a limit costs a slow one most of its speed"
_DEEP = "too deep a queue merges nothing, which hurts a slow device; too shallow a one costs a fast device a quarter"
_READ = "more reads at once shorten the wait for them, and do not hurt a vault that does not read"
_SHARED = "a scrub of any pool of this host gets this share while somebody waits for his own requests"
_SCAN = (
    "more reads of a scrub at once shorten it, and OpenZFS holds them back while anybody else uses the device"
)
_AHEAD = "the larger value lets a slow device read ahead far enough to merge, and takes memory only while it is read"
_ROOM = "the larger value lets one vault fill its requests and does not hurt the other"
_FREE = "with the throttle, a vault that wants none gets no merged writes"

KNOWN_PARAMETERS: Mapping[str, KnownParameter] = {
    "zfs_vdev_aggregation_limit": KnownParameter(
        "largest request that is merged, on devices that say they rotate", "1048576", "size", "larger", _LARGE
    ),
    "zfs_vdev_aggregation_limit_non_rotating": KnownParameter(
        "largest request that is merged, on devices that say they do not rotate",
        "131072",
        "size",
        "larger",
        _LARGE,
    ),
    "zfs_vdev_max_active": KnownParameter(
        "requests at a device at once, of all kinds", "1000", rule="smaller", because=_DEEP
    ),
    "zfs_vdev_async_write_min_active": KnownParameter(
        "writes at a device at once while little is dirty", "2", rule="smaller", because=_DEEP
    ),
    "zfs_vdev_async_write_max_active": KnownParameter(
        "writes at a device at once while much is dirty", "10", rule="smaller", because=_DEEP
    ),
    "zfs_vdev_sync_write_min_active": KnownParameter(
        "synchronous writes at a device, at least", "10", rule="smaller", because=_DEEP
    ),
    "zfs_vdev_sync_write_max_active": KnownParameter(
        "synchronous writes at a device, at most", "10", rule="smaller", because=_DEEP
    ),
    "zfs_vdev_sync_read_min_active": KnownParameter(
        "synchronous reads at a device, at least", "10", rule="larger", because=_READ
    ),
    "zfs_vdev_sync_read_max_active": KnownParameter(
        "synchronous reads at a device, at most", "10", rule="larger", because=_READ
    ),
    "zfs_vdev_async_read_min_active": KnownParameter(
        "reads ahead at a device, at least", "1", rule="larger", because=_READ
    ),
    "zfs_vdev_async_read_max_active": KnownParameter(
        "reads ahead at a device, at most", "3", rule="larger", because=_READ
    ),
    "zfs_vdev_scrub_min_active": KnownParameter(
        "scrub's reads at a device while others use it", "1", rule="smaller", because=_SHARED
    ),
    "zfs_vdev_scrub_max_active": KnownParameter(
        "scrub's reads at a device that nobody else uses", "3", rule="larger", because=_SCAN
    ),
    "zfs_vdev_nia_delay": KnownParameter(
        "scrub's reads after anybody else's request, before more than the least go at once",
        "5",
        rule="smaller",
        because=_SCAN,
    ),
    "zfs_vdev_nia_credit": KnownParameter(
        "scrub's reads between two requests of others that wait", "5", rule="smaller", because=_SHARED
    ),
    "zfs_scan_vdev_limit": KnownParameter(
        "bytes that a scrub reads from a device at once", "16777216", "size", "larger", _AHEAD
    ),
    "zfs_send_queue_length": KnownParameter(
        "bytes that a send reads ahead", "16777216", "size", "larger", _AHEAD
    ),
    "zfetch_min_distance": KnownParameter(
        "bytes that are read ahead of a file that is read in order, at first",
        "4194304",
        "size",
        "larger",
        _AHEAD,
    ),
    "zfetch_max_distance": KnownParameter(
        "bytes that are read ahead of a file that is read in order, at most",
        "67108864",
        "size",
        "larger",
        _AHEAD,
    ),
    "zfs_vdev_read_gap_limit": KnownParameter(
        "bytes that may lie between two reads that are merged", "32768", "size", "larger", _LARGE
    ),
    "zfs_vdev_write_gap_limit": KnownParameter(
        "bytes that may lie between two writes that are merged", "4096", "size", "larger", _LARGE
    ),
    "zio_dva_throttle_enabled": KnownParameter(
        "whether allocations wait for the device, which keeps its queue short",
        "1",
        "switch",
        "smaller",
        _FREE,
    ),
    "zfs_vdev_queue_depth_pct": KnownParameter(
        "how much may be allocated ahead of the device",
        "1000",
        "percent",
        "larger",
        _ROOM,
        gone=(2, 4),
        lost="its allocation throttle goes by bytes and needs no such figure",
    ),
    "zfs_vdev_def_queue_depth": KnownParameter(
        "allocations queued ahead of a device, before its own depth is known",
        "32",
        rule="larger",
        because=_ROOM,
        gone=(2, 4),
        lost="its allocation throttle goes by bytes and needs no such figure",
    ),
    "zfs_vdev_async_write_active_min_dirty_percent": KnownParameter(
        "share of dirty data from which more writes go to a device at once", "30", "percent"
    ),
    "zfs_vdev_async_write_active_max_dirty_percent": KnownParameter(
        "share of dirty data from which the most writes go to a device at once", "60", "percent"
    ),
    "zfs_txg_timeout": KnownParameter(
        "longest time until dirty data is written out", "5", "seconds", "larger", _ROOM
    ),
    "zfs_dirty_data_max": KnownParameter("memory for dirty data of all pools", None, "size", "larger", _ROOM),
    "zfs_dirty_data_sync_percent": KnownParameter(
        "share of zfs_dirty_data_max at which dirty data is written out", "20", "percent", "larger", _ROOM
    ),
    "zfs_dirty_data_max_max": KnownParameter(
        "bound of zfs_dirty_data_max", None, "size", rule="larger", because=_ROOM
    ),
    "zfs_dirty_data_max_percent": KnownParameter(
        "share of memory from which zfs_dirty_data_max is computed at load", "10", "percent", "larger", _ROOM
    ),
    "zfs_dirty_data_max_max_percent": KnownParameter(
        "share of memory from which zfs_dirty_data_max_max is computed at load",
        "25",
        "percent",
        "larger",
        _ROOM,
    ),
    "zfs_delay_min_dirty_percent": KnownParameter(
        "share of dirty data from which writers are slowed down", "60", "percent", "larger", _ROOM
    ),
    "zfs_recv_queue_length": KnownParameter(
        "bytes a receive has read and not yet written", "16777216", "size", "larger", _ROOM
    ),
    "zfs_recv_write_batch_size": KnownParameter(
        "bytes of one object a receive writes in one go", "1048576", "size", "larger", _ROOM
    ),
    "zfs_recv_defer_batch_size": KnownParameter(
        "bytes of changed objects a receive collects before it waits for them",
        "33554432",
        "size",
        "larger",
        _ROOM,
        since=(2, 5),
        lost="there a receive waits for each changed object of several slots (OpenZFS issue 11353)",
    ),
    "zfs_max_recordsize": KnownParameter(
        "largest recordsize that can be set", "16777216", "size", "larger", _ROOM
    ),
    "zfs_vdev_open_timeout_ms": KnownParameter(
        "milliseconds to wait for a device's node at import", "1000", rule="larger", because=_ROOM
    ),
    "zfs_deadman_ziotime_ms": KnownParameter("milliseconds after which a request counts as hung", "300000"),
    "zfs_deadman_failmode": KnownParameter("how OpenZFS handles a hung request", "wait", "text"),
    "zfs_dio_enabled": KnownParameter(
        "whether direct requests of programs bypass the ARC",
        None,
        "switch",
        since=(2, 3),
        lost="without it all requests go through the ARC",
    ),
    "zfs_vdev_disk_classic": KnownParameter(
        "whether disks get their requests the way OpenZFS 2.1 did",
        "0",
        "switch",
        since=(2, 2),
        gone=(2, 4),
        lost="it has only one way",
    ),
}
