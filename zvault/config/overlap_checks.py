"""Whether backups are in each other's way: sources, targets, names and rules that overlap. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, islice, product

from zvault.config.fields import quote_text
from zvault.config.problems import ConfigFinding
from zvault.config.schema import Backup, Vault
from zvault.core.address import Address
from zvault.core.name_rules import can_reach, find_exclusion, make_vault_dataset
from zvault.core.names import DatasetName
from zvault.core.pattern_overlap import find_common_names

BackupPair = tuple[tuple[str, Backup], tuple[str, Backup]]
MOST_SHARED_NAMES = 64
"""Names that two backups' patterns share that are looked at, whether they are excluded."""
# What may stand below a dataset; no pattern but a wildcard matches these.
_PROBES = ("", "/zvault-probe", "/zvault-probe/zvault-probe")


def find_overlaps(
    backups: Mapping[str, Backup], vaults: Mapping[str, Vault], host: str
) -> Iterator[ConfigFinding]:
    """Backups that would write to the same place, into their own source, or prune each other's snapshots."""
    roots: dict[str, DatasetName] = {}
    for name, backup in backups.items():
        if backup.vault is None or backup.vault not in vaults:
            continue
        try:
            roots[name] = _target(backup, vaults[backup.vault], host, backup.source.dataset)
        except ValueError as error:
            yield ConfigFinding(("backup", name, "into"), str(error))
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
    return make_vault_dataset(
        backup.into, vault.pool, _host(backup.source.host) or host, dataset, backup.source.dataset
    )


def _host(address: Address | None) -> str:
    return address.host if address is not None else ""


def _covers(backup: Backup, dataset: DatasetName) -> bool:
    """True if a backup takes a dataset of its source's host, or anything that may be below it."""
    if not dataset.is_within(backup.source.dataset):
        return False
    if backup.include and not any(can_reach(pattern, dataset) for pattern in backup.include):
        return False
    return any(find_exclusion(dataset + probe, backup.exclude) is None for probe in _PROBES)


def _into_itself(name: str, backup: Backup, root: DatasetName) -> ConfigFinding | None:
    path = ("backup", name, "into")
    if _covers(backup, root):
        fix = f"use a vault on another pool, or exclude {quote_text(root)} and {quote_text(root + '/**')}"
        return ConfigFinding(path, f"the vault's dataset {quote_text(root)} lies within the source: {fix}")
    if backup.source.dataset.is_below(root):
        return ConfigFinding(
            path,
            f"the source {quote_text(backup.source.dataset)} lies within the vault's dataset {quote_text(root)}",
        )
    return None


def _same_target(pair: BackupPair, vault: Vault, host: str) -> ConfigFinding | None:
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
                fix += f", or exclude {quote_text(dataset)} and {quote_text(dataset + '/**')} in {one}"
            return ConfigFinding(
                ("backup", pair[1][0], "into"),
                f"backups {one} and {other} would both write {quote_text(root)}: {fix}",
            )
    return None


def _same_base(pair: BackupPair) -> ConfigFinding | None:
    """Whether both take a dataset into one vault: its holds and bookmarks there are one dataset's, for one base."""
    (one, a), (other, b) = pair
    dataset = _shared(a, b)
    if dataset is None:
        return None
    return ConfigFinding(
        ("backup", other, "vault"),
        f"backups {one} and {other} both take {quote_text(dataset)} into vault {a.vault}, and zvault "
        "protects one base of a "
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
        return low if any(find_exclusion(low + probe, both) is None for probe in _PROBES) else None
    whole = [low, f"{low}/**"]
    for patterns in product(a.include or whole, b.include or whole, whole):
        if any(
            find_exclusion(name, both) is None
            for name in islice(find_common_names(patterns), MOST_SHARED_NAMES)
        ):
            return next((DatasetName(one) for one in patterns if not set(one) & set("*?")), low)
    return None


def _rival_names(pair: BackupPair) -> ConfigFinding | None:
    """Whether one backup would take the other's snapshots for its own, though their prefixes differ."""
    (name, one), (later, other) = pair
    for a, b in ((one, other), (other, one)):
        if (taken := a.snapshot.names.takes_for_its_own(b.snapshot.names)) is not None:
            return ConfigFinding(
                ("backup", later, "snapshot", "prefix"),
                f"a name as {quote_text(taken)} may be of this backup or of backup {name}, and either would prune it: "
                "give them prefixes of which none is the beginning of the other",
            )
    return None


def _rival_rules(pair: BackupPair) -> ConfigFinding | None:
    (_, one), (_, other) = pair
    shared = _shared(one, other)
    if shared is None:
        return None
    return _same_prefix(pair, shared) if one.snapshot.prefix == other.snapshot.prefix else _rival_names(pair)


def _same_prefix(pair: BackupPair, shared: DatasetName) -> ConfigFinding | None:
    """Two backups that make snapshots of the same datasets, ``shared`` among them, and prune each other's."""
    (name, one), (later, other) = pair
    named = f"backup {name}, of {quote_text(shared)} too,"
    if one.snapshot.names != other.snapshot.names:
        return ConfigFinding(
            ("backup", later, "snapshot", "form"),
            f"{named} names snapshots of the same datasets by the same prefix in another form: "
            "give both the same form, timezone and former, or each a snapshot.prefix of its own",
        )
    if one.select != other.select:
        return ConfigFinding(
            ("backup", later, "select"),
            f"{named} makes snapshots of datasets that this one may take as well, selected otherwise: "
            "give each a snapshot.prefix of its own, so that neither keeps what the other has not sent",
        )
    if one.snapshot.skip_unchanged != other.snapshot.skip_unchanged:
        return ConfigFinding(
            ("backup", later, "snapshot", "skip_unchanged"),
            f"{named} makes snapshots of the same datasets, and prunes them, by another skip_unchanged: "
            "give both the same, or each a snapshot.prefix of its own",
        )
    if one.keep.source == other.keep.source:
        return None
    return ConfigFinding(
        ("backup", later, "keep", "source"),
        f"{named} makes and prunes snapshots of the same datasets by other rules: "
        "give both the same keep.source, or each a snapshot.prefix of its own",
    )
