"""Properties of a source that its copy on a vault cannot have: limits of space, and whose key a dataset inherits.

A vault keeps them on record in a user property of each dataset, and a restore puts them back. Limits would fill or
block the vault, and a raw stream of a single dataset makes it an encryption root of its own. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from zvault.core.model import Dataset
from zvault.core.names import DatasetName

SOURCE_RECORD_PROPERTY = "org.zvault:source-properties"
"""User property of a vault's dataset: the record."""

SPACE_LIMITS = ("quota", "refquota", "reservation", "refreservation")

COUNT_LIMITS = ("filesystem_limit", "snapshot_limit")
"""Limits of how many there may be. On a vault they would stop its streams; a restore sets those that were set."""

REDACTED_PROPERTY = "redact_snaps"
"""What a dataset has that was received redacted: some of its blocks were left out, and are on no copy of it."""

RECORDED_PROPERTIES = (*SPACE_LIMITS, *COUNT_LIMITS, "encryptionroot", REDACTED_PROPERTY)
"""What is asked of a source's dataset for the record."""

NOT_RESTORED = frozenset(
    {
        "mountpoint",
        "sharenfs",
        "sharesmb",
        "keylocation",
        "volsize",
        "encryption",
        *SPACE_LIMITS,
        *COUNT_LIMITS,
    }
)
"""What a restored dataset takes from where it is now, or what is put back in another way."""

FIXED_PROPERTIES = frozenset(
    {
        "casesensitivity", "encryption", "keyformat", "normalization", "pbkdf2iters", "utf8only", "version",
        "volblocksize",
    }
)  # fmt: skip
"""What can only be set when a dataset is made: the stream does."""


@dataclass(frozen=True, slots=True)
class SourceProperties:
    """The record of one dataset. ``limits`` are those that are set, in bytes.

    ``key_root`` is how many levels above the dataset its encryption root is: 0 is the dataset itself, None is not
    encrypted. ``redacted``: the source itself lacks blocks.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    key_root: int | None = None
    redacted: bool = False

    def __str__(self) -> str:
        words = [
            f"{name}={self.limits[name]}" for name in (*SPACE_LIMITS, *COUNT_LIMITS) if name in self.limits
        ]
        if self.key_root is not None:
            words.append(f"key_root={self.key_root}")
        if self.redacted:
            words.append("redacted=1")
        return " ".join(words) or "none"


def make_source_record(name: DatasetName, values: Mapping[str, str]) -> SourceProperties:
    """The record for a source's dataset with these exact property values."""
    limits = {
        key: int(values[key])
        for key in SPACE_LIMITS
        if values.get(key, "").isdecimal() and values[key] != "0"
    }
    limits |= {key: int(values[key]) for key in COUNT_LIMITS if values.get(key, "").isdecimal()}
    root = DatasetName(values.get("encryptionroot", "-"))
    level = len(name.parts) - len(root.parts) if name.is_within(root) else None
    return SourceProperties(limits, level, values.get(REDACTED_PROPERTY, "-") not in {"-", ""})


def parse_record(text: str) -> SourceProperties | None:
    """A record as it was written; None for what is none, as a vault's host may have put it there."""
    limits: dict[str, int] = {}
    level, redacted = None, False
    if text == "none":
        return SourceProperties()
    for word in text.split():
        key, _, value = word.partition("=")
        if not value.isdecimal() or not value.isascii() or len(value) > 20:
            return None
        if key in SPACE_LIMITS or key in COUNT_LIMITS:
            limits[key] = int(value)
        elif key == "key_root":
            level = int(value)
        elif key == "redacted":
            redacted = value == "1"
        else:
            return None
    known = limits or level is not None or redacted
    return SourceProperties(limits, level, redacted) if known else None


def is_raw_copy(dataset: Dataset) -> bool:
    """True if a vault's dataset came raw, so that it goes back raw, with its source's key.

    What has no record of its source goes by its own key: no run of zvault has sent it yet.
    """
    record = parse_record(dataset.source_record) if dataset.source_record else None
    return dataset.encrypted and (record is None or record.key_root is not None)


