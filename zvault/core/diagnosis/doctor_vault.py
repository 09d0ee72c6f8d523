"""Finds the bottleneck of a saturated vault: processors, transaction groups, or the device. For a device it says
whether request size, queue depth or the device itself is the limit. Pure; see doctor.py.
"""

from __future__ import annotations

from statistics import median_low

from zvault.core.diagnosis.doctor_text import (
    Bottleneck,
    SettingChange,
    describe_disk_reads,
    describe_disk_writes,
    format_latency,
    format_percent,
    suggest_compressed_send,
    suggest_module_parameter,
)
from zvault.core.diagnosis.observations import DiskRequests, Observations, StreamFlow
from zvault.core.tuning.tuning import AGGREGATION_LIMITS, DIRTY_DATA_PARAMETER, DIRTY_SHARE
from zvault.core.units import format_rate, format_size

CPU_BOUND = 0.8
"""Share of one processor: a thread at this load hardly pauses."""

IDLE_CPU_SHARE = 0.08
"""Share of all processors: with less idle time than this, the host has none to spare."""

AT_WORK = 0.5
"""Share of the time: a device busy for less than this is not the bottleneck."""

GROUP_END_SHARE = 0.4
"""Share of the time: transaction groups are too small if the small writes at their end take this much."""

CONSTANT_READS = 1.0
"""Reads in flight, on average: from this on there is nearly always one. If only small writes go to the device at the
same time, those wait for what is read, as they do at the end of a transaction group: larger groups would not help.
"""

EFFICIENT_REQUEST = 1 << 20
"""Bytes: for requests this large, the fixed cost of a request hardly counts on any network storage."""

SIZE_MATTERS_LATENCY = 0.001
"""Seconds a request takes: from this latency on its size matters. Local disks are faster, or spend it on seeks."""

SMALL_REQUEST_SHARE = 0.75
"""Share of WORTH: a smaller request is small."""

SLOW_STORAGE_LATENCY = 0.01
"""Seconds a request takes: from this latency on it should be as large as the storage accepts."""

NEAR_MAXIMUM_SHARE = 0.8
"""Share of the configured maximum that counts as having reached it."""

FEW_WRITES = 2.5
"""Writes in flight: storage behind a network can handle more than this, whatever the profile says."""

NEAR_BANDWIDTH_SHARE = 0.75
"""Share of a device's measured bandwidth. Transaction groups and metadata take most of the rest."""

PACKER_THREADS = "z_wr_iss"
"""Name of the OpenZFS threads that compress and checksum writes."""

PACKER_CPU_SHARE = 0.25
"""Share of one processor: the busiest of these threads takes more where they are the limit (0.3 to 0.8 in the lab)."""

MIN_ACTIVE, MAX_ACTIVE = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
THROTTLE_PARAMETER = "zio_dva_throttle_enabled"
TXG_TIMEOUT_PARAMETER = "zfs_txg_timeout"
DIRTY_SHARE_PARAMETER = "zfs_dirty_data_sync_percent"

NO_SPACE = "dmu_tx_quota"
"""Counter of writers that found too little free space. OpenZFS reserves 24 times the size of a write
(spa_asize_inflation); if that much is not free, it closes the transaction group, whatever the group's size
(dsl_dir_tempreserve_impl, OpenZFS #1914, #10373).
"""


def diagnose_vault(seen: Observations, flow: StreamFlow | None) -> Bottleneck:
    """The bottleneck of a vault that is known to be saturated."""
    disk = max(seen.disks, key=lambda one: one.write_time + one.read_time, default=None)
    return _receiver(seen, flow) or (_out_of_sight(seen, flow) if disk is None else _below(seen, disk))


def _below(seen: Observations, disk: DiskRequests) -> Bottleneck:
    """The bottleneck of a vault whose processors have time to spare: transaction groups, or the device's requests."""
    if seen.measured is not None and disk.rate >= NEAR_BANDWIDTH_SHARE * seen.measured:
        return _device(seen, disk)
    if disk.busy < AT_WORK:
        return _sync(seen, disk)
    if disk.read_share >= AT_WORK or (
        disk.rounds >= GROUP_END_SHARE and disk.reads_in_flight >= CONSTANT_READS
    ):
        return _metadata(seen, disk)
    found = _cut(seen, disk) or _depth(seen, disk)
    if found is None and disk.rounds >= GROUP_END_SHARE:
        return _sync(seen, disk)
    return found or _unmerged(seen, disk) or _device(seen, disk)


def _out_of_sight(seen: Observations, flow: StreamFlow | None) -> Bottleneck:
    return Bottleneck(
        "device",
        f"vault {seen.vault} is the bottleneck: it takes {format_rate(flow.rate if flow else 0)}",
        None,
        "its devices cannot be examined from here",
    )


