"""The configuration as a checked, immutable model. The reference is made from it: it is all there is."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from zvault.config.fields import (
    Calendar,
    Duration,
    HostAddress,
    HostName,
    Interval,
    Listen,
    NbdServer,
    Pattern,
    PoolName,
    Share,
    Size,
    SourceName,
    Table,
    TagPattern,
    Template,
    TimeZone,
    Word,
    quote,
    written,
)
from zvault.config.hooks import Hooks
from zvault.config.keep import Keep
from zvault.config.limit import Limited
from zvault.config.nbd import NbdkitServer
from zvault.core.address import Source
from zvault.core.limit import Limit

MIN_STALL = 10.0

MIN_TIMEOUT = 1.0
"""Seconds; nbd-client's -timeout takes whole ones, and 0 there would mean to wait for ever."""


class Daemon(Table):
    """The daemon itself. The table may be left out."""

    metrics: Listen | None = Field(
        default="127.0.0.1:9712",
        description='Where `/metrics` is served for Prometheus; "off" serves none.',
        examples=["[::]:9712", "off"],
    )
    timezone: TimeZone | None = Field(
        default=None,
        description="The time zone of schedules and of the hours and days in `keep`; the host's if left out.",
        examples=["Europe/Vienna"],
    )
    host: HostName | None = Field(
        default=None,
        description="What `{host}` in `into` stands for; the host's name if left out. "
        "Set it where the host's name may change: the vault's datasets are found by it.",
        examples=["filer1"],
    )


class Host(Table):
    """Another host, under the name by which `ssh://` addresses call it. The table may be left out."""

    sudo: bool = Field(
        default=False,
        description="Run `zfs` and `zpool` there by `sudo -n`. Without it the user who logs in is root, or "
        "`zfs allow` lets him: see [other hosts](../how-to/ssh.md).",
        examples=[True],
    )
    compression: Literal["auto", "zstd", "lz4", "gzip", "off"] = Field(
        default="auto",
        description='How streams are compressed on the way. "auto" is zstd for what is not compressed already, '
        "as blocks sent as they are on disk may be. It needs the program on both hosts.",
        examples=["zstd"],
    )
    transfers: int = Field(
        default=8, ge=1, le=64, description="How many streams this host may send at once.", examples=[2]
    )


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


class SnapshotConfig(Table):
    """The snapshots zvault makes."""

    prefix: Word = Field(
        default="zvault",
        description="What their names begin with: `PREFIX_2026-11-21T09:00:00Z`. Only such are ever pruned.",
        examples=["zvault"],
    )
    hooks: Hooks = Field(
        default_factory=Hooks,
        description="Programs to run right before and right after the snapshot is made.",
    )


class Send(Table):
    """How datasets are sent, see zfs-send(8)."""

    large_blocks: bool = Field(
        default=True,
        description="Keep records larger than 128 KiB (`-L`). Do not change it later.",
        examples=[True],
    )
    compressed: bool = Field(
        default=True, description="Send blocks as they are compressed on the source (`-c`).", examples=[True]
    )
    embedded: bool = Field(
        default=True,
        description="Send blocks that are stored in their block pointers as such (`-e`).",
        examples=[True],
    )
    raw: bool = Field(
        default=False,
        description="Send encrypted datasets as they are (`-w`): the vault never sees the key. "
        "A dataset once sent raw must always be.",
        examples=[True],
    )
    properties: bool = Field(
        default=True, description="Send the datasets' properties too (`-p`).", examples=[True]
    )


