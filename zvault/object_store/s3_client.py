"""Where an S3 bucket is, whose keys open it, and boto3's client for it.

This is the only module that makes a client. Keys come from one of three places: ``access_key`` and ``secret_key``
themselves; a file ``keys`` in the format of ~/.aws/credentials, whose section is ``profile`` or else "default"; or
boto3's own chain: the environment, ~/.aws (``profile`` chooses in it), a container's or machine's role. What expires
in the chain boto3 fetches anew; the file is read again when it has changed.

    [default]
    aws_access_key_id = …
    aws_secret_access_key = …
    aws_session_token = …
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from zvault import __version__
from zvault.core.errors import ToolMissing
from zvault.core.policy.object_lock import Lock
from zvault.object_store.interface import Buffer, Denied, TooLarge

Style = Literal["auto", "path", "virtual"]

MAX_ANSWER = 16 << 20
"""Bytes: more than a page of a listing, or an error, ever has."""

MAX_KEYS = 1 << 20
"""Characters read of a file with keys."""

_STYLES: dict[str, Style] = {"auto": "auto", "path": "path"}
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def open_to_read(path: str) -> int:
    """A descriptor of a file with keys. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A bucket, and how to talk to it. None: as boto3 has it, from its configuration or by default.

    ``style`` says where the bucket's name stands in a URL: in its path or in the host's name; "auto" leaves it to
    boto3. ``access_key``, ``secret_key`` and ``session_token`` may be "+FILE", as nbdkit_read_password(3) has it: then
    the file's first line counts. ``storage_class``, ``sse``, ``sse_kms_key_id`` and ``lock`` are those of new objects.
    ``connect_seconds`` and ``read_seconds`` bound how long a request may take to connect, and between two bytes of
    its answer. ``connections`` is how many requests may be under way at once; more of them wait for each other.
    ``open_file`` opens the files named here, where this process itself may not.
    """

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    style: Style = "auto"
    profile: str | None = None
    keys: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    storage_class: str | None = None
    sse: Literal["AES256", "aws:kms"] | None = None
    sse_kms_key_id: str | None = None
    lock: Lock | None = None
    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    connections: int = 32
    open_file: Callable[[str], int] = field(default=open_to_read, repr=False, compare=False)

    @classmethod
    def of_words(cls, words: Mapping[str, str], keys: str | None) -> S3Settings:
        """From a server's parameters, NAME to VALUE; ``keys`` is the file with its keys. An empty value counts as none.

        nbdkit's S3 plugin calls the endpoint ``endpoint-url``.
        """
        given = {name: value for name, value in words.items() if value}
        return cls(
            bucket=given["bucket"],
            endpoint=given.get("endpoint-url", given.get("endpoint", "")).rstrip("/") or None,
            region=given.get("region"),
            style=_STYLES.get(given.get("style", "auto"), "virtual"),
            profile=given.get("profile"),
            keys=keys,
            access_key=given.get("access-key"),
            secret_key=given.get("secret-key"),
            session_token=given.get("session-token"),
        )

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f" at {self.endpoint}" if self.endpoint else "")

    def for_new_objects(self) -> dict[str, str]:
        """What a put says beside its data, as boto3's parameters."""
        said = {
            "StorageClass": self.storage_class,
            "ServerSideEncryption": self.sse,
            "SSEKMSKeyId": self.sse_kms_key_id,
        }
        return {name: value for name, value in said.items() if value}


class S3Clients:
    """boto3's client for a bucket; another one when the keys have changed, or were refused. Safe for threads."""

    def __init__(self, settings: S3Settings) -> None:
        """Raises ToolMissing without boto3."""
        _boto3()
        self.settings = settings
        self._lock = threading.Lock()
        self._client: Any = None
        self._seen: tuple[int, ...] | None = None

    def get(self) -> Any:
        """The client. Raises Denied where the keys or the settings are no good."""
        seen = self._signature()
        with self._lock:
            if self._client is None or seen != self._seen:
                # Read after it was looked at: a change in between is seen the next time.
                self._client, self._seen = _client(self.settings), seen
            return self._client

    def forget(self, client: Any) -> None:
        """Its keys were refused: go through all places of keys again before the next request."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _signature(self) -> tuple[int, ...] | None:
        if self.settings.keys is None:
            return None
        try:
            fd = self.settings.open_file(self.settings.keys)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _client(settings: S3Settings) -> Any:
    boto3, config = _boto3()
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session(**_whose(settings))
        client = session.client(
            "s3",
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            config=config(
                connect_timeout=settings.connect_seconds,
                read_timeout=settings.read_seconds,
                max_pool_connections=settings.connections,
                tcp_keepalive=True,
                # Retries are retrying.py's: what is tried again is counted, told, and takes turns.
                retries={"total_max_attempts": 1},
                # Checksums in trailers are Amazon's alone; a signature over the body everyone checks, and its SHA-256
                # takes less than half the time of a Content-MD5.
                s3={"addressing_style": settings.style, "payload_signing_enabled": True},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                user_agent_extra=f"zvault/{__version__}",
            ),
        )
    except (BotoCoreError, ValueError, OSError) as error:
        raise Denied(
            f"{settings} cannot be used", str(error), "correct its endpoint, region or profile"
        ) from error
    client.meta.events.register("before-call.s3.DeleteObjects", _with_md5)
    client.meta.events.register("before-call.s3.PutObject", _with_body)
    client._endpoint.http_session = BoundedSession(client._endpoint.http_session)
    return client


class BoundedSession:
    """botocore's HTTP session, which reads answers that are no object whole: here no more than MAX_ANSWER of them."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def send(self, request: Any) -> Any:
        """An answer; only the body of an object is left to be read. Raises TooLarge, and as botocore's."""
        streamed, request.stream_output = request.stream_output, True
        answer = self._session.send(request)
        if not streamed or answer.status_code >= 300:
            answer._content = _bounded(answer, request.url)
        return answer

    def close(self) -> None:
        """Close its connections."""
        self._session.close()


