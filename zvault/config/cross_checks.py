"""What no single table can tell: whether vaults and backups fit each other. Pure; names in, findings out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, islice, product

from zvault.config.device_specs import secrets
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.blockstore_settings import MIN_JOURNAL, nested
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.fields import nearest, quote
from zvault.config.problems import Finding
from zvault.config.profile import Profile
from zvault.config.schema import Backup, Notify, Vault
from zvault.core.address import Address
from zvault.core.name_rules import excluded, reaches, vault_dataset
from zvault.core.names import DatasetName
from zvault.core.pattern_overlap import common_names
from zvault.core.policy.timeouts import DEADMEN, deadman, fitted, longest
from zvault.core.units import format_duration, format_size

PERIODS = {"hourly": 3600, "daily": 86400, "weekly": 7 * 86400, "monthly": 30 * 86400, "yearly": 365 * 86400}
"""Seconds of each rule of a past."""
ENOUGH = 64
"""Names that two backups' patterns share that are looked at, whether they are excluded."""

Pair = tuple[tuple[str, Backup], tuple[str, Backup]]

# What may stand below a dataset; no pattern but a wildcard matches these.
_PROBES = ("", "/zvault-probe", "/zvault-probe/zvault-probe")


def unknown_vaults(named: Mapping[str, str], vaults: Collection[str]) -> Iterator[Finding]:
    """Backups (by name, with the vault each names) whose vault is not configured."""
    for backup, vault in named.items():
        if vault in vaults:
            continue
        known = ", ".join(sorted(vaults))
        hint = nearest(vault, sorted(vaults)) or (
            f"; there are: {known}" if known else "; none is configured"
        )
        yield Finding(("backup", backup, "vault"), f"no vault is called {quote(vault)}{hint}")


def unknown_backups(asked: Mapping[str, object], backups: Collection[str]) -> Iterator[Finding]:
    """Notifications (by name, with the backups each names) about backups that are not configured."""
    for name, named in asked.items():
        for index, backup in enumerate(named if isinstance(named, list) else ()):
            if isinstance(backup, str) and backup not in backups:
                hint = nearest(backup, sorted(backups))
                yield Finding(
                    ("notify", name, "backups", index), f"no backup is called {quote(backup)}{hint}"
                )


def plain_notifications(notify: Mapping[str, Notify]) -> Iterator[Finding]:
    """Notifications that go over the network without encryption."""
    for name, table in notify.items():
        if any(one.kept == "here" and secrets.plain_endpoints([one.text]) for one in table.urls()):
            yield Finding(
                ("notify", name, table.way),
                "the URL is not encrypted: whoever is on the way there reads what is told, and the URL; use https://",
            )


