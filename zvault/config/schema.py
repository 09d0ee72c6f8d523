"""The configuration as a checked, immutable model. The reference is made from it: it is all there is."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from zvault.config.fields import (
    BackupNameField,
    ConfigTable,
    HostName,
    ListenField,
    SizeField,
    TimeZone,
    WordField,
)
from zvault.config.tables.backup import Backup
from zvault.config.tables.device import Device
from zvault.config.tables.notify import Notify
from zvault.config.tables.page import PageTable
from zvault.config.tables.snapshot import SnapshotConfig
from zvault.config.tables.transfer import Send
from zvault.config.tables.vault import Vault
from zvault.core.policy.sleep import InhibitEvent, InhibitMode

__all__ = [
    "Backup",
    "Config",
    "DaemonTable",
    "Device",
    "HostTable",
    "Notify",
    "PageTable",
    "Send",
    "SnapshotConfig",
    "Vault",
]


class DaemonTable(ConfigTable):
    """The daemon itself. The table may be left out."""

    metrics: ListenField | None = Field(
        default="127.0.0.1:9712",
        description='Where `/metrics` is served for Prometheus; "off" serves none.',
        examples=["[::]:9712", "off"],
    )
    metrics_datasets: int = Field(
        default=1000,
        ge=0,
        le=1_000_000,
        description="How many datasets of a backup have series of their own in `/metrics`. Those of one with more "
        'are taken together in one, with `dataset="*"`: the largest lag, age and base age, and the sum of what is '
        "pending.",
        examples=[100],
    )
    timezone: TimeZone | None = Field(
        default=None,
        description="The time zone of schedules and of the hours and days in `keep`; the host's if left out.",
        examples=["Europe/Vienna"],
    )
    host: HostName | None = Field(
        default=None,
        description="What `{host}` in `into` stands for; the host's name if left out. "
        "Where that changes, the next run renames the vault's datasets: they are found by their snapshots.",
        examples=["filer1"],
    )
    inhibit_sleep: InhibitMode = Field(
        default="block",
        description='What logind does about a sleep while a vault is written to. "block" refuses it, to root as well; '
        '"block-weak" refuses it to everybody but root; "delay" puts it off for some seconds, in which zvaultd stops '
        "its streams, resumably: see [sleep and shutdown](../explanation/sleep.md).",
        examples=["delay"],
    )
    inhibit_shutdown: InhibitMode = Field(
        default="delay",
        description='The same for a shutdown or reboot. With "block" and "block-weak" the power button does nothing, '
        'and with "block" a UPS cannot shut the host down, for as long as a run takes. Before systemd 257 "block" '
        'does what "block-weak" does.',
        examples=["block-weak"],
    )

    @property
    def inhibitor_modes(self) -> dict[InhibitEvent, InhibitMode]:
        """The mode of logind's lock for each event, while a vault is written to."""
        return {"sleep": self.inhibit_sleep, "shutdown": self.inhibit_shutdown}


class HostTable(ConfigTable):
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
    buffer: SizeField | None = Field(
        default=None,
        description="Memory of mbuffer on this host, for each stream; if left out, as the vault's profile says.",
        examples=["32M"],
    )


class Config(ConfigTable):
    """All of zvault.toml and conf.d."""

    daemon: DaemonTable = Field(default_factory=DaemonTable, description="The daemon itself.")
    page: PageTable = Field(default_factory=PageTable, description="The status page.")
    host: dict[HostName, HostTable] = Field(default_factory=dict, description="Other hosts by name.")
    vault: dict[WordField, Vault] = Field(default_factory=dict, description="The vaults by name.")
    backup: dict[BackupNameField, Backup] = Field(default_factory=dict, description="The backups by name.")
    notify: dict[WordField, Notify] = Field(
        default_factory=dict,
        description="Whom to tell of what is wrong, by name.",
    )

    @model_validator(mode="after")
    def _name_the_tables(self) -> Self:
        """Tell each table its name, and a backup how it is sent to an encrypted vault."""
        for name, vault in self.vault.items():
            vault.named(name)
        for name, backup in self.backup.items():
            into = self.vault.get(backup.vault or "")
            if into is not None and into.encryption is not None:
                self.backup[name] = backup.model_copy(update={"send": backup.send.to_encrypted()})
            self.backup[name].named(name)
        for table in {one.table_name for one in self.backup.values()} - self.backup.keys():
            parts = self.list_names_of(table)
            for part in parts:
                self.backup[part].joined(parts)
        for name, notify in self.notify.items():
            named = [part for one in notify.backups for part in self.list_names_of(one) or (one,)]
            if named != notify.backups:
                self.notify[name] = notify.model_copy(update={"backups": list(dict.fromkeys(named))})
            self.notify[name].named(name)
        return self

    def list_names_of(self, backup: str) -> tuple[str, ...]:
        """The names of the backups that a name means: the one of that name, or those of a table with several vaults."""
        if backup in self.backup:
            return (backup,)
        return tuple(name for name, one in self.backup.items() if one.table_name == backup)