def _bounded(answer: Any, url: str) -> bytes:
    from botocore.exceptions import HTTPClientError
    from urllib3.exceptions import HTTPError

    pieces, size = [], 0
    try:
        for piece in answer.raw.stream(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER:
                break
    except (HTTPError, OSError) as error:
        raise HTTPClientError(error=error) from error
    finally:
        if size > MAX_ANSWER:
            answer.raw.close()
    if size > MAX_ANSWER:
        why = f"it has more than {MAX_ANSWER} bytes ({url.partition('?')[0]})"
        raise TooLarge("the store's answer is none", why, "see that the endpoint is an object store")
    return b"".join(pieces)


def _with_md5(params: dict[str, Any], **_: object) -> None:
    """Have a request protected by Content-MD5 in place of the CRC32 that boto3 puts where S3 demands a checksum."""
    params["headers"]["Content-MD5"] = md5(params["body"])
    params["context"].pop("checksum", None)


_body: ContextVar[memoryview | None] = ContextVar("body", default=None)
"""What the put that is being made sends."""


def put_object(client: Any, body: memoryview, **params: Any) -> dict[str, Any]:
    """Put an object from memory where it is: boto3 takes only bytes, and a copy costs as much as sending them."""
    from botocore.exceptions import UnseekableStreamError

    token = _body.set(body)
    try:
        return client.put_object(**params)  # type: ignore[no-any-return]
    except UnseekableStreamError:
        # The bucket is in another region, which boto3 knows by now; only bytes it would have sent there by itself.
        return client.put_object(**params)  # type: ignore[no-any-return]
    finally:
        _body.reset(token)


def _with_body(params: dict[str, Any], **_: object) -> None:
    """Have a put send what is in ``_body``. It is signed and sent after this."""
    if (body := _body.get()) is not None:
        params["body"] = body


def md5(data: Buffer) -> str:
    """The value of a Content-MD5 header (RFC 1864)."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode("ascii")


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ToolMissing("the object store cannot be asked", str(error), "install python3-boto3") from error
    return boto3, Config


def _whose(settings: S3Settings) -> dict[str, str | None]:
    """The keys, as a session's arguments. What is in the file must not get into an error."""
    if settings.access_key is not None:
        given = (settings.access_key, settings.secret_key, settings.session_token)
        return dict(zip(_KEYS, (_secret(one, settings) for one in given), strict=True))
    if settings.keys is None:
        return {"profile_name": settings.profile}
    path, section = Path(settings.keys), settings.profile or "default"
    what, form = f"the keys in {path} cannot be used", "write it as ~/.aws/credentials is written"
    found = configparser.RawConfigParser()
    try:
        found.read_string(_text(settings, settings.keys))
    except OSError as error:
        raise Denied(what, error.strerror or str(error), "correct its path or mode") from error
    except (configparser.Error, UnicodeDecodeError):
        raise Denied(what, "it cannot be understood", form) from None
    if not found.has_section(section):
        raise Denied(what, f"it has no section [{section}]", form)
    keys = {name: found.get(section, name, fallback=None) or None for name in _KEYS}
    if not (keys[_KEYS[0]] and keys[_KEYS[1]]):
        raise Denied(what, f"[{section}] lacks {_KEYS[0]} or {_KEYS[1]}", form)
    return keys


def _text(settings: S3Settings, path: str) -> str:
    with os.fdopen(settings.open_file(path), encoding="utf-8") as file:
        return file.read(MAX_KEYS)


def _secret(value: str | None, settings: S3Settings) -> str | None:
    if value is None or not value.startswith("+"):
        return value
    try:
        return _text(settings, value[1:]).split("\n", 1)[0]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise Denied(f"the secret in {value[1:]} cannot be read", why, "correct its path or mode") from None