def _receiver(seen: Observations, flow: StreamFlow | None) -> Bottleneck | None:
    """Whether processors are the limit: the one thread that writes, or all of them."""
    own = flow.stages[-1].cpu if flow is not None else None
    now = seen.transfers
    thread = max(own or 0.0, seen.threads.get("receive_writer", 0.0))
    rate = format_rate(flow.rate) if flow is not None else "an unknown rate"
    if flow is not None and thread >= CPU_BOUND:
        return Bottleneck(
            "receive",
            f"one thread of zfs receive bounds vault {seen.vault}: it takes {format_percent(thread)} of "
            "one processor at"
            f" {rate}",
            SettingChange(
                "transfers", f"[vault.{seen.vault}]", str(now) if now else None, str((now or 1) + 1)
            ),
            "one thread receives a dataset; only several datasets at once use more processors",
        )
    # A device can look busy because its server process gets no processor time.
    return diagnose_processors(seen, flow, rate, besides=not any(one.busy >= AT_WORK for one in seen.disks))


def diagnose_processors(
    seen: Observations, flow: StreamFlow | None, rate: str, *, besides: bool = False
) -> Bottleneck | None:
    """Return a bottleneck if all processors are busy and OpenZFS is the cause; with ``besides`` whatever the cause
    is.
    """
    packing = seen.threads.get(PACKER_THREADS, 0.0)
    if seen.idle is None or seen.idle >= IDLE_CPU_SHARE or (packing < PACKER_CPU_SHARE and not besides):
        return None
    by = (
        f", and a thread that compresses and checksums blocks takes {format_percent(packing)} of one"
        if packing >= PACKER_CPU_SHARE
        else ""
    )
    return Bottleneck(
        "processor",
        f"the processors of this host bound vault {seen.vault}: {format_percent(seen.idle)} of their time "
        f"is left at {rate}" + by,
        (knob := suggest_compressed_send(flow)),
        "what is sent compressed is not compressed again"
        if knob is not None
        else "see with 'top' what else runs here; 'schedule' moves the backup to a quieter hour",
    )


def _sync(seen: Observations, disk: DiskRequests) -> Bottleneck:
    groups = seen.groups
    each = sum(one.written for one in groups) // len(groups) if groups else 0
    mean = sum(one.sync for one in groups) / len(groups) if groups else None
    short = (
        "; free space is short: OpenZFS reserves 24 times the bytes of each write"
        if seen.waits.get(NO_SPACE)
        else ""
    )
    of = f" of {format_size(each)} that take {format_latency(mean)} to write" if groups else ""
    return Bottleneck(
        "txg-sync",
        f"the end of each transaction group bounds vault {seen.vault}: {format_percent(disk.rounds)} of "
        f"the time {disk.name}"
        f" gets only small serial writes, or none, between groups{of}: {describe_disk_writes(disk)}",
        _longer(seen),
        "each group ends with small writes that wait for each other, whatever its size; with larger groups this"
        " happens less often" + short,
    )


def _longer(seen: Observations) -> SettingChange:
    """The setting for larger groups; it depends on what closes them: the timeout, too little space, or their size."""
    short = seen.waits.get(NO_SPACE, 0)
    # A group is open for as long as the one before it is written, which is not the timeout.
    if short and short >= len(seen.groups):
        return _more_space(seen)
    # One group may have been open for long before the others: they decide.
    opened = median_low([one.opened for one in seen.groups] or [0.0])
    timeout = seen.parameters.get(TXG_TIMEOUT_PARAMETER, 5)
    if opened >= NEAR_MAXIMUM_SHARE * timeout:
        return suggest_module_parameter(seen, TXG_TIMEOUT_PARAMETER, 30 if timeout < 30 else 2 * timeout)
    if short:
        return _more_space(seen)
    now = seen.parameters.get(DIRTY_DATA_PARAMETER)
    most = seen.memory // DIRTY_SHARE if seen.memory else None
    if now is not None and (most is None or 2 * now <= most):
        return suggest_module_parameter(seen, DIRTY_DATA_PARAMETER, 2 * now)
    share = seen.parameters.get(DIRTY_SHARE_PARAMETER, 20)
    return suggest_module_parameter(seen, DIRTY_SHARE_PARAMETER, min(60, 2 * share))


def _more_space(seen: Observations) -> SettingChange:
    return SettingChange("size", f"[[vault.{seen.vault}.device]]", None, "more, or a higher quota")


def _metadata(seen: Observations, disk: DiskRequests) -> Bottleneck:
    return Bottleneck(
        "reads",
        f"reads of metadata bound vault {seen.vault}: {disk.name} spends "
        f"{format_percent(disk.read_share)} of its time on"
        f" them: {describe_disk_reads(disk)}",
        SettingChange(
            "cache or a special device", f"[[vault.{seen.vault}.device]]", None, 'vdev = "special"'
        ),
        "zfs receive then reads that metadata from a fast device",
    )


def _small(seen: Observations, disk: DiskRequests) -> float | None:
    """The size of a request in bytes if it is small and slow enough for this to matter, else None."""
    size, latency = seen.request or disk.size, disk.latency
    if (
        size is None
        or latency is None
        or latency < SIZE_MATTERS_LATENCY
        or size > SMALL_REQUEST_SHARE * EFFICIENT_REQUEST
    ):
        return None
    return size


