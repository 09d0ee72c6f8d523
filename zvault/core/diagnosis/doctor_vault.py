"""Finds the bottleneck of a saturated vault: processors, transaction groups, or the device. For a device it says
whether request size, queue depth or the device itself is the limit. Pure; see doctor.py.
"""

from __future__ import annotations

from statistics import median_low

from zvault.core.diagnosis.doctor_text import (
    Bottleneck,
    Knob,
    law,
    module,
    percent,
    reads,
    seconds,
    send_knob,
)
from zvault.core.diagnosis.observations import Disk, Observations, StreamFlow
from zvault.core.tuning.tuning import AGGREGATION, DIRTY, DIRTY_SHARE
from zvault.core.units import format_rate, format_size

CPU_BOUND = 0.8
"""Share of one processor: a thread at this load hardly pauses."""

IDLE = 0.08
"""Share of all processors: with less idle time than this, the host has none to spare."""

AT_WORK = 0.5
"""Share of the time: a device busy for less than this is not the bottleneck."""

ROUNDS = 0.4
"""Share of the time: transaction groups are too small if the small writes at their end take this much."""

ALWAYS = 1.0
"""Reads in flight, on average: from this on there is nearly always one. If only small writes go to the device at the
same time, those wait for what is read, as they do at the end of a transaction group: larger groups would not help.
"""

WORTH = 1 << 20
"""Bytes: for requests this large, the fixed cost of a request hardly counts on any network storage."""

SLOW = 0.001
"""Seconds a request takes: from this latency on its size matters. Local disks are faster, or spend it on seeks."""

SMALL = 0.75
"""Share of WORTH: a smaller request is small."""

LONG = 0.01
"""Seconds a request takes: from this latency on it should be as large as the storage accepts."""

NEARLY = 0.8
"""Share of the configured maximum that counts as having reached it."""

FEW = 2.5
"""Writes in flight: storage behind a network can handle more than this, whatever the profile says."""

NEAR = 0.75
"""Share of a device's measured bandwidth. Transaction groups and metadata take most of the rest."""

PACKERS = "z_wr_iss"
"""Name of the OpenZFS threads that compress and checksum writes."""

PACKING = 0.25
"""Share of one processor: the busiest of these threads takes more where they are the limit (0.3 to 0.8 in the lab)."""

MIN_ACTIVE, MAX_ACTIVE = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
THROTTLE = "zio_dva_throttle_enabled"
TIMEOUT = "zfs_txg_timeout"
SHARE = "zfs_dirty_data_sync_percent"

NO_SPACE = "dmu_tx_quota"
"""Counter of writers that found too little free space. OpenZFS reserves 24 times the size of a write
(spa_asize_inflation); if that much is not free, it closes the transaction group, whatever the group's size
(dsl_dir_tempreserve_impl, OpenZFS #1914, #10373).
"""


def at_the_vault(seen: Observations, flow: StreamFlow | None) -> Bottleneck:
    """The bottleneck of a vault that is known to be saturated."""
    disk = max(seen.disks, key=lambda one: one.write_time + one.read_time, default=None)
    return _receiver(seen, flow) or (_out_of_sight(seen, flow) if disk is None else _below(seen, disk))


def _below(seen: Observations, disk: Disk) -> Bottleneck:
    """The bottleneck of a vault whose processors have time to spare: transaction groups, or the device's requests."""
    if seen.measured is not None and disk.rate >= NEAR * seen.measured:
        return _device(seen, disk)
    if disk.busy < AT_WORK:
        return _sync(seen, disk)
    if disk.read_share >= AT_WORK or (disk.rounds >= ROUNDS and disk.reads_in_flight >= ALWAYS):
        return _metadata(seen, disk)
    found = _cut(seen, disk) or _depth(seen, disk)
    if found is None and disk.rounds >= ROUNDS:
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
            f"one thread of zfs receive bounds vault {seen.vault}: it takes {percent(thread)} of one processor at"
            f" {rate}",
            Knob("transfers", f"[vault.{seen.vault}]", str(now) if now else None, str((now or 1) + 1)),
            "one thread receives a dataset; only several datasets at once use more processors",
        )
    # A device can look busy because its server process gets no processor time.
    return out_of_processors(seen, flow, rate, besides=not any(one.busy >= AT_WORK for one in seen.disks))


