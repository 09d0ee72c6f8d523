"""How well a backup fits its vault, as a document: ``GET /v1/fit/BACKUP``, ``zvaultctl fit``. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zvault.api.diagnosis import (
    AdviceDocument,
    AskedByRun,
    AskedDocument,
    FitDataset,
    FitDocument,
    FitReading,
)
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.load_config import load_profile
from zvault.config.profile import VaultProfile
from zvault.config.schema import Backup, Device, Vault
from zvault.core.cost.prices import StorePrices
from zvault.core.diagnosis.txg_overhead import (
    FIRST,
    LATER,
    RequestTotals,
    advise_on_groups,
    estimate_group_requests,
)
from zvault.core.errors import ZvaultError
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.policy.object_lock import count_renewals
from zvault.core.replication.unlisted_datasets import list_unlisted_lines
from zvault.core.tuning.alignment import (
    DatasetFit,
    PoolLayout,
    SentDataset,
    StorageGeometry,
    TuningAdvice,
    advise_on_datasets,
    fit_dataset,
)
from zvault.core.tuning.reading import advise_on_measuring_reads, advise_on_probing, advise_on_reads
from zvault.core.tuning.tuning import AGGREGATION_LIMITS
from zvault.core.units import parse_size
from zvault.devices import request_queue
from zvault.devices.device_state import DeviceState
from zvault.devices.rbd.cluster import read_pool_facts
from zvault.devices.rbd.image_lease import make_cluster
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment
from zvault.ops.state.source_tree import list_chosen_by_property
from zvault.ops.tuning.measurements import AUTO, ReadingOutcome, load_vault_profile, read_outcome
from zvault.ops.tuning.store_guesses import list_unprobed_devices
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import ProcessRunner
from zvault.zfs.client import Zfs
from zvault.zfs.pool import module_parameters
from zvault.zfs.pool.vdev_properties import read_property
from zvault.zfs.record_sizes import BlockSizes, read_block_sizes, read_named_block_sizes
from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.whole_listing import PartialListing

ASHIFT = 12
"""OpenZFS's choice for a device that reports sectors of 4 KiB; every profile of zvault sets it."""

ASHIFTS = frozenset(map(str, range(9, 17)))
"""Those that a vdev may have (zpoolprops(7)), as they are printed: by others a block would have any size."""

MERGED = 128 << 10
"""zfs_vdev_aggregation_limit_non_rotating's default, zfs(4)."""

AT_ONCE, DEPTH = "zfs_vdev_async_write_min_active", 2
"""The parameter for the number of writes in flight while few wait, and its default: zfs(4)."""

SEGMENT = 8 << 20
"""Bytes in one object of zvault's block store (zvault/blockstore/format.py)."""

REQUEST = 1280 << 10
"""Assumed maximum request size in bytes while the device is not up: BLK_DEF_MAX_SECTORS before Linux 6.16."""


@dataclass
class VaultStorage:
    """Facts about a vault's storage: its stores by role, whether they compress or encrypt, and what is unknown."""

    stores: dict[str, StorageGeometry] = field(default_factory=dict)
    compression: bool = False
    encryption: bool = False
    on_zfs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


async def make_fit_document(context: Context, vaults: Vaults, backup: Backup) -> FitDocument:
    """Report how each dataset of a backup fits the vault's storage, with advice.

    Raises NotFound, HostUnreachable. While the vault is down, the figures rest on its configuration and profile. A
    dataset that cannot be opened is among what is ``unknown``.
    """
    vault = context.env.vault(backup.its_vault)
    source = context.clients.source_of(backup)
    found, unlisted = await _read_sizes(source, backup.source.dataset)
    chosen = await list_chosen_by_property(context.clients, backup, list(found), unlisted)
    taken = (one for one in found.values() if backup.takes(one.name))
    sent = [_sent(backup, one) for one in taken if chosen is None or one.name in chosen]
    below = await _below(context.env, vault, await vaults[backup.its_vault].devices())
    taken_unlisted = {name: said for name, said in unlisted.items() if backup.takes(name)}
    below.unknown += [f"the blocks of {line}" for line in list_unlisted_lines(taken_unlisted)]
    layout = await _layout(context, vault, below)
    outcome = read_outcome(context.records, vault)
    measured = outcome.reading if outcome is not None else None
    advice = _advise_on_reading(context, vault, measured) if vault.host is None else []
    return write_fit(backup.name, backup.its_vault, below, layout, sent, advice, measured)


