"""Vaults, as the configuration writes them."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.fields import (
    DurationField,
    HostAddress,
    HostName,
    NamedTable,
    PoolName,
    Several,
    SizeField,
    WordField,
    parse_default,
)
from zvault.config.tables.device import Device
from zvault.config.tables.encryption import PoolEncryption
from zvault.config.tables.scrub import Scrub
from zvault.config.tables.sharing import explain_not_shared
from zvault.core.policy.scrub import ScrubPolicy

MIN_STALL = 10.0
MOST_SHARING_HOSTS = 256


class Vault(NamedTable):
    """A pool to back up into, and the devices below it."""

    pool: PoolName = Field(description="The pool's name.", examples=["cold"])
    profile: WordField = Field(
        default="local",
        description="What the storage wants: the file `NAME.toml` in `/etc/zvault/profiles` or, if it is not "
        "there, one of zvault's own, in `/usr/share/zvault/profiles`. With `auto` zvault measures the device and finds "
        "the figures itself.",
        examples=["nbd-lan", "auto"],
    )
    host: HostAddress | None = Field(
        default=None,
        description="The host the pool is on, if it is another: reached by ssh, the pool imported there by whoever "
        "runs it. Such a vault has no devices and is never made or taken down by zvault.",
        examples=["ssh://root@attic.example.org"],
    )
    transfers: int = Field(
        default=4,
        ge=1,
        le=64,
        description="How many datasets are received, or restored, at once. More hide the waits of many small ones; "
        "large ones then share what the device can do. If it is not set, streams of up to 8 MiB within this host have "
        "slots of their own, up to 64, by how long the vault takes to write a transaction group.",
        examples=[2],
    )
    stall: DurationField = Field(
        default=parse_default("15m"),
        description="When no byte has moved for so long, a stream is stopped, and resumed by the next try.",
        examples=["1h"],
    )
    device: list[Device] = Field(
        default_factory=list,
        description="The pool's devices, each an `[[vault.NAME.device]]`. "
        "With none, the pool is one whose devices its host has anyway.",
    )
    removable: bool = Field(
        default=False,
        description="The pool is on a disk that is plugged in now and then. zvault imports it by its name for a run, "
        "and exports it afterwards, so that the disk can be unplugged. While the disk is away runs are skipped, and "
        "nothing is wrong until `max_lag`; when it appears, what is due runs at once "
        "(docs/how-to/back-up-to-usb-disks.md).",
        examples=[True],
    )
    create: bool = Field(
        default=False,
        description="Make the pool when all its devices are blank. "
        "A device that holds anything is never overwritten.",
        examples=[True],
    )
    special_small_blocks: SizeField | None = Field(
        default=None,
        description="When the pool is made: blocks up to this size go to its special devices, with the metadata. "
        "A power of two from 512 to 1M, less than the recordsize of the sources.",
        examples=["128K"],
    )
    up: Literal["on-demand", "always"] = Field(
        default="on-demand",
        description='"on-demand" brings the vault up for a run and down afterwards; "always" keeps it up.',
        examples=["always"],
    )
    hosts: Several[HostName] = Field(
        default_factory=list,
        description="The hosts that share the vault, by the names that `hostname` prints, all with this same table and "
        "the same backups into it. Whichever has the vault first makes a backup's run, and the others skip it; those "
        "named first have first choice. Another takes over from one that stops in the middle of a run "
        "(docs/explanation/several-hosts.md). Only for one device, `zvault:` without `mode=writeback` or `rbd` with a "
        '`lease`, either without a `cache`: other storage cannot shut a host out. It needs `up = "on-demand"` and '
        "sources on `ssh://`.",
        examples=[["backup1", "backup2", "backup3"]],
    )

    on_sleep: Literal["sync", "export"] = Field(
        default="sync",
        description="What becomes of a vault that is up when the host is put to sleep. Streams are stopped, to be "
        'resumed, and "sync" has the pool write out what it has. "export" exports it as well, if that is sure to be '
        "done before the host sleeps.",
        examples=["export"],
    )

    encryption: PoolEncryption | None = Field(
        default=None,
        description="The pool's root dataset is encrypted with this key when the pool is made. The key is loaded when "
        "the vault comes up, and gone from the host when it goes down. What is sent without encryption is encrypted by "
        "it on the vault, and restored without; raw streams keep their own keys (docs/how-to/encrypt-a-vault.md). What "
        "`send.embedded` says does not count then. A pool that is not encrypted is refused: it cannot be encrypted "
        "afterwards.",
    )

    min_age: DurationField = Field(
        default=parse_default("0s"),
        description="No snapshot on the vault that is younger is pruned, whatever `keep` says, or rolled back, whoever "
        "asks: time to see that something is wrong. An old date makes none older than what the vault had before it, so "
        "a source cannot make its newest look old.",
        examples=["14d"],
    )
    scrub: Scrub = Field(
        default_factory=Scrub,
        description="When everything in the pool is read and checked. A pool on another `host` is left to whoever "
        "runs it unless this is set.",
    )
    heal: Literal["auto", "by-hand", "off"] = Field(
        default="by-hand",
        description='What zvault does about damage that ZFS found and cannot repair. "auto" heals it as soon as it is '
        'known, and exports the pool for that; "by-hand" waits for `zvaultctl heal`; "off" refuses that too '
        "(docs/how-to/heal.md).",
        examples=["auto"],
    )

    @field_validator("create")
    @classmethod
    def _create_needs_devices(cls, create: bool, info: ValidationInfo) -> bool:
        if create and info.data.get("device") == []:
            raise ValueError("needs a device to make the pool on: add a [[vault.NAME.device]] table")
        for index, device in enumerate(info.data.get("device") or [] if create else []):
            if isinstance(device.nbd, BlockstoreServer) and device.nbd.size is None:
                raise ValueError(f"needs the size of device[{index}]: add size=10T to {device.nbd}")
        return create

    @field_validator("device")
    @classmethod
    def _devices_are_here(cls, device: list[Device], info: ValidationInfo) -> list[Device]:
        if device and info.data.get("host") is not None:
            raise ValueError("are this host's, and the vault's pool is on another: remove them, or host")
        return device

    @field_validator("removable")
    @classmethod
    def _is_found_by_name(cls, removable: bool, info: ValidationInfo) -> bool:
        if removable and info.data.get("host") is not None:
            raise ValueError(
                "is of disks of this host, and this vault's pool is on another: remove it, or host"
            )
        if removable and info.data.get("device"):
            raise ValueError("finds the pool by its name on any disk: remove it, or [[vault.NAME.device]]")
        return removable

    @field_validator("up")
    @classmethod
    def _is_exported(cls, up: str, info: ValidationInfo) -> str:
        if up == "always" and info.data.get("removable"):
            raise ValueError(
                "keeps the pool imported, and a removable disk could not be unplugged: remove up"
            )
        return up

    @field_validator("encryption")
    @classmethod
    def _its_own_pool(cls, encryption: PoolEncryption | None, info: ValidationInfo) -> PoolEncryption | None:
        imported = info.data.get("device", True) or info.data.get("removable", True)
        if encryption is not None and not imported:
            raise ValueError(
                "is of pools that zvault imports, and this vault has no [[vault.NAME.device]]: load its key where its"
                " pool is imported, or set removable = true for a disk that is plugged in now and then"
            )
        return encryption

    @field_validator("hosts")
    @classmethod
    def _can_be_shared(cls, hosts: list[str], info: ValidationInfo) -> list[str]:
        if not hosts:
            return hosts
        if not 2 <= len(hosts) <= MOST_SHARING_HOSTS or len(set(hosts)) < len(hosts):
            raise ValueError(
                f"must be from 2 to {MOST_SHARING_HOSTS} hosts, each named once: leave it out for one host"
            )
        if info.data.get("host") is not None:
            raise ValueError(
                "share a vault's devices, and this vault's pool is imported on another host: remove host"
            )
        if info.data.get("device") == []:
            raise ValueError("share a vault's devices, and this vault has none: its pool is one host's own")
        if (count := len(info.data.get("device") or [])) > 1:
            raise ValueError(
                f"share a vault of one device, and this one has {count}: each device has a lease of its own, and the"
                " hosts take turns by one"
            )
        for index, device in enumerate(info.data.get("device") or []):
            if (why := explain_not_shared(device)) is not None:
                raise ValueError(f"cannot share device[{index}]: {why}")
        if info.data.get("up") == "always":
            raise ValueError('take turns, and up = "always" would have each keep the vault: remove up')
        return hosts

    @field_validator("device")
    @classmethod
    def _roles(cls, device: list[Device]) -> list[Device]:
        if device and all(one.vdev == "special" for one in device):
            raise ValueError('are all "special": one must be for data')
        mirrored = [one for one in device if one.mirror is not None]
        if mirrored and len(mirrored) < len(device):
            single = device.index(next(one for one in device if one.mirror is None))
            raise ValueError(
                f"[{single}] has no mirror while others do: losing it would lose the pool in spite of them"
            )
        groups = Counter((one.vdev, one.mirror) for one in mirrored)
        for (vdev, name), count in groups.items():
            if count == 1:
                raise ValueError(f'have a mirror "{name}" of one {vdev} device: a mirror has two or more')
        return device

    @field_validator("special_small_blocks")
    @classmethod
    def _small_blocks(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is None:
            return None
        if size.bit_count() != 1 or not 512 <= size <= 1 << 20:
            raise ValueError("must be a power of two from 512 to 1M")
        if not any(one.vdev == "special" for one in info.data.get("device", [])):
            raise ValueError('needs a device with vdev = "special"')
        return size

    @field_validator("stall")
    @classmethod
    def _some_stall(cls, stall: float) -> float:
        if stall < MIN_STALL:
            raise ValueError("must be at least 10s: a slow device may rest so long between two bursts")
        return stall

    @property
    def is_imported_by_zvault(self) -> bool:
        """True if zvault imports its pool and exports it: one with devices, or on a disk that is plugged in."""
        return bool(self.device) or self.removable

    def scrubs(self) -> ScrubPolicy:
        """Return the policy of when it is scrubbed.

        A pool on another host has its own administrator, unless that is configured here.
        """
        ours = self.host is None or "scrub" in self.model_fields_set
        return self.scrub.policy() if ours else ScrubPolicy()
