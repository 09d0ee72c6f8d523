"""What every use case is given: the configuration, where files are, this host, the clock. Nothing else is global."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from tzlocal import get_localzone

from zvault.config.paths import Paths
from zvault.config.schema import Backup, Config, HostTable, Vault
from zvault.core.address import Address, Source
from zvault.core.errors import NotFound, SeveralVaults
from zvault.core.name_rules import expand_vault_dataset, make_vault_dataset
from zvault.core.names import DatasetName, split_snapshot
from zvault.ops.state.pool_book import describe_storage
from zvault.system.process.runner import ProcessRunner

_follows_names: ContextVar[bool] = ContextVar("follows_names", default=False)
"""Whether what goes on was begun under a name that its backup had then, and goes on under the one that it has now."""


class WallClock:
    """Wall time and monotonic time, in one place, so that tests can stop them.

    What a person reads, or what was written down, goes by wall time; whatever waits goes by monotonic time, which no
    one sets. Boot time is monotonic time that counts the host's sleep too.
    """

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that only grow, from no certain beginning on; they stand still while the host sleeps."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds that only grow, from no certain beginning on, also while the host sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> datetime:
        """Wall time as an aware UTC datetime."""
        return datetime.fromtimestamp(self.time(), UTC)


class _Way(NamedTuple):
    """A backup's way, and what it was made of."""

    backup: Backup
    vault: Vault
    host: str
    text: str

    def holds(self, backup: Backup, vault: Vault, host: str) -> bool:
        """True if it is that of these very tables."""
        return self.backup is backup and self.vault is vault and self.host == host


