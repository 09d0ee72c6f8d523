"""The lease of a vault in an object store: one object beside the blocks that says which host writes to them.

An object store has no locks. What it has is a conditional put: an object is made only if there is none
(``If-None-Match: *``), or replaced only if it still is what was read (``If-Match: ETAG``). Of two hosts that put at the
same moment exactly one succeeds. Blocks themselves are put without any condition, so the lease binds only those who
keep to it: guard.py does, and stops its host's server when it must.

Everything here waits for the store, so it runs in processes of its own (guard.py) and never in the daemon.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from zvault.core.errors import DeviceGone, Refused
from zvault.object_store.conditions import ROUNDS, find_fault, try_conditions
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ObjectDamaged,
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    StoreUnreachable,
    describe_loss,
)
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings
from zvault.system.credentials import find_keys_file
from zvault.system.record_store import read_boot_id

MACHINE_ID = Path("/etc/machine-id")
CONNECT_SECONDS, READ_SECONDS = 5, 10
"""How long one request to the store may take to connect, and between two bytes of its answer."""


class LeasePlace(Protocol):
    """The place of a lease; ``str`` of it is for people."""

    @property
    def lease(self) -> str:
        """The key of the lease's object."""

    def local_address(self) -> str:
        """The address under which this host reaches the store; "" where it cannot be told."""


class LeaseObjects(Protocol):
    """The calls that a lease makes on a store, as S3Store has them."""

    def read_aged(self, key: str) -> tuple[bytes, str, float]:
        """An object, its ETag and its age in seconds."""

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """Put an object, on condition that it is still the one with that ETag; its new ETag."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; one that is not there counts as removed."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The place of a device's blocks in an object store: as nbdkit's S3 plugin, or zvault's own, is told of it.

    ``bucket``: that of the lease. Secrets are not in it.
    """

    bucket: str
    key: str
    endpoint: str | None
    params: tuple[str, ...]

    @classmethod
    def of(cls, params: Sequence[str]) -> BucketPlace:
        """From the plugin's parameters. Raises Refused without a bucket or key."""
        words = parse_lease_params(params)
        if not words.get("bucket") or not words.get("key"):
            why = "its place in the object store is not known"
            raise Refused("there can be no lease of it", why, "give the S3 plugin bucket= and key=")
        endpoint = words.get("endpoint-url") or words.get("endpoint")
        return cls(words.get("lease-bucket") or words["bucket"], words["key"], endpoint, tuple(params))

    @property
    def lease(self) -> str:
        """The lease's key; the blocks are below ``KEY/``."""
        return f"{self.key}.lease"

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.lease}"

    def local_address(self) -> str:
        """The address under which this host reaches the store; "" where it cannot be told. Sends nothing."""
        url = urlsplit(self.endpoint or "https://s3.amazonaws.com")
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect((url.hostname or "", url.port or 443))
            return str(one.getsockname()[0])
        return ""


_LAST = 253402300799
"""Seconds since the epoch: the end of the year 9999."""


@dataclass(frozen=True, slots=True)
class LeaseContent:
    """The lease as its object has it.

    ``machine`` and ``boot`` are machine-id(5) and random(4)'s boot_id of the host; ``since`` and ``bound`` in seconds
    since the epoch and in seconds. ``held`` is false once it was given back. ``shut_out`` is the boot of the host that
    it was taken from, until that has said that it writes no more. ``mark`` makes each put another content, and so
    another ETag.
    """

    host: str
    address: str
    machine: str
    boot: str
    since: float
    bound: float
    held: bool = True
    shut_out: str = ""
    mark: str = ""

    def as_bytes(self) -> bytes:
        """As the object holds it, with a new mark."""
        return json.dumps(asdict(replace(self, mark=uuid.uuid4().hex)), indent=1).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> LeaseContent:
        """Read back; what another version wrote beside it is left out. Raises ValueError, TypeError."""
        try:
            found: dict[str, Any] = json.loads(data)
            said = {item.name: found[item.name] for item in fields(cls) if item.name in found}
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        for name, value in said.items():
            if name in ("since", "bound"):
                if type(value) not in (int, float) or not 0 <= value <= _LAST:
                    raise ValueError(f"{name} is no number of seconds")
            elif type(value) is not (bool if name == "held" else str):
                raise ValueError(f"{name} is of another kind")
        return cls(**said)

    def owner(self) -> str:
        """Say in words who has it."""
        at = f" ({self.address})" if self.address else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"{self.host}{at} has held it since {since}"


def make_own_lease(place: LeasePlace, bound: float, now: float) -> LeaseContent:
    """The lease as this host would write it. Raises OSError."""
    machine = MACHINE_ID.read_text(encoding="ascii").strip()
    return LeaseContent(socket.gethostname(), place.local_address(), machine, read_boot_id(), now, bound)


def is_own_lease(lease: LeaseContent) -> bool:
    """True if it is this host's, of this boot or an earlier one: another may have its name, or its machine-id."""
    try:
        machine = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return False
    return (lease.machine, lease.host) == (machine, socket.gethostname())