def out_of_processors(
    seen: Observations, flow: StreamFlow | None, rate: str, *, besides: bool = False
) -> Bottleneck | None:
    """Return a bottleneck if all processors are busy and OpenZFS is the cause; with ``besides`` whatever the cause
    is.
    """
    packing = seen.threads.get(PACKERS, 0.0)
    if seen.idle is None or seen.idle >= IDLE or (packing < PACKING and not besides):
        return None
    by = (
        f", and a thread that compresses and checksums blocks takes {percent(packing)} of one"
        if packing >= PACKING
        else ""
    )
    return Bottleneck(
        "processor",
        f"the processors of this host bound vault {seen.vault}: {percent(seen.idle)} of their time is left at {rate}"
        + by,
        (knob := send_knob(flow)),
        "what is sent compressed is not compressed again"
        if knob is not None
        else "see with 'top' what else runs here; 'schedule' moves the backup to a quieter hour",
    )


def _sync(seen: Observations, disk: Disk) -> Bottleneck:
    groups = seen.groups
    each = sum(one.written for one in groups) // len(groups) if groups else 0
    mean = sum(one.sync for one in groups) / len(groups) if groups else None
    short = (
        "; free space is short: OpenZFS reserves 24 times the bytes of each write"
        if seen.waits.get(NO_SPACE)
        else ""
    )
    of = f" of {format_size(each)} that take {seconds(mean)} to write" if groups else ""
    return Bottleneck(
        "txg-sync",
        f"the end of each transaction group bounds vault {seen.vault}: {percent(disk.rounds)} of the time {disk.name}"
        f" gets only small serial writes, or none, between groups{of}: {law(disk)}",
        _longer(seen),
        "each group ends with small writes that wait for each other, whatever its size; with larger groups this"
        " happens less often" + short,
    )


def _longer(seen: Observations) -> Knob:
    """The setting for larger groups; it depends on what closes them: the timeout, too little space, or their size."""
    short = seen.waits.get(NO_SPACE, 0)
    # A group is open for as long as the one before it is written, which is not the timeout.
    if short and short >= len(seen.groups):
        return _more_space(seen)
    # One group may have been open for long before the others: they decide.
    opened = median_low([one.opened for one in seen.groups] or [0.0])
    timeout = seen.parameters.get(TIMEOUT, 5)
    if opened >= NEARLY * timeout:
        return module(seen, TIMEOUT, 30 if timeout < 30 else 2 * timeout)
    if short:
        return _more_space(seen)
    now = seen.parameters.get(DIRTY)
    most = seen.memory // DIRTY_SHARE if seen.memory else None
    if now is not None and (most is None or 2 * now <= most):
        return module(seen, DIRTY, 2 * now)
    share = seen.parameters.get(SHARE, 20)
    return module(seen, SHARE, min(60, 2 * share))


def _more_space(seen: Observations) -> Knob:
    return Knob("size", f"[[vault.{seen.vault}.device]]", None, "more, or a higher quota")


def _metadata(seen: Observations, disk: Disk) -> Bottleneck:
    return Bottleneck(
        "reads",
        f"reads of metadata bound vault {seen.vault}: {disk.name} spends {percent(disk.read_share)} of its time on"
        f" them: {reads(disk)}",
        Knob("cache or a special device", f"[[vault.{seen.vault}.device]]", None, 'vdev = "special"'),
        "zfs receive then reads that metadata from a fast device",
    )


def _small(seen: Observations, disk: Disk) -> float | None:
    """The size of a request in bytes if it is small and slow enough for this to matter, else None."""
    size, latency = seen.request or disk.size, disk.latency
    if size is None or latency is None or latency < SLOW or size > SMALL * WORTH:
        return None
    return size


