"""What no single table can tell: whether vaults and backups fit each other. Pure; names in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from zvault.config.device_specs import secret_words
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.blockstore_settings import MIN_JOURNAL, is_nested
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.fields import quote_text, suggest_nearest
from zvault.config.problems import ConfigFinding
from zvault.config.profile import VaultProfile
from zvault.config.schema import Backup, Notify, Vault
from zvault.config.tables.notify import HIDDEN_BACKUP
from zvault.core.policy.timeouts import DEADMAN_DEFAULTS, compute_longest_request, find_deadman, fit_timeout
from zvault.core.units import format_duration, format_size

PERIOD_SECONDS = {
    "hourly": 3600,
    "daily": 86400,
    "weekly": 7 * 86400,
    "monthly": 30 * 86400,
    "yearly": 365 * 86400,
}
"""Seconds of each rule of a past."""


def find_unknown_vaults(named: Mapping[str, str], vaults: Collection[str]) -> Iterator[ConfigFinding]:
    """Backups (by name, with the vault each names) whose vault is not configured."""
    for backup, vault in named.items():
        if vault in vaults:
            continue
        known = ", ".join(sorted(vaults))
        hint = suggest_nearest(vault, sorted(vaults)) or (
            f"; there are: {known}" if known else "; none is configured"
        )
        yield ConfigFinding(("backup", backup, "vault"), f"no vault is called {quote_text(vault)}{hint}")


def find_unknown_backups(asked: Mapping[str, object], backups: Collection[str]) -> Iterator[ConfigFinding]:
    """Notifications (by name, with the backups each names) about backups that are not configured."""
    for name, named in asked.items():
        for index, backup in enumerate(named if isinstance(named, list) else ()):
            if isinstance(backup, str) and backup not in backups:
                hint = suggest_nearest(backup, sorted(backups))
                yield ConfigFinding(
                    ("notify", name, "backups", index), f"no backup is called {quote_text(backup)}{hint}"
                )


def find_hiding_switches(notify: Mapping[str, Notify]) -> Iterator[ConfigFinding]:
    """Dead-man's switches for a backup that has several vaults, and so is several backups."""
    for name, table in notify.items():
        if table.hides_backups(table.backups):
            yield ConfigFinding(("notify", name, "backups"), f"{HIDDEN_BACKUP}: {', '.join(table.backups)}")


def find_plain_notifications(notify: Mapping[str, Notify]) -> Iterator[ConfigFinding]:
    """Notifications that go over the network without encryption."""
    for name, table in notify.items():
        if any(one.kept == "here" and secret_words.list_plain_endpoints([one.text]) for one in table.urls()):
            yield ConfigFinding(
                ("notify", name, table.way),
                "the URL is not encrypted: whoever is on the way there reads what is told, and the URL; use https://",
            )


def find_shared_pools(pools: Mapping[str, tuple[str, str]]) -> Iterator[ConfigFinding]:
    """Vaults (by name, with host and pool of each) that have their pool in common with an earlier one."""
    first: dict[tuple[str, str], str] = {}
    for vault, pool in pools.items():
        if pool in first:
            yield ConfigFinding(
                ("vault", vault, "pool"),
                f"the pool {quote_text(pool[1])} is that of vault {quote_text(first[pool])} too",
            )
        first.setdefault(pool, vault)


def find_hosts_before_colons(backups: Mapping[str, Backup]) -> Iterator[ConfigFinding]:
    """Sources as other tools write those of another host, ``host:pool/data``: here that is a pool's name."""
    for name, table in backups.items():
        source = table.source
        host, colon, _ = source.pool.partition(":")
        if source.host is None and colon and not source.parts:
            path = source.dataset.removeprefix(f"{host}:")
            yield ConfigFinding(
                ("backup", name, "source"),
                f'is a pool "{source.pool}" of this host; if {host} is a host, write "ssh://{host}/{path}"',
            )


def find_plain_endpoints(vaults: Mapping[str, Vault]) -> Iterator[ConfigFinding]:
    """Devices whose object store is spoken to without encryption."""
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            spec = device.nbd
            words = (
                spec.settings
                if isinstance(spec, (BlockstoreServer, S3backerServer))
                else (spec.params if isinstance(spec, NbdkitServer) else ())
            )
            for url in secret_words.list_plain_endpoints(words):
                yield ConfigFinding(
                    ("vault", vault, "device", index, "nbd"),
                    f"{url} is not encrypted: whoever is on the way there reads what is written, and can change it;"
                    " use https://",
                )


