"""boto3's client for a bucket. This is the only module that makes one."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import threading
from contextvars import ContextVar
from typing import Any

from zvault import __version__
from zvault.core.errors import ToolMissing
from zvault.object_store.interface import Buffer, ObjectTooLarge, StoreDenied
from zvault.object_store.s3_settings import S3Settings, read_s3_keys

MAX_ANSWER = 6 << 20
"""Bytes: more than a page of a listing, or an error, ever has: 1000 keys of 1024 bytes, each written with three
letters, and what is said of them. Parsed, so many elements without contents take thirty times as much memory."""


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
        """The client. Raises StoreDenied where the keys or the settings are no good."""
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
        session = boto3.session.Session(**read_s3_keys(settings))
        client = session.client(
            "s3",
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            config=config(
                connect_timeout=settings.connect_seconds,
                read_timeout=settings.read_seconds,
                max_pool_connections=settings.connections,
                tcp_keepalive=True,
                # Retries are retrying_store.py's: what is tried again is counted, told, and takes turns.
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
        raise StoreDenied(
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
        """An answer; only the body of an object is left to be read. Raises ObjectTooLarge, and as botocore's."""
        streamed, request.stream_output = request.stream_output, True
        answer = self._session.send(request)
        if not streamed or answer.status_code >= 300:
            answer._content = _bounded(answer, request.url)
            refuse_entities(answer._content, request.url)
        return answer

    def close(self) -> None:
        """Close the connections of the session."""
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
        raise ObjectTooLarge("the store's answer is none", why, "see that the endpoint is an object store")
    return b"".join(pieces)


def refuse_entities(body: bytes, url: str) -> None:
    """Raises ObjectTooLarge for an answer that declares XML entities: 15 MiB of these grew to 2.9 GB when they were
    parsed.

    No S3 answer has any. A document type alone does no harm and is left to whoever reads the answer: a proxy's page of
    HTML has one. UTF-16, which botocore's parser knows by itself, has zero bytes.
    """
    if b"<!" not in body and b"\0" not in body:
        return
    from xml.parsers import expat

    class Found(Exception):
        """An entity is declared, or nothing can be declared any more."""

    declared: list[str] = []

    def declare(name: str, *_: object) -> None:
        declared.append(name)
        raise Found

    def begin(*_: object) -> None:
        raise Found

    # The encoding is the one that botocore's parser is told.
    parser = expat.ParserCreate("utf-8")
    parser.EntityDeclHandler, parser.StartElementHandler = declare, begin
    with contextlib.suppress(Found, expat.ExpatError):
        parser.Parse(body, True)
    if declared:
        raise ObjectTooLarge(
            "the store's answer is none",
            f"it declares XML entities, which grow when they are read ({url.partition('?')[0]})",
            "see that the endpoint is an object store",
        )


def _with_md5(params: dict[str, Any], **_: object) -> None:
    """Have a request protected by Content-MD5 in place of the CRC32 that boto3 puts where S3 demands a checksum."""
    params["headers"]["Content-MD5"] = compute_md5(params["body"])
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


def compute_md5(data: Buffer) -> str:
    """The value of a Content-MD5 header (RFC 1864)."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode("ascii")


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ToolMissing("the object store cannot be asked", str(error), "install python3-boto3") from error
    return boto3, Config
