"""Which names are allowed, where a dataset goes on a vault, and patterns of datasets.

The rules for datasets are those of OpenZFS (zfs_namecheck.c), so that a name is refused while the
configuration is read and not in the middle of a run. Checks raise ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile
from string import Formatter

from zvault.core.names import DatasetName

MAX_DATASET_NAME = 255
"""Bytes in the longest dataset name (ZFS_MAX_DATASET_NAME_LEN less its final zero)."""

INTO_KEYS = ("host", "dataset", "path", "pool")
"""What ``into`` may hold: this host, the source dataset's full name, and the pool it is in."""

_BAD_CHARACTER = re.compile(r"[^A-Za-z0-9\-_.: /]")
_BAD_IN_PATTERN = re.compile(r"[^A-Za-z0-9\-_.: /*?]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_word(word: str, what: str = "name") -> None:
    """Check the name of a vault or backup, or a snapshot prefix; ``what`` says which in the error."""
    if _WORD.fullmatch(word):
        return
    if not word:
        raise ValueError(f"a {what} cannot be empty")
    if len(word) > 64:
        raise ValueError(f"the {what} {word!r} has {len(word)} characters; 64 are allowed")
    raise ValueError(
        f"the {what} {word!r} is not allowed: it has A-Z a-z 0-9 _ . and - and begins with a letter or digit"
    )


def check_backup_name(name: str) -> None:
    """Check the name of a backup: that of its table or, where that has several vaults, ``TABLE@VAULT``."""
    for word in name.split("@", 1):
        check_word(word)


def check_dataset_name(name: str) -> None:
    """Check a full dataset name, such as ``tank/my data``, against ZFS's rules; a snapshot is not one."""
    _check_characters(name, f"the dataset name {name!r}", _BAD_CHARACTER)
    if len(name) > MAX_DATASET_NAME:
        raise ValueError(
            f"the dataset name {name!r} has {len(name)} characters; ZFS allows {MAX_DATASET_NAME}"
        )
    _check_components(name, f"the dataset name {name!r}")
    if not name[0].isalpha():
        raise ValueError(
            f"the dataset name {name!r} begins with {name[0]!r}; a pool's name begins with a letter"
        )


def _check_characters(name: str, label: str, bad: re.Pattern[str]) -> None:
    match = bad.search(name)
    if match is None:
        return
    char, place = match.group(), match.start() + 1
    if char in "@#":
        kind = "snapshot" if char == "@" else "bookmark"
        raise ValueError(f"{label} has {char!r} at character {place}: that names a {kind}, not a dataset")
    raise ValueError(
        f"{label} has {char!r} at character {place}; ZFS allows A-Z a-z 0-9 - _ . : space and / between"
    )


def _check_components(name: str, label: str) -> None:
    if not name:
        raise ValueError(f"{label} is empty")
    if name.startswith("/"):
        raise ValueError(
            f"{label} begins with '/'; a dataset is named like pool/data, not like the path it is mounted at"
        )
    if name.endswith("/"):
        raise ValueError(f"{label} ends with '/'")
    place = 1
    for part in name.split("/"):
        if part in {"", ".", ".."}:
            shown = f"the part {part!r}" if part else "an empty part"
            raise ValueError(f"{label} has {shown} at character {place}, which ZFS does not allow")
        place += len(part) + 1


def check_target_template(template: str) -> None:
    """Check ``into``, the path below a vault's pool: text and ``{host}``, ``{dataset}``, ``{path}``, ``{pool}``.

    It ends with its only ``{dataset}``, or with ``{path}`` as a part of its own below another: only so do the datasets
    of a tree stay apart, and children come below their parents, as ``zfs receive`` needs it.
    """
    label = f"into = {template!r}"
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    for _, key, spec, conversion in parts:
        if key is None:
            continue
        if key not in INTO_KEYS or spec or conversion:
            known = ", ".join(f"{{{known}}}" for known in INTO_KEYS)
            raise ValueError(f"{label} has {_field(key, spec, conversion)}; known are {known}")
    tails = [key for _, key, _, _ in parts if key in ("dataset", "path")]
    if not template.endswith(("{dataset}", "/{path}")) or len(tails) != 1:
        raise ValueError(
            f"{label} must end with its only {{dataset}}, or with a name and /{{path}}, or datasets of one tree would"
            " collide"
        )
    sample = template.format(host="h", dataset="d", path="d", pool="p")
    _check_characters(sample, label, _BAD_CHARACTER)
    _check_components(sample, label)


def _field(key: str, spec: str | None, conversion: str | None) -> str:
    return "{" + key + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"


def make_vault_dataset(
    into: str, pool: str, host: str, dataset: DatasetName, source: DatasetName | None = None
) -> DatasetName:
    """Return the place on the vault's ``pool`` of a ``dataset`` of a source, such as ``cold/filer1/tank/a``.

    ``into`` has passed check_into; its ``{pool}`` is the source's pool, its ``{path}`` the way to the dataset from
    ``source``, the whole of which is backed up; by default this dataset. Raises ValueError when the outcome is no valid
    dataset name, for instance because it is too long.
    """
    if "/" in host:
        raise ValueError(f"the host name {host!r} has '/', which would add a level on the vault")
    name = expand_vault_dataset(into, pool, host, dataset, source)
    check_dataset_name(name)
    return name


def expand_vault_dataset(
    into: str, pool: str, host: str, dataset: DatasetName, source: DatasetName | None = None
) -> DatasetName:
    """The same name, which may be too long."""
    path = dataset.relative_to(source or dataset)
    return DatasetName(pool).child(
        into.format(host=host, dataset=dataset, path=path, pool=dataset.pool).removesuffix("/")
    )


def check_pattern(pattern: str) -> None:
    """Check a pattern of ``exclude``: a dataset's full name with ``*``, ``?`` or whole parts of ``**``."""
    label = f"the pattern {pattern!r}"
    _check_characters(pattern, label, _BAD_IN_PATTERN)
    _check_components(pattern, label)
    for part in pattern.split("/"):
        if "**" in part and part != "**":
            raise ValueError(
                f"{label} has '**' within {part!r}; '**' stands alone between slashes, as in tank/**/tmp"
            )


def find_exclusion(dataset: str, patterns: Iterable[str]) -> str | None:
    """The first pattern that matches a dataset's full name, or None.

    ``*`` is any text within one part, ``?`` one character and ``**`` any number of parts. ``tank/a`` is that
    dataset alone, ``tank/a/**`` all below it but not itself, ``**/tmp`` all whose last part is ``tmp``.
    """
    return next((pattern for pattern in patterns if _compiled(pattern).fullmatch(dataset)), None)


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """A decision to take something or not, and the reason in words."""

    taken: bool
    reason: str


def choose_by_pattern(
    dataset: str, include: Sequence[str], exclude: Iterable[str], included_by: str = "include"
) -> DatasetChoice:
    """Decide whether a backup with these patterns takes a dataset of its source. Without ``include`` it takes all but
    those that match ``exclude``, which always wins. ``included_by`` is the key that has what is included.
    """
    if (pattern := find_exclusion(dataset, exclude)) is not None:
        return DatasetChoice(False, f"'{pattern}' in exclude matches it")
    if not include:
        return DatasetChoice(True, "it lies in the source, and nothing in exclude matches it")
    pattern = find_exclusion(dataset, include)
    if pattern is None:
        return DatasetChoice(False, f"nothing in {included_by} matches it")
    return DatasetChoice(True, f"'{pattern}' in {included_by} matches it, and nothing in exclude")


def list_missing(include: Iterable[str], there: Container[str]) -> list[str]:
    """The datasets that patterns name without wildcards, as a whole or up to the first one, and that are not there.

    ``tank/vm/*`` names ``tank/vm``: with nothing below it there is nothing to take, but without it something is wrong.
    """
    leads = []
    for pattern in include:
        parts = takewhile(lambda part: not any(sign in part for sign in "*?"), pattern.split("/"))
        lead = "/".join(parts)
        if lead and lead not in there and lead not in leads:
            leads.append(lead)
    return leads


def can_reach(pattern: str, source: DatasetName) -> bool:
    """True if a pattern can match the source or anything below it, judged by the components they share."""
    parts, names = pattern.split("/"), source.parts
    for part, name in zip(parts, names, strict=False):
        if part == "**":
            return True
        if not fnmatchcase(name, part):
            return False
    return len(parts) >= len(names)


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    *front, last = pattern.split("/")
    regex = "".join("(?:[^/]+/)*" if part == "**" else f"{_part_regex(part)}/" for part in front)
    return re.compile(regex + (".+" if last == "**" else _part_regex(last)))


def _part_regex(part: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char) for char in part)