def _cut(seen: Observations, disk: Disk) -> Bottleneck | None:
    """Whether a setting keeps requests small."""
    size = _small(seen, disk)
    if size is None:
        return None
    limit = AGGREGATION[seen.rotational]
    merge, largest = seen.parameters.get(limit), seen.largest
    if merge is not None and merge < WORTH and merge <= 2 * size:
        better = max(seen.wanted.get(limit, 0), (4 if (disk.latency or 0) >= LONG else 1) * WORTH)
        why = f"OpenZFS merges at most {format_size(merge)} into one request"
        return _too_small(seen, disk, module(seen, limit, better), why)
    if largest is not None and largest < WORTH and largest <= 2 * size:
        where, kib = f"[queue] of profile {seen.profile}", 32 << 10
        knob = Knob("max_sectors_kb", where, str(largest >> 10), str(kib))
        return _too_small(seen, disk, knob, f"the kernel cuts them at {format_size(largest)}")
    if seen.parameters.get(THROTTLE) == 1:
        why = "the allocation throttle keeps writes out of the queue in which they could be merged"
        return _too_small(seen, disk, module(seen, THROTTLE, 0), why)
    return None


def _unmerged(seen: Observations, disk: Disk) -> Bottleneck | None:
    """Whether requests are small although settings allow larger ones."""
    if _small(seen, disk) is None:
        return None
    queue = seen.queue
    if queue is not None and queue.active > FEW and queue.pending < queue.active:
        knob = module(seen, MAX_ACTIVE, max(2, round(queue.active / 4)))
        return _too_small(
            seen, disk, knob, "all go to the device at once, and OpenZFS merges only those that wait"
        )
    knob = Knob("recordsize", "the source's datasets", None, "1M")
    why = "the blocks are small and cannot be merged: 'zvaultctl fit' shows the records"
    return _too_small(seen, disk, knob, why)


def _too_small(seen: Observations, disk: Disk, knob: Knob, why: str) -> Bottleneck:
    text = f"the size of its requests bounds vault {seen.vault}: {law(disk)}; {why}"
    return Bottleneck(
        "request-size", text, knob, "each request costs the storage's latency, whatever its size"
    )


def _depth(seen: Observations, disk: Disk) -> Bottleneck | None:
    """Whether a deeper queue would help: writes wait, and the few in flight are all that the settings allow."""
    queue, latency = seen.queue, disk.latency
    least, most = seen.parameters.get(MIN_ACTIVE), seen.parameters.get(MAX_ACTIVE)
    if queue is None or latency is None or latency < SLOW or queue.pending < queue.active:
        return None
    if queue.active < NEARLY * min(least or 1, most or 1):
        return None
    wanted = max(seen.wanted.get(MAX_ACTIVE, 0), seen.wanted.get(MIN_ACTIVE, 0))
    if queue.active > FEW and queue.active >= NEARLY * wanted:
        return None
    by_minimum = least is not None and queue.active < NEARLY * (most or 0)
    name, now = (MIN_ACTIVE, least) if by_minimum else (MAX_ACTIVE, most)
    may = now if now is not None else round(queue.active)
    return Bottleneck(
        "queue-depth",
        f"the depth of its queue bounds vault {seen.vault}: {law(disk)}; {queue.pending:.0f} more writes wait, and"
        f" only {may} may be in flight",
        module(seen, name, max(4, wanted, round(2 * queue.active))),
        "storage behind a network handles several requests at a time; set minimum and maximum alike, and stop when"
        " it no longer gets faster",
    )


def _device(seen: Observations, disk: Disk) -> Bottleneck:
    kind = "object store" if seen.store else "device"
    waiting = f", {seen.queue.pending:.0f} more wait" if seen.queue is not None else ""
    best = f" (measured: {format_rate(seen.measured)})" if seen.measured is not None else ""
    knob = (
        None if seen.profile == "auto" else Knob("profile", f"[vault.{seen.vault}]", seen.profile, '"auto"')
    )
    return Bottleneck(
        "object-store" if seen.store else "device",
        f"the {kind} bounds vault {seen.vault}: {disk.name} delivers no more than {law(disk)}{best}{waiting}, and is"
        f" busy {percent(disk.busy)} of the time",
        knob,
        "requests are large, and enough are in flight; only a better combination of size and depth could still help",
    )
