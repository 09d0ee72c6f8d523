"""What a kind of storage wants: queue settings, module parameters, properties of the pool, the stream's buffer."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from zvault.config.fields import ConfigTable, SizeField, describe_value, parse_default, quote_text
from zvault.core.units import parse_size

MIN_BLOCKS = 5
"""With fewer, Debian 13's mbuffer refuses to start: "Number of blocks must be at least 5"."""

_PROPERTY = re.compile(r"[a-z][a-z0-9_]*(?:@[a-z0-9_]+)?|[a-z0-9][a-z0-9_.-]*:[a-z0-9:_.-]+")


def _property_name(name: str) -> str:
    if not _PROPERTY.fullmatch(name):
        raise ValueError(f"{quote_text(name)} is not the name of a ZFS property")
    return name


def _property_value(value: object) -> object:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"must be the value of a ZFS property, not {describe_value(value)}")
    return value


PoolProperties = dict[
    Annotated[str, AfterValidator(_property_name)],
    Annotated[str, BeforeValidator(_property_value)],
]


_PARAMETER = re.compile(r"[a-z][a-z0-9_]*")


def _parameter_name(name: str) -> str:
    if not _PARAMETER.fullmatch(name):
        raise ValueError(f"{quote_text(name)} is not the name of a module parameter")
    return name


def _parameter_value(value: object) -> object:
    """As the kernel takes it and shows it again: numbers in decimal digits, switches as 1 and 0."""
    if isinstance(value, bool | int) and value >= 0:
        return str(int(value))
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"must be the value of a module parameter, not {describe_value(value)}")
    try:
        return str(parse_size(value))
    except ValueError:
        return value.strip()


ModuleParameters = dict[
    Annotated[str, AfterValidator(_parameter_name)],
    Annotated[str, BeforeValidator(_parameter_value)],
]


class QueueSettings(ConfigTable):
    """Settings of each device's request queue, `/sys/block/DEVICE/queue`. What is left out stays as it is."""

    max_sectors_kb: int | None = Field(
        default=None,
        ge=4,
        description="The largest request, in KiB; cut to what the device can take (`max_hw_sectors_kb`).",
        examples=[32768],
    )
    scheduler: Literal["none", "mq-deadline", "kyber", "bfq"] | None = Field(
        default=None, description="The I/O scheduler. ZFS has its own above it.", examples=["none"]
    )
    nr_requests: int | None = Field(
        default=None, ge=1, description="How many requests may be queued.", examples=[256]
    )
    read_ahead_kb: int | None = Field(
        default=None,
        ge=0,
        description="How much the kernel reads ahead, in KiB. ZFS reads ahead by itself and does not use it.",
        examples=[128],
    )
    discard_max_bytes: int | None = Field(
        default=None,
        ge=0,
        description="The largest discard, in bytes; ZFS's larger ones are cut. A discard that takes longer than the "
        "device's `timeout` costs the connection, and some stores delete an object for each block. `0` turns "
        "discards off.",
        examples=[16777216],
    )


class StreamTable(ConfigTable):
    """mbuffer's memory between `zfs send` and `zfs receive`."""

    direct: bool = Field(
        default=False,
        description="Between two pools of one host, leave mbuffer out: `zfs send` writes into the pipe that "
        "`zfs receive` reads from. For pools that answer at once.",
        examples=[True],
    )
    buffer: SizeField = Field(default=parse_default("128M"), description="All of it.", examples=["256M"])
    block: SizeField = Field(
        default=parse_default("1M"),
        description="One block of it; the buffer has at least five.",
        examples=["4M"],
    )

    start: int = Field(
        default=0,
        ge=0,
        le=90,
        description="How full the buffer next to `zfs receive` must be, in percent, before it passes anything on: the "
        "first transaction groups are then full ones. A restore passes on at once.",
        examples=[50],
    )

    @field_validator("block")
    @classmethod
    def _enough_blocks(cls, block: int, info: ValidationInfo) -> int:
        buffer = info.data.get("buffer")
        if buffer is not None and buffer < MIN_BLOCKS * block:
            raise ValueError(
                f"mbuffer wants {MIN_BLOCKS} blocks in its buffer: make buffer larger or block smaller"
            )
        return block


class VaultProfile(ConfigTable):
    """A file `NAME.toml` among the profiles, named by a vault's `profile`."""

    queue: QueueSettings = Field(default_factory=QueueSettings, description="The devices' request queues.")
    module: ModuleParameters = Field(
        default_factory=dict,
        description="OpenZFS's module parameters while the vault is up, see zfs(4). They hold for all pools of the "
        "host; what they were is put back when the last vault that wants them goes down. One that the host's OpenZFS "
        "does not have is left out and told of. `zvaultctl tune show` explains each.",
        examples=[{"zfs_vdev_aggregation_limit_non_rotating": "4M", "zfs_txg_timeout": 30}],
    )
    reading: ModuleParameters = Field(
        default_factory=dict,
        description="The same while the vault is read: by a restore, a verification, a mount or a scrub. They are put "
        "back when the last of these ends, so the reads of other pools are not affected during runs.",
        examples=[{"zfs_vdev_async_read_max_active": 32, "zfs_send_queue_length": "128M"}],
    )
    pool: PoolProperties = Field(
        default_factory=dict,
        description="Properties of the pool when zvault makes it, see zpoolprops(7).",
        examples=[{"ashift": 12, "failmode": "continue"}],
    )
    vdev: PoolProperties = Field(
        default_factory=dict,
        description="Properties of each of the pool's devices, set when the vault comes up, see vdevprops(7). The pool "
        "keeps them. One that the host's OpenZFS does not have is left out and told of.",
        examples=[{"scheduler": "on"}],
    )
    dataset: PoolProperties = Field(
        default_factory=dict,
        description="Properties of the pool's root dataset when zvault makes it, see zfsprops(7). "
        "What is received inherits those it does not bring along.",
        examples=[{"compression": "lz4", "atime": "off"}],
    )
    stream: StreamTable = Field(
        default_factory=StreamTable, description="The buffer in front of `zfs receive`."
    )
