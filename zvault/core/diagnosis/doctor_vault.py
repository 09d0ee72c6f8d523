"""What bounds a vault that takes no more: its processors, its transaction groups, or its device, and then which of
size, depth and the device itself. Pure; see core/doctor.py.
"""

from __future__ import annotations

from zvault.core.diagnosis.doctor_text import Bottleneck, Knob, law, module, percent, reads, seconds
from zvault.core.diagnosis.observations import Disk, Observations, StreamFlow
from zvault.core.tuning.tuning import AGGREGATION, DIRTY, DIRTY_SHARE
from zvault.core.units import format_rate, format_size

CPU_BOUND = 0.8
"""Of one processor: what a thread takes that has hardly a pause."""

IDLE = 0.08
"""Of all processors: less is none to spare."""

AT_WORK = 0.5
"""Of the time: a device with requests less often than this is not what is waited for."""

ROUNDS = 0.4
"""Of the time: when as much goes into the small writes at the end of transaction groups, these are too small."""

WORTH = 1 << 20
"""Bytes: requests of this size cost any network storage little more than their bytes."""

SLOW = 0.001
"""Seconds a request takes from which on its size counts. Disks of this host answer faster, or seek."""

SMALL = 0.75
"""Of WORTH: a request of less is small."""

LONG = 0.01
"""Seconds a request takes from which on it should be as large as storage takes it."""

NEARLY = 0.8
"""Of what may be under way at once."""

FEW = 2.5
"""Writes in flight: so few that storage behind a network can do more, whatever the profile says."""

NEAR = 0.75
"""Of what a device was measured to take: with transaction groups and metadata there is not much more to have."""

PACKERS = "z_wr_iss"
"""OpenZFS's threads that compress and checksum what is written: their name."""

PACKING = 0.25
"""Of one processor: what the busiest of these takes where they are what takes the time (0.3 to 0.8 in the lab)."""

MIN_ACTIVE, MAX_ACTIVE = "zfs_vdev_async_write_min_active", "zfs_vdev_async_write_max_active"
THROTTLE = "zio_dva_throttle_enabled"
TIMEOUT = "zfs_txg_timeout"
SHARE = "zfs_dirty_data_sync_percent"

NO_SPACE = "dmu_tx_quota"
"""Counts writers for whom there was not enough space left, were their data to grow 24-fold (spa_asize_inflation): then
the group is ended, whatever its size (dsl_dir_tempreserve_impl, OpenZFS #1914, #10373).
"""


def at_the_vault(seen: Observations, flow: StreamFlow | None) -> Bottleneck:
    """What bounds a vault of which it is known that it takes no more."""
    disk = max(seen.disks, key=lambda one: one.write_time + one.read_time, default=None)
    return _receiver(seen, flow) or (_out_of_sight(seen, flow) if disk is None else _below(seen, disk))


def _below(seen: Observations, disk: Disk) -> Bottleneck:
    """What bounds a vault whose processors have time: transaction groups, or the device and what it is given."""
    if seen.measured is not None and disk.rate >= NEAR * seen.measured:
        return _device(seen, disk)
    if disk.busy < AT_WORK:
        return _sync(seen, disk)
    if disk.read_share >= AT_WORK:
        return _metadata(seen, disk)
    found = _cut(seen, disk) or _depth(seen, disk)
    if found is None and disk.rounds >= ROUNDS:
        return _sync(seen, disk)
    return found or _unmerged(seen, disk) or _device(seen, disk)


def _out_of_sight(seen: Observations, flow: StreamFlow | None) -> Bottleneck:
    return Bottleneck(
        "device",
        f"the vault bounds what it receives: {format_rate(flow.rate if flow else 0)} go into vault {seen.vault}",
        None,
        "its devices cannot be looked at from here",
    )


def _receiver(seen: Observations, flow: StreamFlow | None) -> Bottleneck | None:
    """The processors: the one thread that writes, or all of them."""
    own = flow.stages[-1].cpu if flow is not None else None
    now = seen.transfers
    thread = max(own or 0.0, seen.threads.get("receive_writer", 0.0))
    rate = format_rate(flow.rate) if flow is not None else "what comes"
    if flow is not None and thread >= CPU_BOUND:
        return Bottleneck(
            "receive",
            f"one thread of zfs receive bounds vault {seen.vault}: it takes {percent(thread)} of one processor for"
            f" {rate}",
            Knob("transfers", f"[vault.{seen.vault}]", str(now) if now else None, str((now or 1) + 1)),
            "a dataset is received by one thread; only several datasets at once use more",
        )
    # A device may look busy where its own server gets no processor.
    return out_of_processors(seen, rate, besides=not any(one.busy >= AT_WORK for one in seen.disks))


