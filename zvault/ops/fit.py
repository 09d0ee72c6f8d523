"""How a backup fits the vault it goes to, as a document: ``GET /v1/fit/BACKUP``, ``zvaultctl fit``. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from zvault.config.blockstore import BlockstoreServer
from zvault.config.load import load_profile
from zvault.config.nbd import NbdkitServer
from zvault.config.profile import Profile
from zvault.config.s3backer import S3backerServer
from zvault.config.schema import Backup, Device, Vault
from zvault.core.alignment import Layout, Prices, Sent, Store, advise, fit
from zvault.core.errors import ZvaultError
from zvault.core.groups import FIRST, LATER, advise_on_groups, group
from zvault.core.model import Dataset
from zvault.core.names import excluded
from zvault.core.tuning import AGGREGATION
from zvault.core.units import parse_size
from zvault.devices import queue
from zvault.devices.ceph import pool_facts
from zvault.devices.rbd_source import cluster_of
from zvault.devices.stack import DeviceState
from zvault.ops.context import Context
from zvault.ops.measured import profile_of
from zvault.ops.vault import Vaults
from zvault.system import params
from zvault.zfs.blocks import Blocks, blocks
from zvault.zfs.stream import Flags
from zvault.zfs.vdev import read_property

Document = dict[str, Any]

ASHIFT = 12
"""What OpenZFS takes for a device that reports sectors of 4 KiB; every profile of zvault's says it."""

MERGED = 128 << 10
"""zfs_vdev_aggregation_limit_non_rotating's default, zfs(4)."""

AT_ONCE, DEPTH = "zfs_vdev_async_write_min_active", 2
"""How many writes go to a device while little waits, and its default: zfs(4)."""

SEGMENT = 8 << 20
"""Bytes that zvault's block store puts as one object (zvault/blockstore/format.py)."""

REQUEST = 1280 << 10
"""Bytes in a request where the device is not up to be asked: BLK_DEF_MAX_SECTORS before Linux 6.16."""


@dataclass
class _Below:
    """What was learned of a vault's storage: its stores by role, what they do besides, and what is not known."""

    stores: dict[str, Store] = field(default_factory=dict)
    compression: bool = False
    encryption: bool = False
    on_zfs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


async def fit_document(context: Context, vaults: Vaults, name: str) -> Document:
    """Every dataset of a backup with what its blocks come to on the vault, and advice.

    Raises NotFound, HostUnreachable. The vault may be down: then its configuration and profile are believed.
    """
    backup = context.backup(name)
    vault = context.vault(backup.vault)
    source = context.source_of(backup)
    found = await blocks(source.host, backup.source.dataset)
    sent = [_sent(backup, one) for one in found.values() if excluded(one.name, backup.exclude) is None]
    below = await _below(context, vault, await vaults[backup.vault].devices())
    layout = await _layout(context, backup.vault, below)
    advice = [asdict(one) for one in (*advise(sent, layout), *advise_on_groups(layout))]
    advice += [_stacked(spec) for spec in below.on_zfs]
    return {
        "backup": name,
        "vault": backup.vault,
        "sector": layout.sector,
        "merged": layout.merge,
        "devices": [
            {
                "name": store.name,
                "vdev": role,
                "unit": store.unit,
                "kind": store.kind,
                "largest": store.largest,
            }
            for role, store in below.stores.items()
        ],
        "group": asdict(group(layout)),
        "run": {"groups": LATER, **asdict(group(layout).times(LATER))},
        "first": {"groups": FIRST, **asdict(group(layout).times(FIRST))},
        "datasets": [{"record": one.record, "ratio": one.ratio, **asdict(fit(one, layout))} for one in sent],
        "advice": advice,
        "unknown": below.unknown,
    }


def _sent(backup: Backup, one: Blocks) -> Sent:
    flags = Flags.of(backup.send, Dataset(one.name, 0, "filesystem", encrypted=one.encrypted))
    return Sent(
        one.name,
        one.record,
        one.volume,
        # Without -c a block is packed anew on the vault: much the same there as here.
        one.ratio,
        large_blocks=flags.large_blocks or flags.raw,
        compressed=one.compressed,
        encrypted=one.encrypted,
    )


