"""What a device of a vault may have beside its source, as the configuration writes it: cache, prices, TLS, cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from zvault.config.fields import (
    BlockPath,
    ConfigTable,
    DurationField,
    FilePath,
    FolderPath,
    HostName,
    SizeField,
    WordField,
    parse_default,
)
from zvault.core.cost import prices


class CacheTable(ConfigTable):
    """A cache in front of a device, on fast storage of this host."""

    bcache: BlockPath = Field(
        description="The block device to hold the cache: a partition or volume for this alone. It is made a cache "
        "of bcache when the vault is created, if it is blank; it may serve several devices. Name it by a path that "
        "stays: `/dev/disk/by-id/…`.",
        examples=["/dev/disk/by-id/nvme-X-part4"],
    )
    mode: Literal["writeback", "writearound", "writethrough"] = Field(
        default="writethrough",
        description='"writeback" answers a write when the cache has it, and writes it back later: lose the cache, '
        'and the pool is lost too. "writethrough" puts it into both, "writearound" into the device only; both '
        "serve reads, and may lose the cache.",
        examples=["writeback"],
    )
    sequential_cutoff: SizeField | None = Field(
        default=None,
        description="A run of requests without a gap that is longer goes past the cache; the kernel's own value "
        "if left out (4M).",
        examples=["1G"],
    )
    flush: DurationField = Field(
        default=parse_default("1h"),
        description="How long a vault that goes down may take to write back what is in the cache only. When it is "
        "not done by then all devices stay up, and the next `vault down` goes on with it.",
        examples=["8h"],
    )


class PricesTable(ConfigTable):
    """What an object store's bill has: its prices, in whatever currency."""

    put: float = Field(ge=0, description="A thousand requests that write, or list.", examples=[0.005])
    get: float = Field(ge=0, description="A thousand requests that read.", examples=[0.0004])
    stored: float = Field(
        default=0.0, ge=0, description="A GB (2^30 bytes) that is kept for a month.", examples=[0.023]
    )
    download: float = Field(
        default=0.0, ge=0, description="A GB (2^30 bytes) that is read from it.", examples=[0.09]
    )
    currency: str = Field(
        default="",
        max_length=8,
        pattern=r"^[^\s\x00-\x1f\x7f]*$",
        description="How its sums are written: a sign before them, or a word after them.",
        examples=["$"],
    )

    def as_prices(self) -> prices.StorePrices:
        """As what counts with them takes them."""
        return prices.StorePrices(self.put, self.get, self.stored, self.download, self.currency)


class Tls(ConfigTable):
    """Encryption of a connection to an NBD server, and how the two know each other."""

    certs: FolderPath = Field(
        description="A folder with `ca-cert.pem`, which has signed the server's certificate, and, where the server "
        "asks for one, this host's `client-cert.pem` and `client-key.pem`.",
        examples=["/etc/zvault/tls"],
    )
    hostname: HostName | None = Field(
        default=None,
        description="The name in the server's certificate, if it is not the one it is reached by.",
        examples=["nas.example.org"],
    )


class Ceph(ConfigTable):
    """A Ceph cluster other than the one of `/etc/ceph/ceph.conf`, or another user of it."""

    conf: FilePath | None = Field(
        default=None, description="Its configuration file.", examples=["/etc/ceph/attic.conf"]
    )
    user: WordField | None = Field(
        default=None, description='The user, without "client."; `admin` if left out.', examples=["zvault"]
    )
    keyring: FilePath | None = Field(
        default=None,
        description="The file with the user's key, if it is not where Ceph looks for it.",
        examples=["/etc/ceph/ceph.client.zvault.keyring"],
    )