class Backup(Table):
    """A flow from a source into a vault."""

    source: SourceName = Field(
        description="The dataset to back up, with all below it. On another host it is reached by ssh, as root's "
        "ssh_config(5) says.",
        examples=["tank/data", "ssh://root@filer1/tank"],
    )
    exclude: list[Pattern] = Field(
        default_factory=list,
        description="Datasets to leave out: `tank/tmp` that dataset alone, `tank/tmp/**` all below it.",
        examples=[["tank/data/scratch", "tank/data/scratch/**"]],
    )
    vault: Word = Field(
        description="The vault to back up into: the NAME of a `[vault.NAME]`.", examples=["cold"]
    )
    into: Template = Field(
        default="{host}/{dataset}",
        description="Where below the vault's pool each dataset goes. `{host}` is the source's host, `{dataset}` the "
        "dataset's full name, `{pool}` the source's pool.",
        examples=["{host}/{dataset}"],
    )
    schedule: Calendar | None = Field(
        default=None,
        description="When to run, by the clock. With neither `schedule` nor `every` it runs only by hand. "
        "A run missed while the host slept or was off happens once when it is back.",
        examples=["hourly", "30 2 * * mon-fri"],
    )
    every: Interval | None = Field(
        default=None, description="How long from run to run, instead of `schedule`.", examples=["15m"]
    )
    snapshot: SnapshotConfig = Field(default_factory=SnapshotConfig, description="The snapshots it makes.")
    also: list[TagPattern] = Field(
        default_factory=list,
        description="Snapshots that zvault did not make and that are sent too, by their names after `@`. They are "
        "never pruned, on neither side.",
        examples=[["manual-*"], ["*"]],
    )
    backlog: Literal["all", "newest"] = Field(
        default="all",
        description="What is sent of several snapshots that the vault lacks.",
        examples=["newest"],
    )
    on_conflict: Literal["stop", "rollback", "new-dataset"] = Field(
        default="stop",
        description="What to do when a dataset on the vault was changed, so that it cannot follow its source. "
        '"stop" leaves both as they are and tells. "rollback" gives up what came after the base on the vault. '
        '"new-dataset" renames it and sends in full beside it.',
        examples=["new-dataset"],
    )
    limit: Limited = Field(
        default_factory=Limit,
        description="How many bytes a second all streams of a run may send together; or windows, of which the first "
        "that covers the moment counts.",
        examples=["80M", [{"rate": "20M", "start": "08:00", "end": "18:00", "days": "mon-fri"}]],
    )
    retries: int = Field(
        default=3,
        ge=0,
        le=100,
        description="How often a run tries again what failed and may go better: a lost link, a device that went "
        "away, a stalled stream. Each try resumes where the last one stopped.",
        examples=[10],
    )
    retry_wait: Duration = Field(
        default=written("30s"),
        description="How long to wait before the first such try; each further one waits twice as long, "
        "up to an hour.",
        examples=["1m"],
    )
    hooks: Hooks = Field(
        default_factory=Hooks,
        description="Programs to run before a run begins, when its vault may be down yet, and after it has ended.",
    )
    keep: Keep = Field(default_factory=Keep, description="What is kept on either side.")
    prune_limit: Share = Field(
        default=written("50%"),
        description="The most of zvault's snapshots of one dataset that one run may prune on one side; three may "
        "always go. Where `keep` dooms more, the run prunes nothing of that dataset on that side and says so; "
        "`zvaultctl prune --over-limit` shows it, and lets it go. `100%` sets no limit.",
        examples=["50%", "100%"],
    )
    send: Send = Field(default_factory=Send, description="How datasets are sent.")
    max_lag: Duration | None = Field(
        default=None,
        description="How far the vault may lag before the backup counts as late, in `zvaultctl status`, "
        "its exit status and the metrics.",
        examples=["3h"],
    )

    @field_validator("exclude")
    @classmethod
    def _patterns_can_match(cls, exclude: list[str], info: ValidationInfo) -> list[str]:
        source: Source | None = info.data.get("source")
        for pattern in exclude:
            if source is not None and not _reaches(pattern, source.dataset):
                raise ValueError(
                    f"{quote(pattern)} names nothing below the source {quote(source.dataset)}; "
                    f"patterns are full names, as in {quote(source.dataset + '/scratch/**')}"
                )
        return exclude

    @field_validator("every")
    @classmethod
    def _one_schedule(cls, every: object, info: ValidationInfo) -> object:
        if every is not None and info.data.get("schedule") is not None:
            raise ValueError("stands beside schedule: use one of them")
        return every

    @field_validator("max_lag")
    @classmethod
    def _some_lag(cls, max_lag: float | None) -> float | None:
        if max_lag is not None and max_lag <= 0:
            raise ValueError("must be more than 0s: a backup always lags a little; leave it out for no limit")
        return max_lag


def _reaches(pattern: str, source: str) -> bool:
    """Whether a pattern can match the source or anything below it, judged by the components they share."""
    parts, names = pattern.split("/"), source.split("/")
    for part, name in zip(parts, names, strict=False):
        if part == "**":
            return True
        if not fnmatchcase(name, part):
            return False
    return len(parts) >= len(names)


class Config(Table):
    """All of zvault.toml and conf.d."""

    daemon: Daemon = Field(default_factory=Daemon, description="The daemon itself.")
    host: dict[HostName, Host] = Field(default_factory=dict, description="Other hosts by name.")
    vault: dict[Word, Vault] = Field(default_factory=dict, description="The vaults by name.")
    backup: dict[Word, Backup] = Field(default_factory=dict, description="The backups by name.")
