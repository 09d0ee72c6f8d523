"""Where a source or a vault is: on this host, or on another that is reached by ssh. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zvault.core.name_rules import check_dataset_name
from zvault.core.names import DatasetName

SCHEME = "ssh://"

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
        return f"{SCHEME}{self.user}{'@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset to back up, with all below it; ``host`` is None where it is on this host."""

    dataset: DatasetName
    host: Address | None = None

    def __str__(self) -> str:
        """As the configuration writes it."""
        return f"{self.host}/{self.dataset}" if self.host else self.dataset

    @property
    def pool(self) -> DatasetName:
        """The pool it is in."""
        return self.dataset.pool


def parse_address(text: str) -> Address:
    """``ssh://[user@]host[:port]``. Raises ValueError."""
    match = _ADDRESS.fullmatch(text.removeprefix(SCHEME)) if text.startswith(SCHEME) else None
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
    return Source(DatasetName(dataset), parse_address(SCHEME + host))