def find_shared_devices(vaults: Mapping[str, Vault]) -> Iterator[ConfigFinding]:
    """Devices that stand in the configuration twice: a pool on one device twice is a pool destroyed."""
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            known = first.setdefault(device.identity, (vault, index))
            if known != (vault, index):
                key = device.layers[0]
                yield ConfigFinding(
                    ("vault", vault, "device", index, key),
                    f"the same as vault.{known[0]}.device[{known[1]}].{key}",
                )


def find_shared_folders(vaults: Mapping[str, Vault]) -> Iterator[ConfigFinding]:
    """Block stores whose journal or cache is in another's, or around it: each empties its own by its own rules."""
    known: list[tuple[str, str]] = []
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            if not isinstance(device.nbd, BlockstoreServer):
                continue
            place = f"vault.{vault}.device[{index}].nbd"
            for name, folder in device.nbd.folders.items():
                for other, whose in known:
                    if is_nested(folder, other):
                        yield ConfigFinding(
                            ("vault", vault, "device", index, "nbd"),
                            f"{name}={folder} is shared with {whose}: give each a folder of its own",
                        )
                        break
            known += [(folder, f"{name}= of {place}") for name, folder in device.nbd.folders.items()]


def find_long_flushes(vaults: Mapping[str, Vault]) -> Iterator[ConfigFinding]:
    """Block stores whose flush, at the pace they are held to, may take longer than their device waits for an answer.

    In strict mode a flush is answered once all that is in the journal is in the bucket.
    """
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            store = device.nbd
            if not isinstance(store, BlockstoreServer) or store.mode != "strict":
                continue
            pace = store.bandwidth("upload")
            if pace is None or store.journal_size <= pace * device.timeout:
                continue
            fitting = format_size(int(pace * device.timeout) >> 20 << 20)
            smaller = f"journal-size={fitting}, or " if pace * device.timeout >= MIN_JOURNAL else ""
            yield ConfigFinding(
                ("vault", vault, "device", index, "nbd"),
                f"a flush may have {format_size(store.journal_size)} to put into the bucket, which takes"
                f" {format_duration(store.journal_size / pace)} with upload={store.setting('upload')}, and after"
                f" {format_duration(device.timeout)} the device counts as dead: {smaller}mode=writeback, or a longer"
                " timeout",
            )


def find_short_locks(vaults: Mapping[str, Vault]) -> Iterator[ConfigFinding]:
    """Block stores whose past reaches back for longer than it is locked."""
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            store = device.nbd
            if not isinstance(store, BlockstoreServer) or store.lock is None or store.history is None:
                continue
            reach = max(
                (getattr(store.history, rule) * long for rule, long in PERIOD_SECONDS.items()), default=0
            )
            if reach <= store.lock.seconds:
                continue
            locked, back = format_duration(store.lock.seconds), format_duration(reach)
            yield ConfigFinding(
                ("vault", vault, "device", index, "nbd"),
                f"its past reaches back {back}, and is locked for {locked}: whoever gets the keys that write can remove"
                f" all of it {locked} later, so an attack has to be seen sooner, or lock= be longer",
            )


def find_late_timeouts(
    vaults: Mapping[str, Vault], profiles: Mapping[str, VaultProfile]
) -> Iterator[tuple[ConfigFinding, bool]]:
    """Devices that give a request up only after OpenZFS's deadman has looked, and whether that is certain.

    It is where the vault's profile sets the deadman; else the host may have another than OpenZFS's own.
    """
    for vault, table in vaults.items():
        module = profiles[table.profile].module if table.profile in profiles else {}
        bound, parameter = find_deadman(module)
        certain = any(name in module for name in DEADMAN_DEFAULTS)
        for index, device in enumerate(table.device):
            right = fit_timeout(device.timeout, device.tries, bound)
            if right == device.timeout:
                continue
            several = f", on {device.tries} connections one after the other" if device.tries > 1 else ""
            whose = f"in profile {quote_text(table.profile)}" if certain else "unless this host has another"
            yield (
                ConfigFinding(
                    ("vault", vault, "device", index, "timeout"),
                    "a request may take "
                    f"{format_duration(compute_longest_request(device.timeout, device.tries))}{several}, and"
                    f" OpenZFS's deadman looks after {format_duration(bound)} ({parameter}, {whose}):"
                    f' make it "{right:g}s" or less',
                ),
                certain,
            )