def shared_pools(pools: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    """Vaults (by name, with host and pool of each) that have their pool in common with an earlier one."""
    first: dict[tuple[str, str], str] = {}
    for vault, pool in pools.items():
        if pool in first:
            yield Finding(
                ("vault", vault, "pool"),
                f"the pool {quote(pool[1])} is that of vault {quote(first[pool])} too",
            )
        first.setdefault(pool, vault)


def plain_endpoints(vaults: Mapping[str, Vault]) -> Iterator[Finding]:
    """Devices whose object store is spoken to without encryption."""
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            spec = device.nbd
            words = (
                spec.settings
                if isinstance(spec, (BlockstoreServer, S3backerServer))
                else (spec.params if isinstance(spec, NbdkitServer) else ())
            )
            for url in secrets.plain_endpoints(words):
                yield Finding(
                    ("vault", vault, "device", index, "nbd"),
                    f"{url} is not encrypted: whoever is on the way there reads what is written, and can change it;"
                    " use https://",
                )


def shared_devices(vaults: Mapping[str, Vault]) -> Iterator[Finding]:
    """Devices that stand in the configuration twice: a pool on one device twice is a pool destroyed."""
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            known = first.setdefault(device.identity, (vault, index))
            if known != (vault, index):
                key = device.layers[0]
                yield Finding(
                    ("vault", vault, "device", index, key),
                    f"the same as vault.{known[0]}.device[{known[1]}].{key}",
                )


def shared_folders(vaults: Mapping[str, Vault]) -> Iterator[Finding]:
    """Block stores whose journal or cache is in another's, or around it: each empties its own by its own rules."""
    known: list[tuple[str, str]] = []
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            if not isinstance(device.nbd, BlockstoreServer):
                continue
            place = f"vault.{vault}.device[{index}].nbd"
            for name, folder in device.nbd.folders.items():
                for other, whose in known:
                    if nested(folder, other):
                        yield Finding(
                            ("vault", vault, "device", index, "nbd"),
                            f"{name}={folder} is shared with {whose}: give each a folder of its own",
                        )
                        break
            known += [(folder, f"{name}= of {place}") for name, folder in device.nbd.folders.items()]


def long_flushes(vaults: Mapping[str, Vault]) -> Iterator[Finding]:
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
            yield Finding(
                ("vault", vault, "device", index, "nbd"),
                f"a flush may have {format_size(store.journal_size)} to put into the bucket, which takes"
                f" {format_duration(store.journal_size / pace)} with upload={store.setting('upload')}, and after"
                f" {format_duration(device.timeout)} the device counts as dead: {smaller}mode=writeback, or a longer"
                " timeout",
            )


def short_locks(vaults: Mapping[str, Vault]) -> Iterator[Finding]:
    """Block stores whose past reaches back for longer than it is locked."""
    for vault, table in vaults.items():
        for index, device in enumerate(table.device):
            store = device.nbd
            if not isinstance(store, BlockstoreServer) or store.lock is None or store.history is None:
                continue
            reach = max((getattr(store.history, rule) * long for rule, long in PERIODS.items()), default=0)
            if reach <= store.lock.seconds:
                continue
            locked, back = format_duration(store.lock.seconds), format_duration(reach)
            yield Finding(
                ("vault", vault, "device", index, "nbd"),
                f"its past reaches back {back}, and is locked for {locked}: whoever gets the keys that write can remove"
                f" all of it {locked} later, so an attack has to be seen sooner, or lock= be longer",
            )


def late_timeouts(
    vaults: Mapping[str, Vault], profiles: Mapping[str, Profile]
) -> Iterator[tuple[Finding, bool]]:
    """Devices that give a request up only after OpenZFS's deadman has looked, and whether that is certain.

    It is where the vault's profile sets the deadman; else the host may have another than OpenZFS's own.
    """
    for vault, table in vaults.items():
        module = profiles[table.profile].module if table.profile in profiles else {}
        bound, parameter = deadman(module)
        certain = any(name in module for name in DEADMEN)
        for index, device in enumerate(table.device):
            right = fitted(device.timeout, device.tries, bound)
            if right == device.timeout:
                continue
            several = f", on {device.tries} connections one after the other" if device.tries > 1 else ""
            whose = f"in profile {quote(table.profile)}" if certain else "unless this host has another"
            yield (
                Finding(
                    ("vault", vault, "device", index, "timeout"),
                    f"a request may take {format_duration(longest(device.timeout, device.tries))}{several}, and"
                    f" OpenZFS's deadman looks after {format_duration(bound)} ({parameter}, {whose}):"
                    f' make it "{right:g}s" or less',
                ),
                certain,
            )


def overlaps(backups: Mapping[str, Backup], vaults: Mapping[str, Vault], host: str) -> Iterator[Finding]:
    """Backups that would write to the same place, into their own source, or prune each other's snapshots."""
    roots: dict[str, DatasetName] = {}
    for name, backup in backups.items():
        if backup.vault is None or backup.vault not in vaults:
            continue
        try:
            roots[name] = _target(backup, vaults[backup.vault], host, backup.source.dataset)
        except ValueError as error:
            yield Finding(("backup", name, "into"), str(error))
            continue
        same_host = _host(backup.source.host) == _host(vaults[backup.vault].host)
        if same_host and (finding := _into_itself(name, backup, roots[name])):
            yield finding
    for pair in combinations(backups.items(), 2):
        (one, a), (other, b) = pair
        found = [_rival_rules(pair)]
        if one in roots and other in roots and a.vault is not None and a.vault == b.vault:
            found.append(_same_target(pair, vaults[a.vault], host) or _same_base(pair))
        yield from filter(None, found)


def _target(backup: Backup, vault: Vault, host: str, dataset: DatasetName) -> DatasetName:
    return vault_dataset(
        backup.into, vault.pool, _host(backup.source.host) or host, dataset, backup.source.dataset
    )


def _host(address: Address | None) -> str:
    return address.host if address is not None else ""


def _covers(backup: Backup, dataset: DatasetName) -> bool:
    """Whether a backup takes a dataset of its source's host, or anything that may be below it."""
    if not dataset.is_within(backup.source.dataset):
        return False
    if backup.include and not any(reaches(pattern, dataset) for pattern in backup.include):
        return False
    return any(excluded(dataset + probe, backup.exclude) is None for probe in _PROBES)


def _into_itself(name: str, backup: Backup, root: DatasetName) -> Finding | None:
    path = ("backup", name, "into")
    if _covers(backup, root):
        fix = f"use a vault on another pool, or exclude {quote(root)} and {quote(root + '/**')}"
        return Finding(path, f"the vault's dataset {quote(root)} lies within the source: {fix}")
    if backup.source.dataset.is_below(root):
        return Finding(
            path, f"the source {quote(backup.source.dataset)} lies within the vault's dataset {quote(root)}"
        )
    return None


def _same_target(pair: Pair, vault: Vault, host: str) -> Finding | None:
    """Whether one backup's root on the vault is a dataset that the other writes too."""
    for (one, a), (other, b) in (pair, pair[::-1]):
        root = _target(b, vault, host, b.source.dataset)
        start = _target(a, vault, host, a.source.dataset)
        if not root.is_within(start):
            continue
        # A dataset's place ends with its way from the source (check_into): what lies below one lies below the other.
        dataset = root.moved(start, a.source.dataset)
        if _covers(a, dataset):
            fix = "give one of them another into"
            if dataset != a.source.dataset:
                fix += f", or exclude {quote(dataset)} and {quote(dataset + '/**')} in {one}"
            return Finding(
                ("backup", pair[1][0], "into"),
                f"backups {one} and {other} would both write {quote(root)}: {fix}",
            )
    return None


def _same_base(pair: Pair) -> Finding | None:
    """Whether both take a dataset into one vault: its holds and bookmarks there are one dataset's, for one base."""
    (one, a), (other, b) = pair
    dataset = _shared(a, b)
    if dataset is None:
        return None
    return Finding(
        ("backup", other, "vault"),
        f"backups {one} and {other} both take {quote(dataset)} into vault {a.vault}, and zvault protects one base of a "
        "dataset for each vault, so each would release that of the other: make one of them exclude what the other "
        "takes, or use another vault",
    )


def _shared(a: Backup, b: Backup) -> DatasetName | None:
    """The topmost dataset that two backups take, or may take something below; None where they share nothing."""
    if _host(a.source.host) != _host(b.source.host):
        return None
    low, high = sorted((a.source.dataset, b.source.dataset), key=lambda name: len(name.parts), reverse=True)
    if not low.is_within(high):
        return None
    both = (*a.exclude, *b.exclude)
    if not a.include and not b.include:
        return low if any(excluded(low + probe, both) is None for probe in _PROBES) else None
    whole = [low, f"{low}/**"]
    for patterns in product(a.include or whole, b.include or whole, whole):
        if any(excluded(name, both) is None for name in islice(common_names(patterns), ENOUGH)):
            return next((DatasetName(one) for one in patterns if not set(one) & set("*?")), low)
    return None


def _rival_names(pair: Pair) -> Finding | None:
    """Whether one backup would take the other's snapshots for its own, though their prefixes differ."""
    (name, one), (later, other) = pair
    for a, b in ((one, other), (other, one)):
        if (taken := a.snapshot.names.takes_for_its_own(b.snapshot.names)) is not None:
            return Finding(
                ("backup", later, "snapshot", "prefix"),
                f"a name as {quote(taken)} may be of this backup or of backup {name}, and either would prune it: "
                "give them prefixes of which none is the beginning of the other",
            )
    return None


def _rival_rules(pair: Pair) -> Finding | None:
    (_, one), (_, other) = pair
    shared = _covers(one, other.source.dataset) or _covers(other, one.source.dataset)
    if one.include or other.include:
        shared = shared and _shared(one, other) is not None
    if not shared or _host(one.source.host) != _host(other.source.host):
        return None
    return _same_prefix(pair) if one.snapshot.prefix == other.snapshot.prefix else _rival_names(pair)


def _same_prefix(pair: Pair) -> Finding | None:
    """Two backups that make snapshots of the same datasets, and prune each other's."""
    (name, one), (later, other) = pair
    if one.snapshot.names != other.snapshot.names:
        return Finding(
            ("backup", later, "snapshot", "form"),
            f"backup {name} names snapshots of the same datasets by the same prefix in another form: "
            "give both the same form, timezone and former, or each a snapshot.prefix of its own",
        )
    if one.select != other.select:
        return Finding(
            ("backup", later, "select"),
            f"backup {name} makes snapshots of datasets that this one may take as well, selected otherwise: "
            "give each a snapshot.prefix of its own, so that neither keeps what the other has not sent",
        )
    if one.snapshot.skip_unchanged != other.snapshot.skip_unchanged:
        return Finding(
            ("backup", later, "snapshot", "skip_unchanged"),
            f"backup {name} makes snapshots of the same datasets, and prunes them, by another skip_unchanged: "
            "give both the same, or each a snapshot.prefix of its own",
        )
    if one.keep.source == other.keep.source:
        return None
    return Finding(
        ("backup", later, "keep", "source"),
        f"backup {name} makes and prunes snapshots of the same datasets by other rules: "
        "give both the same keep.source, or each a snapshot.prefix of its own",
    )
