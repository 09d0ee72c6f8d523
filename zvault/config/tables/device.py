"""Devices of a vault, as the configuration writes them: a source (NBD, RBD), a cache above it, a place in the pool."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer, NbdSpec, TcpServer
from zvault.config.device_specs.rbd import FEATURE_NEEDS, IMAGE_FEATURES, OBJECT_SIZES, RbdImage
from zvault.config.fields import (
    ConfigTable,
    DurationField,
    MountPoints,
    NbdServer,
    RbdImageName,
    SizeField,
    UnitNames,
    WordField,
    parse_default,
)
from zvault.config.tables.device_parts import CacheTable, Ceph, PricesTable, Tls

LEASE_BOUND = 300.0
"""Seconds: half of it rides out a timeout of NBD's, and a renewal each tenth costs less than a euro a month."""
MIN_LEASE = 10.0

MIN_TIMEOUT = 1.0
"""Seconds; nbd-client's -timeout takes whole ones, and 0 there would mean to wait for ever."""


def _in_store(nbd: NbdSpec | None) -> bool:
    """True if its blocks are in an object store, where a lease can lie beside them."""
    return isinstance(nbd, BlockstoreServer) or (isinstance(nbd, NbdkitServer) and nbd.plugin == "S3")


def _files(nbd: NbdSpec | None) -> list[str]:
    """The files and folders of this host that a server keeps blocks in."""
    if isinstance(nbd, BlockstoreServer):
        return list(nbd.folders.values())
    file = nbd.backing_file if isinstance(nbd, NbdkitServer) else None
    return [posixpath.normpath(file)] if file is not None else []