async def _read_sizes(source: Zfs, root: str) -> tuple[dict[str, BlockSizes], Mapping[DatasetName, str]]:
    """The blocks of a source's datasets, and which of those cannot be listed, with ZFS's words."""
    try:
        return await read_block_sizes(source.host, root), {}
    except PartialListing as error:
        tree = await source.tree_around_damage(root, error)
    return await read_named_block_sizes(source.host, list(tree.datasets)), tree.unlisted


def _advise_on_reading(
    context: Context, vault: Vault, measured: ReadingOutcome | None
) -> Sequence[TuningAdvice]:
    devices = [device.spec for device in vault.device]
    if vault.profile == AUTO:
        unprobed = list_unprobed_devices(context.env.paths, vault)
        probing = [advise_on_probing(vault.name, unprobed)] if unprobed else []
        return probing if measured is not None else [*probing, advise_on_measuring_reads(vault.name, devices)]
    return advise_on_reads(vault.profile, devices, load_vault_profile(context, vault).reading)


def write_fit(
    backup: str,
    vault: str,
    below: VaultStorage,
    layout: PoolLayout,
    sent: Sequence[SentDataset],
    of_reads: Sequence[TuningAdvice] = (),
    measured: ReadingOutcome | None = None,
) -> FitDocument:
    """The findings as a document; ``of_reads`` is advice on the way back, ``measured`` what is known of it."""
    advice = [
        *advise_on_datasets(sent, layout),
        *advise_on_groups(layout),
        *map(_stacked, below.on_zfs),
        *of_reads,
    ]
    return {
        "backup": backup,
        "vault": vault,
        "sector": layout.sector,
        "merged": layout.merge,
        "devices": [
            {
                "name": store.name,
                "vdev": role,
                "unit": store.unit,
                "kind": store.kind,
                "largest": store.largest,
                "locks": store.locks,
                "locks_cost": _locks_cost(store),
            }
            for role, store in below.stores.items()
        ],
        "group": _asked(estimate_group_requests(layout)),
        "run": _asked_by_run(layout, LATER),
        "first": _asked_by_run(layout, FIRST),
        "reading": _reading(measured),
        "datasets": [_dataset(one, fit_dataset(one, layout)) for one in sent],
        "advice": [_advice(one) for one in advice],
        "unknown": below.unknown,
    }


def _reading(measured: ReadingOutcome | None) -> FitReading | None:
    if measured is None or not measured.points:
        return None
    sent = next((one["rate"] for one in measured.sends if one["won"]), None)
    return {"send": sent, "device": round(max(one.bandwidth for one in measured.points))}


def _locks_cost(store: StorageGeometry) -> float | None:
    if store.locks is None or store.prices is None:
        return None
    return store.prices.of_requests(store.locks, 0)


def _asked(asked: RequestTotals) -> AskedDocument:
    return {"puts": asked.puts, "gets": asked.gets, "moved": asked.moved, "cost": asked.cost}


def _asked_by_run(layout: PoolLayout, groups: int) -> AskedByRun:
    return {"groups": groups, **_asked(estimate_group_requests(layout).times(groups))}


def _dataset(sent: SentDataset, found: DatasetFit) -> FitDataset:
    return {
        "dataset": found.dataset,
        "record": sent.record,
        "ratio": sent.ratio,
        "store": found.store,
        "block": found.block,
        "request": found.request,
        "touched": found.touched,
        "partly": found.partly,
        "moved": found.moved,
        "puts": found.puts,
        "gets": found.gets,
        "cost": found.cost,
    }


def _advice(one: TuningAdvice) -> AdviceDocument:
    return {"about": list(one.about), "what": one.what, "why": one.why}


def _sent(backup: Backup, one: BlockSizes) -> SentDataset:
    flags = SendFlags.of(backup.send, Dataset(one.name, 0, "filesystem", encrypted=one.encrypted))
    return SentDataset(
        one.name,
        one.record,
        one.volume,
        # Without -c the vault compresses each block again, to about the same size as on the source.
        one.ratio,
        large_blocks=flags.large_blocks or flags.raw,
        compressed=one.compressed,
        encrypted=one.encrypted,
    )