def out_of_processors(seen: Observations, rate: str, *, besides: bool = False) -> Bottleneck | None:
    """Whether no time is left on any processor, and OpenZFS is what takes it; ``besides``: or anything else."""
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
        Knob("send", "[backup.…]", None, "{ compressed = true }"),
        "what is sent compressed is not compressed again",
    )


def _sync(seen: Observations, disk: Disk) -> Bottleneck:
    groups = seen.groups
    each = sum(one.written for one in groups) // len(groups) if groups else 0
    mean = sum(one.sync for one in groups) / len(groups) if groups else None
    short = (
        "; space is short for them: OpenZFS reserves 24 times their bytes" if seen.waits.get(NO_SPACE) else ""
    )
    of = f" of {format_size(each)} that take {seconds(mean)} to write" if groups else ""
    return Bottleneck(
        "txg-sync",
        f"the end of each transaction group bounds vault {seen.vault}: {percent(disk.rounds)} of the time {disk.name}"
        f" gets small writes one after another, or none, between groups{of}: {law(disk)}",
        _longer(seen),
        "each group ends with rounds that wait for the device, whatever its size: larger groups are fewer"
        + short,
    )


def _longer(seen: Observations) -> Knob:
    """What makes groups larger, by what ends them: the clock, space that is short, or their size."""
    opened = max((one.opened for one in seen.groups), default=0.0)
    timeout = seen.parameters.get(TIMEOUT, 5)
    if opened >= NEARLY * timeout:
        return module(seen, TIMEOUT, 30 if timeout < 30 else 2 * timeout)
    if seen.waits.get(NO_SPACE):
        return Knob("size", f"[[vault.{seen.vault}.device]]", None, "more, or a higher quota")
    now = seen.parameters.get(DIRTY)
    most = seen.memory // DIRTY_SHARE if seen.memory else None
    if now is not None and (most is None or 2 * now <= most):
        return module(seen, DIRTY, 2 * now)
    share = seen.parameters.get(SHARE, 20)
    return module(seen, SHARE, min(60, 2 * share))


def _metadata(seen: Observations, disk: Disk) -> Bottleneck:
    return Bottleneck(
        "reads",
        f"reads of metadata bound vault {seen.vault}: {percent(disk.read_share)} of the time of {disk.name} goes to"
        f" them: {reads(disk)}",
        Knob("cache or a special device", f"[[vault.{seen.vault}.device]]", None, 'vdev = "special"'),
        "what zfs receive has to read first is then on a device that answers at once",
    )


def _small(seen: Observations, disk: Disk) -> float | None:
    """The size of a request, where it is small and each takes so long that this counts."""
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
        why = f"no more than {format_size(merge)} is merged into one"
        return _too_small(seen, disk, module(seen, limit, better), why)
    if largest is not None and largest < WORTH and largest <= 2 * size:
        where, kib = f"[queue] of profile {seen.profile}", 32 << 10
        knob = Knob("max_sectors_kb", where, str(largest >> 10), str(kib))
        return _too_small(seen, disk, knob, f"the kernel cuts them at {format_size(largest)}")
    if seen.parameters.get(THROTTLE) == 1:
        why = "the throttle keeps from the queue what could be merged there"
        return _too_small(seen, disk, module(seen, THROTTLE, 0), why)
    return None


def _unmerged(seen: Observations, disk: Disk) -> Bottleneck | None:
    """Whether requests are small though they could be larger."""
    if _small(seen, disk) is None:
        return None
    queue = seen.queue
    if queue is not None and queue.active > FEW and queue.pending < queue.active:
        knob = module(seen, MAX_ACTIVE, max(2, round(queue.active / 4)))
        return _too_small(seen, disk, knob, "all go to the device at once, and only what waits is merged")
    knob = Knob("recordsize", "the source's datasets", None, "1M")
    why = "what comes is small and cannot be merged: 'zvaultctl fit' tells of the records"
    return _too_small(seen, disk, knob, why)


def _too_small(seen: Observations, disk: Disk, knob: Knob, why: str) -> Bottleneck:
    text = f"the size of its requests bounds vault {seen.vault}: {law(disk)}; {why}"
    return Bottleneck(
        "request-size", text, knob, "a request costs the storage its latency, whatever it carries"
    )


def _depth(seen: Observations, disk: Disk) -> Bottleneck | None:
    """Whether the device could be given more at once: writes wait, and as many are out as may be, but few."""
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
        f"the depth of its queue bounds vault {seen.vault}: {law(disk)}, while {queue.pending:.0f} more wait and only"
        f" {may} may go at once",
        module(seen, name, max(4, wanted, round(2 * queue.active))),
        "storage behind a network does several at a time; set minimum and maximum alike, and stop when it no longer"
        " gains",
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
        f"the {kind} bounds vault {seen.vault}: {disk.name} gives no more than {law(disk)}{best}{waiting}, and is busy"
        f" {percent(disk.busy)} of the time",
        knob,
        "requests are large and enough are under way: what is left to find is the pair of both that suits it best",
    )