class Device(ConfigTable):
    """One block device of the vault's pool. A pool is striped over several, except for those that mirror each other."""

    rbd: RbdImageName | None = Field(
        default=None,
        description="The RBD image, in a Ceph cluster. A device has either this or `nbd`.",
        examples=["rbd_meta/cold"],
    )
    nbd: NbdServer | None = Field(
        default=None,
        validate_default=True,
        description="The NBD server to connect to. `zvault:` starts zvault's own block store, which keeps the device "
        "in a bucket (docs/how-to/use-a-block-store.md), in a systemd unit of its own, which outlives a restart of "
        "the daemon; its words are split as by a shell. So do `nbdkit:`, with a plugin and its parameters, and "
        "`s3backer:`, with that program's options. The others must run already.",
        examples=[
            "zvault:attic/cold size=10T endpoint=https://s3.example.org credential=zvault.s3",
            "nbdkit:file /var/lib/zvault/cold.img",
            "nbdkit:S3 bucket=attic key=cold size=200G object-size=128K secret-key=+/etc/zvault/s3.key",
            "s3backer:attic/cold size=200G blockSize=128k accessFile=/etc/zvault/s3backer",
            "unix:/run/nbd.sock?export=cold",
            "tcp:nas.example.org:10809/cold",
        ],
    )
    size: SizeField | None = Field(
        default=None,
        description="The size of what is made for a new vault, by the vault's `create` or `zvaultctl vault create`: "
        "with `rbd` the image, with `nbdkit:file` a sparse file. Not for other servers.",
        examples=["10T"],
    )
    requires_mount: MountPoints = Field(
        default=(),
        description="A folder, or several in an array, on which something has to be mounted before the device is "
        "brought up: the disk that its file is on, or the journal or the cache of its block store. While nothing is, "
        "the vault stays down, nothing is made below the folder, and the run is tried again.",
        examples=["/mnt/disk"],
    )
    requires_unit: UnitNames = Field(
        default=(),
        description="The systemd unit by which the device is reached, or several in an array: a VPN, a tunnel, a "
        "server on this host. While one is not active, the vault stays down, and the run is tried again. At a shutdown "
        "systemd stops zvaultd, which exports the vault, before it stops the unit "
        "(docs/explanation/sleep.md#what-a-vault-is-reached-by).",
        examples=["wg-quick@wg0.service"],
    )
    data_pool: WordField | None = Field(
        default=None,
        description="For a new image: the pool its data is in, such as an erasure-coded one; what is in `rbd`'s pool "
        "then is little, and wants to be fast.",
        examples=["data"],
    )
    object_size: SizeField | None = Field(
        default=None,
        description="For a new image: the size of its objects, a power of two from 4K to 32M. Ceph's own: 4M.",
        examples=["8M"],
    )
    stripe_unit: SizeField | None = Field(
        default=None,
        description="For a new image: so much goes to one object before the next one's turn. An object, if left out.",
        examples=["64K"],
    )
    stripe_count: int | None = Field(
        default=None,
        ge=1,
        description="For a new image: so many objects take turns; needs `stripe_unit`.",
        examples=[8],
    )
    features: list[str] | None = Field(
        default=None,
        description="For a new image: its features, as rbd(8) names them; Ceph's own if left out.",
        examples=[["exclusive-lock", "object-map", "fast-diff"]],
    )
    map: Literal["krbd", "rbd-nbd"] = Field(
        default="krbd",
        description='How an image becomes a device: "krbd" is in the kernel and faster; "rbd-nbd" is a program that '
        "knows every feature of images, and runs in a systemd unit of its own.",
        examples=["rbd-nbd"],
    )
    exclusive: bool = Field(
        default=True,
        description="Let no other host have it: take the image's exclusive lock, or with `zvault:` and `nbdkit:S3` a "
        "lease beside the blocks, and keep it. With false zvault only looks whether anyone has an image open, and "
        "takes no lease.",
        examples=[False],
    )
    lease: DurationField | None = Field(
        default=None,
        description="With `zvault:` and `nbdkit:S3`: a host that has not renewed its lease for so long has stopped "
        "writing. It stops its server after half of that, so for so long the store may be out of reach; `zvaultctl "
        "vault take` may have to wait for all of it. `5m` if left out. With `rbd`, for a vault that several `hosts` "
        "share: the lease says which host may map the image, and after so long without a renewal another one shuts "
        "that host out of the cluster and takes over. An image has none if left out.",
        examples=["2m"],
    )
    ceph: Ceph | None = Field(
        default=None,
        description="Which cluster the image is in, and as whom to use it.",
        examples=[{"conf": "/etc/ceph/attic.conf", "user": "zvault"}],
    )
    connections: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Connections to the server. More than one helps a server that answers each in a thread "
        "of its own; the server must allow it (nbdkit does for plugins and filters that say so).",
        examples=[4],
    )
    timeout: DurationField = Field(
        default=parse_default("90s"),
        description="How long one request may take before the connection counts as dead, or with krbd before it "
        "fails. Longer than the storage's slowest discard. Whole seconds, never 0: without a timeout a dead server "
        "hangs the pool and all who touch it.",
        examples=["90s"],
    )

    tls: Tls | None = Field(
        default=None,
        description="Only with `tcp:`: encrypt the connection, and take no other server for this one.",
        examples=[{"certs": "/etc/zvault/tls"}],
    )
    cache: CacheTable | None = Field(
        default=None,
        description="A cache in front of the device; only a new device can get one.",
        examples=[{"bcache": "/dev/disk/by-id/nvme-X-part4", "mode": "writeback"}],
    )

    prices: PricesTable | None = Field(
        default=None,
        description="What the storage costs, so that `zvaultctl fit` can tell what a backup will, and "
        "`zvaultctl vault status` what a block store does.",
        examples=[{"put": 0.005, "get": 0.0004, "stored": 0.023, "currency": "$"}],
    )
    vdev: Literal["data", "special"] = Field(
        default="data",
        description='What the pool uses it for: "data", or "special" for metadata and small blocks (see '
        "`special_small_blocks`). Losing a special device loses the pool.",
        examples=["special"],
    )
    mirror: WordField | None = Field(
        default=None,
        description="Devices of a vault that have the same name here mirror each other. Data and special devices "
        "are then all mirrored.",
        examples=["a"],
    )

    @property
    def layers(self) -> tuple[str, ...]:
        """The kinds of layer it is made of, its source first: see devices/layer.py."""
        source = "rbd" if self.rbd is not None else "nbd"
        return (source, "bcache") if self.cache is not None else (source,)

    @property
    def image(self) -> RbdImage:
        """Its RBD image; for a device that has one."""
        if self.rbd is None:
            raise TypeError("this device is no RBD image")
        return self.rbd

    @property
    def server(self) -> NbdSpec:
        """Its NBD server; for a device that has one."""
        if self.nbd is None:
            raise TypeError("this device has no NBD server")
        return self.nbd

    @property
    def lease_bound(self) -> float | None:
        """After how many seconds without a renewal its holder has stopped; None for one that has no lease."""
        if self.rbd is not None:
            return self.lease
        if not (_in_store(self.nbd) and self.exclusive):
            return None
        return LEASE_BOUND if self.lease is None else self.lease

    @property
    def identity(self) -> tuple[str, ...]:
        """The identity of the device: two equal ones are the same bytes."""
        if self.rbd is not None:
            ceph = self.ceph.conf if self.ceph is not None and self.ceph.conf is not None else ""
            return (*self.rbd.identity, ceph)
        return self.server.identity

    @property
    def spec(self) -> str:
        """The device in words, for people, and to tell that it is another now."""
        source = f"rbd:{self.rbd}" if self.rbd is not None else str(self.nbd)
        return source + (f" behind {self.cache.bcache}" if self.cache is not None else "")

    @field_validator("nbd")
    @classmethod
    def _one_source(cls, nbd: NbdSpec | None, info: ValidationInfo) -> NbdSpec | None:
        if "rbd" in info.data and (nbd is None) == (info.data["rbd"] is None):
            if nbd is not None:
                raise ValueError("cannot stand beside rbd: a device has one source")
            raise ValueError(
                'is missing; for example nbd = "nbdkit:file /var/lib/zvault/cold.img"; or name an rbd'
            )
        return nbd

    @field_validator("data_pool", "object_size", "stripe_unit", "stripe_count", "features", "ceph")
    @classmethod
    def _only_with_rbd(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.data.get("nbd") is not None:
            raise ValueError("is for an RBD image, and this device is an NBD server")
        return value

    @field_validator("object_size", "stripe_unit")
    @classmethod
    def _power_of_two(cls, size: int | None, info: ValidationInfo) -> int | None:
        least, most = OBJECT_SIZES
        if size is not None and (size & (size - 1) or not least <= size <= most):
            raise ValueError("must be a power of two from 4K to 32M")
        if (
            size is not None
            and info.field_name == "stripe_unit"
            and size > (info.data.get("object_size") or 4 << 20)
        ):
            raise ValueError("must not be more than object_size (4M if left out)")
        return size

    @property
    def tries(self) -> int:
        """The number of connections that a request is tried on, one after the other, each for ``timeout``; krbd has
        one.
        """
        return self.connections if self.nbd is not None else 1

    @field_validator("stripe_count")
    @classmethod
    def _count_needs_a_unit(cls, count: int | None, info: ValidationInfo) -> int | None:
        if count is not None and count > 1 and info.data.get("stripe_unit", 1) is None:
            raise ValueError("needs stripe_unit")
        return count

    @field_validator("features")
    @classmethod
    def _known_features(cls, features: list[str] | None) -> list[str] | None:
        for feature in features or ():
            if feature not in IMAGE_FEATURES:
                raise ValueError(f'"{feature}" is none of {", ".join(IMAGE_FEATURES)}')
            if (needed := FEATURE_NEEDS.get(feature)) is not None and needed not in (features or ()):
                raise ValueError(f'"{feature}" needs "{needed}" beside it')
        return features

    @field_validator("exclusive")
    @classmethod
    def _lock_is_a_feature(cls, exclusive: bool, info: ValidationInfo) -> bool:
        features = info.data.get("features")
        if exclusive and features is not None and "exclusive-lock" not in features:
            raise ValueError('true needs "exclusive-lock" among the features')
        return exclusive

    @field_validator("lease")
    @classmethod
    def _lease_needs_a_store(cls, lease: float | None, info: ValidationInfo) -> float | None:
        nbd = info.data.get("nbd")
        if lease is not None and nbd is None:
            if info.data.get("map") != "krbd":
                raise ValueError('of an image needs map = "krbd"')
            if not info.data.get("exclusive", True):
                raise ValueError(
                    "cannot stand beside exclusive = false: who has the lease has the image alone"
                )
        elif lease is not None and not _in_store(nbd):
            raise ValueError("is of blocks in an object store, zvault: and nbdkit:S3, and of RBD images")
        if lease is not None and lease < MIN_LEASE:
            raise ValueError("must be at least 10s: it is renewed ten times as often")
        return lease

    @field_validator("size")
    @classmethod
    def _size_needs_a_file(cls, size: int | None, info: ValidationInfo) -> int | None:
        nbd = info.data.get("nbd")
        if size is None or nbd is None:
            return size
        if isinstance(nbd, BlockstoreServer):
            raise ValueError(
                "is a word of the block store: write size=… in nbd, as in zvault:attic/cold size=10T"
            )
        if not isinstance(nbd, NbdkitServer) or nbd.plugin != "file":
            raise ValueError(
                "only nbdkit:file makes its own backing file; other servers know their size themselves"
            )
        if nbd.backing_file is None:
            raise ValueError("nbd names no file to make, as in nbdkit:file /var/lib/zvault/cold.img")
        return size

    @field_validator("requires_mount")
    @classmethod
    def _mounts_hold_it(cls, folders: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "nbd" not in info.data:
            return folders
        folders = tuple(map(posixpath.normpath, folders))
        for folder in folders:
            if not any(PurePosixPath(path).is_relative_to(folder) for path in _files(info.data["nbd"])):
                raise ValueError(
                    f"nothing of this device is in {folder}: name the mount point that its file is below"
                )
        return folders

    @field_validator("tls")
    @classmethod
    def _tls_needs_tcp(cls, tls: Tls | None, info: ValidationInfo) -> Tls | None:
        nbd = info.data.get("nbd")
        if tls is not None and nbd is not None and not isinstance(nbd, TcpServer):
            raise ValueError("only a tcp: server is reached by TLS")
        return tls

    @field_validator("timeout")
    @classmethod
    def _whole_seconds(cls, timeout: float) -> float:
        if timeout < MIN_TIMEOUT or timeout != int(timeout):
            raise ValueError(
                "must be whole seconds, at least 1s: without a timeout a dead server hangs the pool"
            )
        return timeout