def _cut(seen: Observations, disk: DiskRequests) -> Bottleneck | None:
    """Whether a setting keeps requests small."""
    size = _small(seen, disk)
    if size is None:
        return None
    limit = AGGREGATION_LIMITS[seen.rotational]
    merge, largest = seen.parameters.get(limit), seen.largest
    if merge is not None and merge < EFFICIENT_REQUEST and merge <= 2 * size:
        better = max(
            seen.wanted.get(limit, 0),
            (4 if (disk.latency or 0) >= SLOW_STORAGE_LATENCY else 1) * EFFICIENT_REQUEST,
        )
        why = f"OpenZFS merges at most {format_size(merge)} into one request"
        return _too_small(seen, disk, suggest_module_parameter(seen, limit, better), why)
    if largest is not None and largest < EFFICIENT_REQUEST and largest <= 2 * size:
        where, kib = f"[queue] of profile {seen.profile}", 32 << 10
        knob = SettingChange("max_sectors_kb", where, str(largest >> 10), str(kib))
        return _too_small(seen, disk, knob, f"the kernel cuts them at {format_size(largest)}")
    if seen.parameters.get(THROTTLE_PARAMETER) == 1:
        why = "the allocation throttle keeps writes out of the queue in which they could be merged"
        return _too_small(seen, disk, suggest_module_parameter(seen, THROTTLE_PARAMETER, 0), why)
    return None


def _unmerged(seen: Observations, disk: DiskRequests) -> Bottleneck | None:
    """Whether requests are small although settings allow larger ones."""
    if _small(seen, disk) is None:
        return None
    queue = seen.queue
    if queue is not None and queue.active > FEW_WRITES and queue.pending < queue.active:
        knob = suggest_module_parameter(seen, MAX_ACTIVE, max(2, round(queue.active / 4)))
        return _too_small(
            seen, disk, knob, "all go to the device at once, and OpenZFS merges only those that wait"
        )
    knob = SettingChange("recordsize", "the source's datasets", None, "1M")
    why = "the blocks are small and cannot be merged: 'zvaultctl fit' shows the records"
    return _too_small(seen, disk, knob, why)


def _too_small(seen: Observations, disk: DiskRequests, knob: SettingChange, why: str) -> Bottleneck:
    text = f"the size of its requests bounds vault {seen.vault}: {describe_disk_writes(disk)}; {why}"
    return Bottleneck(
        "request-size", text, knob, "each request costs the storage's latency, whatever its size"
    )


def _depth(seen: Observations, disk: DiskRequests) -> Bottleneck | None:
    """Whether a deeper queue would help: writes wait, and the few in flight are all that the settings allow."""
    queue, latency = seen.queue, disk.latency
    least, most = seen.parameters.get(MIN_ACTIVE), seen.parameters.get(MAX_ACTIVE)
    if queue is None or latency is None or latency < SIZE_MATTERS_LATENCY or queue.pending < queue.active:
        return None
    if queue.active < NEAR_MAXIMUM_SHARE * min(least or 1, most or 1):
        return None
    wanted = max(seen.wanted.get(MAX_ACTIVE, 0), seen.wanted.get(MIN_ACTIVE, 0))
    if queue.active > FEW_WRITES and queue.active >= NEAR_MAXIMUM_SHARE * wanted:
        return None
    by_minimum = least is not None and queue.active < NEAR_MAXIMUM_SHARE * (most or 0)
    name, now = (MIN_ACTIVE, least) if by_minimum else (MAX_ACTIVE, most)
    may = now if now is not None else round(queue.active)
    return Bottleneck(
        "queue-depth",
        f"the depth of its queue bounds vault {seen.vault}: {describe_disk_writes(disk)}; "
        f"{queue.pending:.0f} more writes wait, and"
        f" only {may} may be in flight",
        suggest_module_parameter(seen, name, max(4, wanted, round(2 * queue.active))),
        "storage behind a network handles several requests at a time; set minimum and maximum alike, and stop when"
        " it no longer gets faster",
    )


def _device(seen: Observations, disk: DiskRequests) -> Bottleneck:
    kind = "object store" if seen.store else "device"
    waiting = f", {seen.queue.pending:.0f} more wait" if seen.queue is not None else ""
    best = f" (measured: {format_rate(seen.measured)})" if seen.measured is not None else ""
    knob = (
        None
        if seen.profile == "auto"
        else SettingChange("profile", f"[vault.{seen.vault}]", seen.profile, '"auto"')
    )
    return Bottleneck(
        "object-store" if seen.store else "device",
        f"the {kind} bounds vault {seen.vault}: {disk.name} delivers no more than "
        f"{describe_disk_writes(disk)}{best}{waiting}, and is"
        f" busy {format_percent(disk.busy)} of the time",
        knob,
        "requests are large, and enough are in flight; only a better combination of size and depth could still help",
    )
