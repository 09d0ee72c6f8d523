"""The lease of a vault in an object store: one object beside the blocks that says which host writes to them.

An object store has no locks. What it has is a conditional put: an object is made only if there is none
(``If-None-Match: *``), or replaced only if it still is what was read (``If-Match: ETAG``). Of two hosts that put at the
same moment exactly one succeeds. Blocks themselves are put without any condition, so the lease binds only those who
keep to it: s3_guard.py does, and stops its host's server when it must.

Everything here waits for the store, so it runs in processes of its own (s3_guard.py) and never in the daemon.
Seen with Ceph 18.2.7's RGW and boto3 1.37; Amazon has both conditions since November 2024.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from zvault.core.errors import DeviceGone, NotFound, Refused, ToolMissing
from zvault.system.credentials import credential_file
from zvault.system.lease import current_boot_id

MACHINE_ID = Path("/etc/machine-id")
CONNECT_SECONDS, READ_SECONDS = 5, 10
"""How long one request to the store may take to connect, and between two bytes of its answer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object store keeps a device's blocks: as nbdkit's S3 plugin, or zvault's own, is told of it.

    Secrets are not in it.
    """

    bucket: str
    key: str
    endpoint: str | None
    params: tuple[str, ...]

    @classmethod
    def of(cls, params: Sequence[str]) -> Place:
        """From the plugin's parameters. Raises Refused without a bucket or key."""
        words = _words(params)
        if not words.get("bucket") or not words.get("key"):
            why = "its place in the object store is not known"
            raise Refused("there can be no lease of it", why, "give the S3 plugin bucket= and key=")
        endpoint = words.get("endpoint-url") or words.get("endpoint")
        return cls(words["bucket"], words["key"], endpoint, tuple(params))

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


@dataclass(frozen=True, slots=True)
class Lease:
    """What the object says.

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
    def of_bytes(cls, data: bytes) -> Lease:
        """Read back; what another version wrote beside it is left out. Raises ValueError, TypeError."""
        found: dict[str, Any] = json.loads(data)
        return cls(**{item.name: found[item.name] for item in fields(cls) if item.name in found})

    def owner(self) -> str:
        """Who has it, in words."""
        at = f" ({self.address})" if self.address else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"{self.host}{at} has held it since {since}"


def ours(place: Place, bound: float, now: float) -> Lease:
    """The lease as this host would write it. Raises OSError."""
    machine = MACHINE_ID.read_text(encoding="ascii").strip()
    return Lease(socket.gethostname(), place.local_address(), machine, current_boot_id(), now, bound)


@dataclass(frozen=True, slots=True)
class Seen:
    """The object as the store has it; ``age`` is how long ago it was put, in seconds, by the store's own clock."""

    lease: Lease
    etag: str
    age: float

    def expired(self) -> bool:
        """Whether its holder, by its own rules, has stopped its server."""
        return self.age > self.lease.bound


class Lost(Exception):
    """The object is not what it was: somebody put another one in between, or removed it."""


