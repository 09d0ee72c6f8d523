"""Vaults and their devices, as the configuration writes them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from zvault.config.fields import Duration, HostAddress, NbdServer, PoolName, Size, Table, Word, written
from zvault.config.nbd import NbdkitServer

MIN_STALL = 10.0

MIN_TIMEOUT = 1.0
"""Seconds; nbd-client's -timeout takes whole ones, and 0 there would mean to wait for ever."""


class Device(Table):
    """One block device of the vault's pool. Several tables make a pool striped over all of them."""

    nbd: NbdServer = Field(
        description="The NBD server to connect to. `nbdkit:` starts one in a systemd unit of its own, which "
        "outlives a restart of the daemon; its words are split as by a shell. The others must run already.",
        examples=[
            "nbdkit:file /var/lib/zvault/cold.img",
            "nbdkit:S3 bucket=zv key=cold size=200G object-size=128K secret-key=+/etc/zvault/s3.key",
            "unix:/run/nbd.sock?export=cold",
            "tcp:nas.example.org:10809/cold",
        ],
    )
    size: Size | None = Field(
        default=None,
        description="Only with `nbdkit:file`: if the file does not exist, a sparse one of this size is made.",
        examples=["10T"],
    )
    connections: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Connections to the server. More than one helps a server that answers each in a thread "
        "of its own; the server must allow it (nbdkit does for plugins and filters that say so).",
        examples=[4],
    )
    timeout: Duration = Field(
        default=written("90s"),
        description="How long one request may take before the connection counts as dead. Whole seconds, "
        "never 0: without a timeout a dead server hangs the pool and all who touch it.",
        examples=["90s"],
    )

    @field_validator("size")
    @classmethod
    def _size_needs_a_file(cls, size: int | None, info: ValidationInfo) -> int | None:
        nbd = info.data.get("nbd")
        if size is None or nbd is None:
            return size
        if not isinstance(nbd, NbdkitServer) or nbd.plugin != "file":
            raise ValueError(
                "only nbdkit:file makes its own backing file; other servers know their size themselves"
            )
        if nbd.backing_file is None:
            raise ValueError("nbd names no file to make, as in nbdkit:file /var/lib/zvault/cold.img")
        return size

    @field_validator("timeout")
    @classmethod
    def _whole_seconds(cls, timeout: float) -> float:
        if timeout < MIN_TIMEOUT or timeout != int(timeout):
            raise ValueError(
                "must be whole seconds, at least 1s: without a timeout a dead server hangs the pool"
            )
        return timeout


class Vault(Table):
    """A pool to back up into, and the devices below it."""

    pool: PoolName = Field(description="The pool's name.", examples=["cold"])
    profile: Word = Field(
        default="local",
        description="What the storage wants: the file `NAME.toml` in `/etc/zvault/profiles` or, if it is not "
        "there, in `/usr/share/zvault/profiles`.",
        examples=["nbd-lan"],
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
        description="How many datasets are received at once. More hide the waits of many small ones; "
        "large ones then share what the device can do.",
        examples=[2],
    )
    stall: Duration = Field(
        default=written("15m"),
        description="When no byte has moved for so long, a stream is stopped, and resumed by the next try.",
        examples=["1h"],
    )
    device: list[Device] = Field(
        default_factory=list,
        description="The pool's devices, each an `[[vault.NAME.device]]`. "
        "With none, the pool is one whose devices its host has anyway.",
    )
    create: bool = Field(
        default=False,
        description="Make the pool when all its devices are blank. "
        "A device that holds anything is never overwritten.",
        examples=[True],
    )
    up: Literal["on-demand", "always"] = Field(
        default="on-demand",
        description='"on-demand" brings the vault up for a run and down afterwards; "always" keeps it up.',
        examples=["always"],
    )

    @field_validator("create")
    @classmethod
    def _create_needs_devices(cls, create: bool, info: ValidationInfo) -> bool:
        if create and info.data.get("device") == []:
            raise ValueError("needs a device to make the pool on: add a [[vault.NAME.device]] table")
        return create

    @field_validator("device")
    @classmethod
    def _devices_are_here(cls, device: list[Device], info: ValidationInfo) -> list[Device]:
        if device and info.data.get("host") is not None:
            raise ValueError("are this host's, and the vault's pool is on another: remove them, or host")
        return device

    @field_validator("stall")
    @classmethod
    def _some_stall(cls, stall: float) -> float:
        if stall < MIN_STALL:
            raise ValueError("must be at least 10s: a slow device may rest so long between two bursts")
        return stall