@dataclass
class Environment:
    """The surroundings of one daemon, or of one command without a daemon.

    ``host`` is this host's name, as ``{host}`` in ``into`` means it. Only a reload changes anything here: it replaces
    ``config`` and ``host`` (``reconfigure``). So whoever lives longer than one decision keeps the name of its backup or
    vault, not the table, and looks that up when it decides.
    """

    config: Config
    paths: Paths
    runner: ProcessRunner
    host: str
    clock: WallClock = field(default_factory=WallClock)
    _ways: dict[str, _Way] = field(default_factory=dict, repr=False)
    _renamed: dict[str, str] = field(default_factory=dict, repr=False)
    """By a name that a backup had since zvaultd started, the one that it got at a reload."""
    _heed_rename: list[Callable[[str, str], None]] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls, config: Config, paths: Paths, runner: ProcessRunner, clock: WallClock | None = None
    ) -> Environment:
        """That of this host; its time is that of ``clock``, or the host's."""
        return cls(config, paths, runner, _host_name(config), clock or WallClock())

    def reconfigure(self, config: Config) -> None:
        """Have a new configuration in force from now on."""
        self.config = config
        self.host = _host_name(config)

    def note_rename(self, before: str, name: str) -> None:
        """Have it known that a backup has another name from now on (daemon/renamed_backups.py)."""
        # What was begun two names ago goes on as well: a run may see several reloads.
        self._renamed |= {old: name for old, now in self._renamed.items() if now == before}
        self._renamed[before] = name
        for heed in self._heed_rename:
            heed(before, name)

    def heed_renames(self, heed: Callable[[str, str], None]) -> None:
        """Have ``heed`` told of each backup that gets another name: the one before, and the new one. It lives as long
        as this.
        """
        self._heed_rename.append(heed)

    def current_name(self, name: str) -> str:
        """Return the name that a backup has now which had this one when something was begun for it."""
        return name if name in self.config.backup else self._renamed.get(name, name)

    @contextmanager
    def follow_names(self) -> Iterator[None]:
        """Have ``backup`` find the backups of this task, and of those that it begins, under a new name as well.

        A run lasts for hours: with a reload in which ``home`` became ``home@cold`` it failed for want of ``home``.
        """
        before = _follows_names.set(True)
        try:
            yield
        finally:
            _follows_names.reset(before)

    def backup(self, name: str) -> Backup:
        """A backup's table in the configuration in force. Raises NotFound; SeveralVaults for one with several."""
        name = self.current_name(name) if _follows_names.get() else name
        if name not in self.config.backup and (parts := self.config.list_names_of(name)):
            raise SeveralVaults(
                f"backup '{name}' has several vaults",
                f"each is a backup of its own: {', '.join(parts)}",
                f"name one of them, as in '{parts[0]}'",
            )
        return _named(self.config.backup, "backup", name, self.config)

    def list_backups_of(self, name: str) -> list[Backup]:
        """The backup of a name, or those of a table's vaults where it has several. Raises NotFound."""
        names = self.config.list_names_of(name)
        return [self.backup(one) for one in names or (name,)]

    def vault(self, name: str) -> Vault:
        """A vault's table in the configuration in force. Raises NotFound."""
        return _named(self.config.vault, "vault", name, self.config)

    def min_age_of(self, source: Source) -> float:
        """The ``min_age`` of the vault of this host whose pool a source lies in, in seconds; 0 where it is none's."""
        if source.host is not None:
            return 0.0
        pool = source.dataset.pool
        vaults = (one for one in self.config.vault.values() if one.pool == pool and one.host is None)
        return max((one.min_age for one in vaults), default=0.0)

    def host_config(self, address: Address) -> HostTable:
        """A host's table in the configuration, or what holds without one."""
        return self.config.host.get(address.host) or HostTable()

    def target_of(self, backup: Backup, dataset: str) -> DatasetName:
        """Return the place on the vault of a source dataset: nowhere else, where its backup makes snapshots only.

        Raises ValueError where that is no name of a dataset.
        """
        if backup.vault is None:
            return DatasetName(dataset)
        return make_vault_dataset(*self._into(backup), DatasetName(dataset), backup.source.dataset)

    def wanted_target_of(self, backup: Backup, dataset: str) -> DatasetName:
        """The same, also where that name would be too long for ZFS."""
        if backup.vault is None:
            return DatasetName(dataset)
        return expand_vault_dataset(*self._into(backup), DatasetName(dataset), backup.source.dataset)

    def counterpart_of(self, backup: Backup, dataset: str) -> DatasetName | None:
        """The same for any name that somebody gives; None where that is not the source's nor of anything below it."""
        name = DatasetName(dataset)
        return self.wanted_target_of(backup, name) if name.is_within(backup.source.dataset) else None

    def _into(self, backup: Backup) -> tuple[str, str, str]:
        host = backup.source.host.host if backup.source.host else self.host
        return backup.into, self.vault(backup.its_vault).pool, host

    def way(self, backup: Backup) -> str:
        """Say in one line what a backup takes and where it puts it.

        What was learned of a backup (its lag, its last success) was true of what it was configured to be then. Once
        this differs, it is true no more.
        """
        if backup.vault is None:
            return f"{backup.source}, only snapshots named {backup.snapshot.prefix}"
        vault = self.vault(backup.vault)
        known = self._ways.get(backup.name)
        if known is None or not known.holds(backup, vault, self.host):
            # Asked some dozen times in each look at what zvaultd knows; tables never change after they were read.
            place = f"{vault.pool} {describe_storage(vault)}".strip()
            target = self.target_of(backup, backup.source.dataset)
            text = f"{backup.source} to {target} of {vault.name} ({place})"
            known = self._ways[backup.name] = _Way(backup, vault, self.host, text)
        return known.text

    @property
    def zone(self) -> tzinfo:
        """The time zone that calendar rules use."""
        if self.config.daemon.timezone:
            return ZoneInfo(self.config.daemon.timezone)
        return get_localzone()


def _host_name(config: Config) -> str:
    return config.daemon.host or socket.gethostname()


Entry = TypeVar("Entry", Backup, Vault)


def _named(table: dict[str, Entry], kind: str, name: str, config: Config) -> Entry:
    if name in table:
        return table[name]
    known = f"known: {', '.join(sorted(table)) or 'none is configured'}"
    meant = _say_what_is_named(table, name, config)
    why = f"{meant}; {known}" if meant else known
    raise NotFound(f"there is no {kind} '{name}'", why, f"check [{kind}.…] in zvault.toml")


def _say_what_is_named(table: dict[str, Entry], name: str, config: Config) -> str:
    """What a name is that is none of the table: of another kind, a dataset, or a slip; "" if nothing is known."""
    if name in config.vault:
        return f"'{name}' is a vault"
    if config.list_names_of(name) or name in config.backup:
        return f"'{name}' is a backup"
    dataset, _ = split_snapshot(name)
    takers = [
        one.name
        for one in config.backup.values()
        if dataset.is_within(one.source.dataset) and one.source.host is None
    ]
    if takers and "/" in name:
        return f"'{dataset}' is a dataset, which is in the source of {', '.join(sorted(takers))}"
    near = get_close_matches(name, table, n=1)
    return f"'{near[0]}' is the nearest" if near else ""