async def _layout(context: Context, vault: Vault, below: VaultStorage) -> PoolLayout:
    profile = load_vault_profile(context, vault)
    ashift = int(profile.pool.get("ashift", str(ASHIFT)))
    small = vault.special_small_blocks or parse_size(profile.dataset.get("special_small_blocks", "0"))
    if await context.clients.pool_is_up(vault):
        zfs = context.clients.vault_zfs(vault)
        small = await zfs.number(vault.pool, "special_small_blocks")
        of_each = await read_property(zfs.host, vault.pool, "ashift") or {}
        ashift = max((int(value) for value in of_each.values() if value in ASHIFTS), default=ashift)
    in_force = await _in_force(context, vault, profile)
    return PoolLayout(
        1 << ashift,
        in_force.get(AGGREGATION_LIMITS[False], MERGED),
        below.stores.get("data") or StorageGeometry(vault.pool, REQUEST),
        below.stores.get("special"),
        small,
        compression=below.compression,
        encryption=below.encryption,
        depth=in_force.get(AT_ONCE, DEPTH),
    )


async def _in_force(context: Context, vault: Vault, profile: VaultProfile) -> dict[str, int]:
    """The aggregation limit for non-rotational devices in bytes, and the minimum of writes in flight: from the profile,
    else as they are now."""
    names = AGGREGATION_LIMITS[False], AT_ONCE
    found = await module_parameters.read_parameters(names, context.env.runner) if vault.host is None else {}
    wanted = {name: profile.module[name] for name in names if name in profile.module}
    return {name: int(value) for name, value in (found | wanted).items() if value.isdecimal()}


async def _below(env: Environment, vault: Vault, states: list[DeviceState]) -> VaultStorage:
    found = VaultStorage()
    profile = load_profile(env.paths, vault.profile)
    paths = {state.spec: state.path for state in states if state.path is not None}
    for device in vault.device:
        if device.vdev in found.stores:
            continue  # a pool is striped over devices that are alike
        largest = _largest(profile, paths.get(device.spec))
        found.stores[device.vdev] = await _store(env.runner, device, largest, found)
    return found


def _largest(profile: VaultProfile, path: str | None) -> int:
    """The maximum request size of a device in bytes."""
    now = (
        request_queue.read_queue_setting(path.removeprefix("/dev/"), "max_sectors_kb")
        if path is not None
        else None
    )
    wanted = profile.queue.max_sectors_kb
    return int(now) << 10 if now is not None else wanted << 10 if wanted is not None else REQUEST


async def _store(runner: ProcessRunner, device: Device, largest: int, found: VaultStorage) -> StorageGeometry:
    store = StorageGeometry(device.spec, largest, prices=_prices(device))
    if device.rbd is not None:
        return await _rbd(runner, device, store, found)
    if isinstance(device.nbd, NbdkitServer):
        found.encryption |= "luks" in device.nbd.filters
        size = _parameters(device.nbd).get("object-size")
        if device.nbd.plugin != "S3" or size is not None:
            return replace(store, unit=None if size is None else parse_size(size))
    if isinstance(device.nbd, BlockstoreServer):
        lock = device.nbd.lock
        return replace(store, gathers=SEGMENT, renewals=count_renewals(lock) if lock is not None else 0.0)
    if isinstance(device.nbd, S3backerServer):
        found.encryption |= any(word.partition("=")[0] == "encrypt" for word in device.nbd.settings)
        found.compression |= any(word.partition("=")[0] == "compress" for word in device.nbd.settings)
        return replace(store, unit=parse_size(device.nbd.setting("blockSize")))
    found.unknown.append(f"the object size of {device.spec}: its server does not report it")
    return store


def _prices(device: Device) -> StorePrices | None:
    return None if device.prices is None else device.prices.as_prices()


def _parameters(server: NbdkitServer) -> dict[str, str]:
    return dict(param.split("=", 1) for param in server.params if "=" in param)


async def _rbd(
    runner: ProcessRunner, device: Device, store: StorageGeometry, found: VaultStorage
) -> StorageGeometry:
    """The geometry of an RBD image: an erasure-coded pool rewrites whole stripes, a replicated one single sectors."""
    try:
        facts = await read_pool_facts(make_cluster(device), device.data_pool or device.image.pool, runner)
    except ZvaultError as error:
        found.unknown.append(f"the layout of {device.spec}: {error}")
        return store
    found.compression |= facts.compression
    if facts.on_zfs:
        found.on_zfs.append(device.spec)
    return replace(store, unit=facts.stripe, kind="stripe")


def _stacked(spec: str) -> TuningAdvice:
    return TuningAdvice(
        (spec,),
        "move the OSDs from ZFS volumes to disks, or turn off on one layer what both layers do",
        "its OSDs are on ZFS volumes: both layers checksum, compress and copy on write, which left"
        " 6 to 37 % of the speed in a published measurement with PostgreSQL",
    )