@dataclass(frozen=True, slots=True)
class LeaseObject:
    """The object as the store has it; ``age`` is how long ago it was put, in seconds, by the store's own clock."""

    lease: LeaseContent
    etag: str
    age: float
    is_lost: bool = False
    """Whether the store lost what it said, so that ``lease`` stands for a host that nobody can name."""

    def is_expired(self) -> bool:
        """True if its holder, by its own rules, has stopped its server."""
        return self.age > self.lease.bound


def open_lease_bucket(place: LeasePlace) -> LeaseObjects:
    """The bucket of a lease. Raises ToolMissing without boto3, NotFound for a credential that is not there."""
    if not isinstance(place, BucketPlace):
        raise TypeError("it is in no bucket")
    words = parse_lease_params(place.params) | {"bucket": place.bucket}
    settings = S3Settings.of_words(words, find_keys_file(words))
    # Tried once: how often, the guard decides, which knows how long it may take.
    return S3Store(replace(settings, connect_seconds=CONNECT_SECONDS, read_seconds=READ_SECONDS))


UNKNOWN_BOUND = 1800.0
"""Seconds after which a holder whose lease the store lost has stopped: more than anybody sets as ``lease``."""


def _unnamed(data: bytes, etag: str, age: float) -> LeaseObject:
    """The object of which the store lost what it said: some host's, until that must have stopped by its own rules."""
    host = f"a host that nobody can name (of the lease's object: {describe_loss(data)})"
    boot = f"lost-{hashlib.sha256(etag.encode()).hexdigest()[:16]}"
    return LeaseObject(
        LeaseContent(host, "", "", boot, time.time() - age, UNKNOWN_BOUND), etag, age, is_lost=True
    )


class LeaseLost(Exception):
    """The object is not what it was: somebody put another one in between, or removed it."""


class LeaseObjectStore:
    """One device's lease object. Every call waits for the store, at most some CONNECT_SECONDS and READ_SECONDS."""

    def __init__(self, place: LeasePlace, objects: LeaseObjects | None = None) -> None:
        """``objects``: the store of a place that is no bucket's.

        Raises ToolMissing without boto3, NotFound for a credential that is not there.
        """
        self.place = place
        self._objects = objects if objects is not None else open_lease_bucket(place)

    def read(self) -> LeaseObject | None:
        """The lease; None where there is none. Raises DeviceGone; Refused for an object that is no lease.

        One that the store lost to zero bytes counts as held, by a host that nobody can name.
        """
        try:
            with self._told():
                data, etag, age = self._objects.read_aged(self.place.lease)
        except ObjectMissing:
            return None
        if describe_loss(data):
            return _unnamed(data, etag, age)
        if not etag:
            raise Refused(
                f"there can be no lease in {self.place}",
                "the store sends it without an ETag, on which each renewal depends",
                "run 'zvaultctl blockstore probe', and use a store that has conditional puts",
            )
        try:
            return LeaseObject(LeaseContent.of_bytes(data), etag, age)
        except (ValueError, TypeError) as error:
            why = f"it cannot be read: {error}"
            raise Refused(f"{self.place} is no lease", why, "see whose it is, and remove it") from error

    def put(self, lease: LeaseContent, etag: str | None) -> str:
        """Put it in the place of the one with this ETag (None: of none); the new ETag. Raises LeaseLost, DeviceGone.

        "" stands for an object that the store lost together with its ETag. It is removed first, so that of two hosts
        that put then only one succeeds.
        """
        if etag == "":
            with self._told():
                self._objects.delete([self.place.lease])
            etag = None
        return self._put(self.place.lease, lease, NO_OBJECT_YET if etag is None else etag)

    def refuse_without_conditions(self, lease: LeaseContent, *, at_once: bool) -> None:
        """See on objects of its own that the store keeps to each condition, with ``at_once`` also that of many who put
        at the same moment one wins. Raises Refused.
        """
        with self._told():
            rounds = ROUNDS if at_once else 0
            fault = find_fault(try_conditions(self._objects, self.place.lease, rounds))
        if fault is not None:
            raise Refused(
                f"the object store has no lock for {self.place}",
                f"{fault.what}: {fault.came}; so of two hosts both would win",
                "use a store that keeps to conditional puts; 'zvaultctl blockstore probe' tells. Where only one host"
                " ever uses the vault, nbdkit's S3 plugin can do without, with exclusive = false",
            )

    def _put(self, key: str, lease: LeaseContent, condition: str | None) -> str:
        with self._told():
            return self._objects.put(key, lease.as_bytes(), condition)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise the object store's errors as those of a device."""
        what = f"the lease {self.place} cannot be had"
        try:
            yield
        except PreconditionFailed as error:
            raise LeaseLost from error
        except StoreUnreachable as error:
            raise DeviceGone(what, f"{error.what}: {error.why}", error.next) from error
        except (StoreDenied, ObjectDamaged) as error:
            raise Refused(what, f"{error.what}: {error.why}", error.next) from error


def parse_lease_params(params: Sequence[str]) -> dict[str, str]:
    """The plugin's parameters; it takes them with "_" for "-" too."""
    pairs = (word.split("=", 1) for word in params if "=" in word)
    return {name.replace("_", "-"): value for name, value in pairs}
