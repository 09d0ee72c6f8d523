"""``profile = "auto"``: measure a vault's device, work its settings out, try them, and keep what won.

A new vault's device is measured with writes and with reads of what they left, before its pool is made on it. One that
holds a pool is only read from; what a receive makes of it is then found by trying. Settings for writing are tried with
receives, those for reading with sends and, in a pool with little in it, with scrubs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zvault.config.load_config import load_profiles
from zvault.config.schema import Vault
from zvault.core.errors import Busy, DeadlineExceeded, NotFound, Refused, ToolFailed, ToolMissing, ZvaultError
from zvault.core.tuning.candidates import (
    TuningCandidate,
    advise_on_recordsize,
    list_candidates,
    select_winner,
)
from zvault.core.tuning.measurement import (
    LARGEST_MERGED,
    IoDirection,
    MeasuredPoint,
    MeasuredPoints,
    choose_next_point,
    find_knee,
    index_points,
    is_doubtful,
)
from zvault.core.tuning.reading import (
    calculate_reading,
    combine_reading,
    list_reading_candidates,
    list_scrub_candidates,
)
from zvault.core.units import format_rate, format_size
from zvault.devices import fio, request_queue
from zvault.devices.stack import DeviceStack, SayProgress
from zvault.ops.context import Context
from zvault.ops.provision.read_trial import ReadTrial
from zvault.ops.provision.receive_trial import ReceiveTrial, choose_stream_size
from zvault.ops.tuning.measurements import (
    AUTO,
    MeasurementOutcome,
    ReadingOutcome,
    list_device_specs,
    make_trial_row,
    read_outcome,
    store_outcome,
)
from zvault.ops.tuning.set_parameters import list_tuning_requests, set_vault_parameters
from zvault.ops.tuning.store_guesses import find_store_guess
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.new_pool import refuse_unless_blank
from zvault.system.process.runner import ProcessRunner
from zvault.system.record_store import RecordStore
from zvault.system.tasks import finish_work
from zvault.zfs.pool import module_parameters
from zvault.zfs.pool.pool import PoolState


@dataclass(frozen=True, slots=True)
class DeviceMeasurement:
    """A device's points, how they were measured, and the most bytes that it takes in a request; and those of its reads,
    empty where they were not measured.
    """

    way: IoDirection
    points: MeasuredPoints
    largest: int
    reads: MeasuredPoints


async def measure_new(assembly: VaultAssembly, say: SayProgress) -> DeviceMeasurement | None:
    """Measure the device of a vault whose pool is to be made, with writes; its devices stay up.

    None, and said why, where it cannot be measured. Raises Refused for a device that holds anything, and what a device
    does not come up with; then the devices are down again.
    """
    stack = await assembly.patient_stack(say)
    try:
        devices = await stack.up(say)
        await refuse_unless_blank(stack, devices, assembly.pool)
        device = devices[_data(assembly)]
        try:
            return await _measured(assembly.context.env.runner, device.path, device.size, "write", say)
        except (ToolMissing, ToolFailed, DeadlineExceeded) as error:
            say(f"going on without a measurement: {error}")
            return None
    except BaseException:
        await finish_work(_release(stack, say))
        raise


async def _release(stack: DeviceStack, say: SayProgress) -> None:
    try:
        await stack.down(say)
    except ZvaultError as error:
        say(f"the devices could not be taken down: {error}")


def _data(assembly: VaultAssembly) -> int:
    """The first device that takes data; a pool is striped over devices that are alike."""
    kinds = [device.vdev for device in assembly.config.device]
    return kinds.index("data") if "data" in kinds else 0


def refuse_unless_auto(vault: Vault) -> None:
    """Raises Refused for a vault whose measurement nobody would use."""
    if vault.host is not None:
        raise Refused(f"vault '{vault.name}' is on {vault.host}", "zvault tunes its own host only")
    if vault.profile != AUTO:
        raise Refused(
            f"vault '{vault.name}' is not measured",
            f"its profile is '{vault.profile}', and what is measured is used with '{AUTO}' only",
            f'set profile = "{AUTO}" in [vault.{vault.name}]',
        )


async def measure_vault(
    context: Context, vault: Vault, users: Sequence[str], say: SayProgress
) -> MeasurementOutcome:
    """Measure a vault that is up, in use by ``users``, and keep what won.

    Raises Busy while a run uses it, and whatever fio, zfs or the device fails with; then what was known stays.
    """
    if len(users) > 1:
        raise Busy(f"vault '{vault.name}' is in use", f"by {', '.join(users)}", "wait for it to end")
    paths = await context.clients.zpool.devices(vault.pool)
    size = next((size for path in paths if (size := request_queue.read_capacity(path))), 0)
    if not paths or not size:
        raise NotFound(f"the pool '{vault.pool}' is on no block device that can be measured")
    say(f"reading from {paths[0]}: it holds a pool, and is not written to")
    found = await _measured(context.env.runner, paths[0], size, "read", say)
    return await settle_on_parameters(context, vault, found, say)


async def _measured(
    runner: ProcessRunner, path: str, size: int, way: IoDirection, say: SayProgress
) -> DeviceMeasurement:
    limit = request_queue.read_queue_setting(path.removeprefix("/dev/"), "max_sectors_kb")
    largest = LARGEST_MERGED if limit is None else min(LARGEST_MERGED, _power(int(limit) << 10))
    points = await _points(runner, path, size, way, largest, fio.REGION, say)
    if way == "read":
        return DeviceMeasurement(way, points, largest, points)
    written = fio.count_written_bytes(points.values())
    try:
        reads = await _points(runner, path, size, "read", largest, written, say)
    except (ToolFailed, DeadlineExceeded) as error:
        say(f"going on without a measurement of reads: {error}")
        reads = {}
    return DeviceMeasurement(way, points, largest, reads)


async def _points(
    runner: ProcessRunner,
    path: str,
    size: int,
    way: IoDirection,
    largest: int,
    region: int,
    say: SayProgress,
) -> MeasuredPoints:
    points: list[MeasuredPoint] = []
    while (place := choose_next_point(index_points(points), largest)) is not None:
        say(f"measuring {path}: {way}s of {format_size(place[0])}, {place[1]} at once")
        point = await fio.measure_point(path, size, way, place, runner, region=region)
        say(describe_point(point))
        if is_doubtful({**index_points(points), place: point}, place):
            again = await fio.measure_point(path, size, way, place, runner, region=region)
            say(f"{describe_point(again)}; measured again, because fewer or smaller ones had more")
            point = max(point, again, key=lambda one: one.bandwidth)
        points.append(point)
    return index_points(points)


def _power(number: int) -> int:
    """The largest power of two that is not above it."""
    return 1 << (number.bit_length() - 1)


def describe_point(one: MeasuredPoint) -> str:
    """A point in words."""
    return (
        f"{format_size(one.size)}, {one.depth} at once: {format_rate(one.bandwidth)},"
        f" {one.latency * 1000:.1f} ms each"
    )


async def settle_on_parameters(
    context: Context, vault: Vault, found: DeviceMeasurement, say: SayProgress
) -> MeasurementOutcome:
    """Work out settings for a vault that is up, try them out where that can be done, keep what won and set it."""
    state = await context.clients.zpool.state(vault.pool)
    if state is None:
        raise NotFound(f"the pool of vault '{vault.name}' is not imported")
    host = await module_parameters.read_tuned_host(context.env.runner)
    best = find_knee(found.points, found.largest)
    profiles = {name: one.module for name, one in load_profiles(context.env.paths).items() if name != AUTO}
    offered = list_candidates(best, host, found.largest, profiles)
    settled = MeasurementOutcome(
        list_device_specs(vault),
        state.guid,
        found.way,
        tuple(found.points.values()),
        offered[0].choices,
        advise_on_recordsize(best),
        reading=_calculated(found, offered[0]),
    )
    store_outcome(context.records, vault, settled)
    try:
        size = _size(context.records.undo, vault, best.bandwidth, state, say)
        if size is not None:
            trial = ReceiveTrial(context, vault, size, say)
            async with trial.hold_scratch():
                tries = await trial.run(offered)
                won = select_winner(tries)
                rows = tuple(make_trial_row(one, one is won) for one in tries)
                reading = _calculated(found, won.candidate)
                settled = replace(settled, choices=won.candidate.choices, tries=rows, reading=reading)
                store_outcome(context.records, vault, settled)
                say(f"{won.candidate.what} won")
                if found.reads:
                    settled = replace(settled, reading=await _read(trial, found, won.candidate))
                    store_outcome(context.records, vault, settled)
    finally:
        await finish_work(set_vault_parameters(context, vault, (), say))
    return read_outcome(context.records, vault, state.guid) or settled


def _calculated(found: DeviceMeasurement, writes: TuningCandidate) -> ReadingOutcome | None:
    """The parameters for reading beside those for writing, as long as nothing was tried."""
    if not found.reads:
        return None
    knee = find_knee(found.reads, found.largest)
    return ReadingOutcome(tuple(found.reads.values()), calculate_reading(knee, writes.module))


async def _read(
    trial: ReceiveTrial, found: DeviceMeasurement, writes: TuningCandidate
) -> ReadingOutcome | None:
    """Try parameters for reading out; what was calculated, and why, where that cannot be done."""
    guess = find_store_guess(trial.context.env.paths, trial.vault)
    candidates = list_reading_candidates(find_knee(found.reads, found.largest), writes.module, guess)
    outcome = _calculated(found, writes)
    if outcome is None:
        return None
    reads = ReadTrial(trial, writes)
    try:
        sends = await reads.send(candidates)
        sent = select_winner(sends)
        outcome = replace(
            outcome,
            choices=sent.candidate.choices,
            sends=tuple(make_trial_row(one, one is sent) for one in sends),
        )
        trial.say(f"{sent.candidate.what} won for reading")
        scrubs = await reads.scrub(list_scrub_candidates(sent.candidate, candidates))
        if scrubs:
            scrubbed = select_winner(scrubs)
            outcome = replace(
                outcome,
                choices=combine_reading(sent.candidate, scrubbed.candidate),
                scrubs=tuple(make_trial_row(one, one is scrubbed) for one in scrubs),
            )
    except (ToolFailed, DeadlineExceeded) as error:
        trial.say(f"reads were not tried out to the end: {error}")
    return outcome


def _size(
    leases: RecordStore, vault: Vault, bandwidth: float, state: PoolState, say: SayProgress
) -> int | None:
    """How large a stream to try settings out with; None, and why, where they are not."""
    if others := [request.vault for request in list_tuning_requests(leases) if request.vault != vault.name]:
        say(f"not trying settings out: parameters hold for all pools, and {', '.join(others)} is tuned too")
        return None
    size = choose_stream_size(bandwidth, state.free)
    if size is None:
        say(f"not trying settings out: the pool has only {format_size(state.free)} free")
    return size