class Store:
    """One device's lease object. Every call waits for the store, at most some CONNECT_SECONDS and READ_SECONDS."""

    def __init__(self, place: Place) -> None:
        """Raises ToolMissing without boto3, NotFound when a file with a secret is not there."""
        self.place = place
        self._client: Any = _client(place)
        self._bare = False

    def read(self) -> Seen | None:
        """The lease; None where there is none. Raises DeviceGone, Refused."""
        try:
            with self._asking() as client:
                answer = client.get_object(Bucket=self.place.bucket, Key=self.place.lease)
                data = answer["Body"].read()
        except Lost:
            return None
        try:
            lease = Lease.of_bytes(data)
        except (ValueError, TypeError) as error:
            why = f"it cannot be read: {error}"
            raise Refused(f"{self.place} is no lease", why, "see whose it is, and remove it") from error
        now = _date(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return Seen(lease, answer["ETag"], max(0.0, now - answer["LastModified"].timestamp()))

    def put(self, lease: Lease, etag: str | None) -> str:
        """Put it in the place of the one with this ETag (None: of none); the new ETag. Raises Lost, DeviceGone."""
        if etag is None:
            return self._put(self.place.lease, lease, IfNoneMatch="*")
        try:
            return self._put(self.place.lease, lease, IfMatch=self._form(etag))
        except Lost:
            # RGW compares what it is sent with an ETag without its quotes, so the quoted form never matches there.
            self._bare = not self._bare
            return self._put(self.place.lease, lease, IfMatch=self._form(etag))

    def _form(self, etag: str) -> str:
        return etag.strip('"') if self._bare else etag

    def _put(self, key: str, lease: Lease, **condition: str) -> str:
        with self._asking() as client:
            answer = client.put_object(Bucket=self.place.bucket, Key=key, Body=lease.as_bytes(), **condition)
        return str(answer["ETag"])

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """The client. After it was refused another takes its place, with the keys that there are then."""
        try:
            with _told(self.place):
                yield self._client
        except Refused:
            self._client = _client(self.place)
            raise

    def refuse_without_conditions(self, lease: Lease) -> None:
        """See on an object of its own that the store keeps to each condition that is used. Raises Refused."""
        key = f"{self.place.lease}.{uuid.uuid4().hex}"
        self._put(key, lease)
        try:
            for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}, {"IfMatch": "0"}):
                with contextlib.suppress(Lost):
                    self._put(key, lease, **condition)
                    raise Refused(
                        f"the object store has no lock for {self.place}",
                        f"it took a put that it should have refused ({condition}), so of two hosts both would win",
                        "use a store that knows conditional puts; or set exclusive = false and see to it yourself"
                        " that only one host uses the vault",
                    )
        finally:
            with self._asking() as client:
                client.delete_object(Bucket=self.place.bucket, Key=key)


def _client(place: Place) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.session import Session
    except ImportError as error:
        raise ToolMissing("the object store cannot be asked", str(error), "install python3-boto3") from error
    words = _words(place.params)
    # Retries are the guard's own: it knows how long it may take.
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": words.get("style", "auto")},
    )
    file = _keys(words)
    # Named, the profile comes before what the environment says.
    session = Session(profile=words.get("profile", "default") if file else words.get("profile"))
    if file is not None:
        session.set_config_variable("credentials_file", str(file))
    return boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=place.endpoint,
        region_name=words.get("region"),
        aws_access_key_id=_secret(words.get("access-key")),
        aws_secret_access_key=_secret(words.get("secret-key")),
        aws_session_token=_secret(words.get("session-token")),
        config=config,
    )


def _words(params: Sequence[str]) -> dict[str, str]:
    """The plugin's parameters; it takes them with "_" for "-" too."""
    pairs = (word.split("=", 1) for word in params if "=" in word)
    return {name.replace("_", "-"): value for name, value in pairs}


def _keys(words: dict[str, str]) -> Path | None:
    """The file with the keys, in the form of ``~/.aws/credentials``; None where boto3 finds them by itself."""
    if "credential" in words:
        return credential_file(words["credential"])
    if "keys" not in words:
        return None
    file = Path(words["keys"])
    if not file.is_file():
        raise NotFound(
            f"there is no file {file}", "the keys to the object store are said to be in it", "see keys="
        )
    return file


def _secret(value: str | None) -> str | None:
    """A parameter that may name a file, as nbdkit_read_password(3) has it."""
    if value is None or not value.startswith("+"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError as error:
        raise NotFound(f"the secret in {value[1:]} cannot be read", str(error), "correct its path") from error


@contextlib.contextmanager
def _told(place: Place) -> Iterator[None]:
    """Make boto3's errors those that can be told."""
    from botocore.exceptions import BotoCoreError, ClientError

    what = f"the lease {place} cannot be had"
    try:
        yield
    except ClientError as error:
        code = error.response["ResponseMetadata"]["HTTPStatusCode"]
        # 409: two conditional puts at the same moment, of which Amazon lets one begin anew.
        if code in (409, 412) or error.response["Error"]["Code"] == "NoSuchKey":
            raise Lost from error
        if code >= 500 or code == 429:
            raise DeviceGone(what, f"the store answers {code}", "see the store; try again") from error
        raise Refused(what, str(error), "see that bucket, keys and permissions are right") from error
    except BotoCoreError as error:
        raise DeviceGone(
            what, str(error), "see that the store can be reached, and the keys are there"
        ) from error


def _date(text: str) -> float:
    """A Date header (RFC 9110) in seconds since the epoch."""
    from email.utils import parsedate_to_datetime

    return parsedate_to_datetime(text).timestamp()