def list_limits_to_set(record: SourceProperties, volsize: int | None) -> dict[str, str]:
    """The limits as they are set. A thick volume's ``refreservation`` depends on the pool: ZFS works it out."""
    limits = {name: str(record.limits.get(name, 0)) for name in SPACE_LIMITS}
    if volsize is not None:
        thick = record.limits.get("refreservation", 0) >= volsize > 0
        limits = {"reservation": limits["reservation"], "refreservation": limits["refreservation"]}
        if thick:
            limits["refreservation"] = "auto"
    return limits | {name: str(record.limits[name]) for name in COUNT_LIMITS if name in record.limits}


def is_limit_set(wanted: str, found: str, volsize: int | None) -> bool:
    """True if a limit has its value. ``auto`` is met by anything that covers the volume."""
    if wanted == "auto":
        return volsize is not None and found.isdecimal() and int(found) >= volsize
    return found == wanted


def select_restored_properties(received: Mapping[str, str]) -> dict[str, str]:
    """The properties that a restored dataset must have, of those that its copy on the vault received."""
    return {
        key: value
        for key, value in received.items()
        if key not in NOT_RESTORED and not key.startswith("org.zvault:") and value != "-"
    }


def format_set_command(dataset: str, values: Mapping[str, str]) -> str:
    """The command that sets properties of one dataset."""
    return shlex.join(["zfs", "set", *(f"{key}={value}" for key, value in values.items()), dataset])


SOURCE_KEY_PROPERTIES = (
    "encryptionroot",
    "keyformat",
    "keylocation",
    "pbkdf2salt",
    "pbkdf2iters",
    "keystatus",
)


@dataclass(frozen=True, slots=True)
class DatasetKey:
    """The origin of a dataset's key: its encryption root, and what the key is derived from."""

    root: str
    format: str
    location: str
    salt: str
    iterations: str
    status: str

    @property
    def derived(self) -> tuple[str, ...] | None:
        """The properties that tell a passphrase's key from another: each change of it draws a new salt.

        None for other keys.
        """
        known = self.format == "passphrase" and self.salt not in {"", "-", "0"}
        return (self.format, self.salt, self.iterations) if known else None


def find_dataset_key(values: Mapping[str, str]) -> DatasetKey | None:
    """The key of a dataset with these exact property values; None where it is not encrypted."""
    if values.get("encryptionroot", "-") in {"", "-"}:
        return None
    return DatasetKey(*(values.get(name, "-") for name in SOURCE_KEY_PROPERTIES))


def find_root_to_inherit(
    name: DatasetName, keys: Mapping[str, DatasetKey], record: SourceProperties | None
) -> str | None:
    """The encryption root that a restored dataset should inherit its key from; None where it keeps its own.

    ``keys`` are those of the dataset and of what is above it. With a record it is the one so many levels above, if
    that is encrypted; without, the nearest whose key is the same for certain.
    """
    own = keys.get(name)
    if own is None or own.root != name:
        return None
    above = [one for one in name.ancestors if one in keys]
    if not above:
        return None
    if record is not None and record.key_root is not None:
        if record.key_root == 0:
            return None
        depth = len(name.parts) - record.key_root
        wanted = next((one for one in above if len(one.parts) == depth), None)
        return keys[wanted].root if wanted is not None else None
    nearest = keys[above[-1]]
    return nearest.root if own.derived is not None and own.derived == _of_root(nearest, keys) else None


def _of_root(key: DatasetKey, keys: Mapping[str, DatasetKey]) -> tuple[str, ...] | None:
    root = keys.get(key.root)
    return root.derived if root is not None else None


def has_same_key(name: str, root: str, keys: Mapping[str, DatasetKey]) -> bool:
    """True if a dataset's key is its root's for certain, so that it may inherit without either being loaded."""
    own, its = keys.get(name), keys.get(root)
    return own is not None and its is not None and own.derived is not None and own.derived == its.derived


def list_inherit_commands(name: str, root: DatasetKey) -> list[str]:
    """The commands that load a dataset's key and have it inherit its root's again, whose key has to be loaded."""
    load = ["zfs", "load-key", *(["-L", root.location] if root.location.startswith("file://") else []), name]
    return [shlex.join(load), shlex.join(["zfs", "change-key", "-i", name])]
