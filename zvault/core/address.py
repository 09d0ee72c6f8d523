"""Where a source or a vault is: on this host, or on another that is reached by ssh. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from zvault.core.name_rules import check_dataset_name
from zvault.core.names import DatasetName

SSH_SCHEME = "ssh://"

_ADDRESS = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host that ssh knows: a name, an alias of ssh_config(5), or an IP address; user and port if not ssh's own."""

    host: str
    user: str = ""
    port: int | None = None

    def __str__(self) -> str:
        """As the configuration writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"{SSH_SCHEME}{self.user}{'@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"
        )


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset to back up, with all below it; ``host`` is None where it is on this host.

    Where several are to be backed up as one, they are the ``parts``, and the dataset is the nearest that has all of
    them below it.
    """

    dataset: DatasetName
    host: Address | None = None
    parts: tuple[DatasetName, ...] = ()

    def __str__(self) -> str:
        """As the configuration writes it; several with a comma between, which no name has."""
        names = self.parts or (self.dataset,)
        return ", ".join(f"{self.host}/{name}" if self.host else name for name in names)

    @property
    def whole(self) -> Source:
        """The dataset that has all of it, also what is not to be backed up."""
        return Source(self.dataset, self.host)

    @property
    def pool(self) -> DatasetName:
        return self.dataset.pool


def parse_address(text: str) -> Address:
    """Parse ``ssh://[user@]host[:port]``. Raises ValueError."""
    match = _ADDRESS.fullmatch(text.removeprefix(SSH_SCHEME)) if text.startswith(SSH_SCHEME) else None
    # What begins with a dash would be an option to ssh.
    if match is None or (match[3] or "").startswith("-"):
        raise ValueError(
            f'{text!r} is no address of a host, as in "ssh://root@filer1" or "ssh://filer1:2222"'
        )
    port = int(match[4]) if match[4] else None
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"port {port} is not between 1 and 65535")
    return Address(match[2] or match[3], match[1] or "", port)


def parse_source(text: str) -> Source:
    """``pool/data``, or ``ssh://[user@]host[:port]/pool/data``. Raises ValueError."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        check_dataset_name(text)
        return Source(DatasetName(text))
    if scheme != "ssh":
        raise ValueError(
            f'{scheme}:// is not supported: other hosts are reached by "ssh://user@host/pool/data"'
        )
    host, slash, dataset = rest.partition("/")
    if not slash:
        raise ValueError(f'names no dataset, as in "{text}/tank"')
    check_dataset_name(dataset)
    return Source(DatasetName(dataset), parse_address(SSH_SCHEME + host))


def parse_sources(texts: Sequence[str]) -> Source:
    """Several datasets as one source. Raises ValueError where one backup cannot take them in one snapshot."""
    found = [parse_source(text) for text in texts]
    if not found:
        raise ValueError("names no dataset")
    first, *others = found
    for other in others:
        if (other.host, other.pool) != (first.host, first.pool):
            raise ValueError(
                f'"{first}" and "{other}" are not in one pool, and ZFS makes no snapshot of one moment over two:'
                " write a [backup] for each"
            )
    names = [one.dataset for one in found]
    for index, name in enumerate(names):
        for other_name in names[:index] + names[index + 1 :]:
            if name.is_within(other_name):
                raise ValueError(f'"{name}" is taken with "{other_name}": leave it out')
    return first if not others else Source(_above(names), first.host, tuple(names))


def _above(names: Sequence[DatasetName]) -> DatasetName:
    """The nearest dataset that all are below."""
    shared = []
    for parts in zip(*(name.parts for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return DatasetName("/".join(shared))