async def _layout(context: Context, name: str, below: _Below) -> Layout:
    vault = context.vault(name)
    profile = profile_of(context, name)
    ashift = int(profile.pool.get("ashift", str(ASHIFT)))
    small = vault.special_small_blocks or parse_size(profile.dataset.get("special_small_blocks", "0"))
    if await context.pool_is_up(name):
        zfs = context.vault_zfs(name)
        small = int((await zfs.get(vault.pool, "special_small_blocks"))["special_small_blocks"])
        of_each = await read_property(zfs.host, vault.pool, "ashift") or {}
        ashift = max((int(value) for value in of_each.values()), default=ashift)
    in_force = await _in_force(context, vault, profile)
    return Layout(
        1 << ashift,
        in_force.get(AGGREGATION[False], MERGED),
        below.stores.get("data") or Store(vault.pool, REQUEST),
        below.stores.get("special"),
        small,
        compression=below.compression,
        encryption=below.encryption,
        depth=in_force.get(AT_ONCE, DEPTH),
    )


async def _in_force(context: Context, vault: Vault, profile: Profile) -> dict[str, int]:
    """Up to how many bytes ZFS merges on devices that do not rotate, and how many writes it sends at least: as the
    profile wants, or as it is."""
    names = AGGREGATION[False], AT_ONCE
    found = await params.known(names, context.runner) if vault.host is None else {}
    wanted = {name: profile.module[name] for name in names if name in profile.module}
    return {name: int(value) for name, value in (found | wanted).items() if value.isdecimal()}


async def _below(context: Context, vault: Vault, states: list[DeviceState]) -> _Below:
    found = _Below()
    profile = load_profile(context.paths, vault.profile)
    paths = {state.spec: state.path for state in states if state.path is not None}
    for device in vault.device:
        if device.vdev in found.stores:
            continue  # a pool is striped over devices that are alike
        largest = _largest(profile, paths.get(device.spec))
        found.stores[device.vdev] = await _store(context, device, largest, found)
    return found


def _largest(profile: Profile, path: str | None) -> int:
    """Bytes in the largest request that a device takes."""
    now = queue.read(path.removeprefix("/dev/"), "max_sectors_kb") if path is not None else None
    wanted = profile.queue.max_sectors_kb
    return int(now) << 10 if now is not None else wanted << 10 if wanted is not None else REQUEST


async def _store(context: Context, device: Device, largest: int, found: _Below) -> Store:
    store = Store(device.spec, largest, prices=_prices(device))
    if device.rbd is not None:
        return await _rbd(context, device, store, found)
    if isinstance(device.nbd, NbdkitServer):
        found.encryption |= "luks" in device.nbd.filters
        size = _parameters(device.nbd).get("object-size")
        if device.nbd.plugin != "S3" or size is not None:
            return replace(store, unit=None if size is None else parse_size(size))
    if isinstance(device.nbd, BlockstoreServer):
        return replace(store, gathers=SEGMENT)
    if isinstance(device.nbd, S3backerServer):
        found.encryption |= any(word.partition("=")[0] == "encrypt" for word in device.nbd.settings)
        found.compression |= any(word.partition("=")[0] == "compress" for word in device.nbd.settings)
        return replace(store, unit=parse_size(device.nbd.setting("blockSize")))
    found.unknown.append(f"what {device.spec} keeps its bytes in: its server does not tell")
    return store


def _prices(device: Device) -> Prices | None:
    return None if device.prices is None else Prices(device.prices.put, device.prices.get)


def _parameters(server: NbdkitServer) -> dict[str, str]:
    return dict(param.split("=", 1) for param in server.params if "=" in param)


async def _rbd(context: Context, device: Device, store: Store, found: _Below) -> Store:
    """An image rewrites whole stripes where its data is erasure-coded; replicas take any sector by itself."""
    try:
        facts = await pool_facts(cluster_of(device), device.data_pool or device.image.pool, context.runner)
    except ZvaultError as error:
        found.unknown.append(f"how {device.spec} is laid out: {error}")
        return store
    found.compression |= facts.compression
    if facts.on_zfs:
        found.on_zfs.append(device.spec)
    return replace(store, unit=facts.stripe, kind="stripe")


def _stacked(spec: str) -> Document:
    return {
        "about": (spec,),
        "what": "move the OSDs from volumes of ZFS to disks, or turn off what both do",
        "why": "its OSDs lie on ZFS: everything is checksummed, compressed and copied on write twice, which left"
        " 6 to 37 % of the speed in a published measurement with PostgreSQL",
    }
