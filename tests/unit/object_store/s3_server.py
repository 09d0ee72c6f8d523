"""A small S3 over real HTTP: one bucket in memory, whose answers can be made to go wrong."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree

from tests.unit.object_store.memory_store import MemoryStore, etag
from zvault.object_store.interface import NO_OBJECT_YET, PreconditionFailed

BUCKET = "zvault"
CODES = {
    400: "ExpiredToken RequestTimeout",
    403: "InvalidAccessKeyId AccessDenied RequestTimeTooSkewed",
    409: "OperationAborted ConditionalRequestConflict",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "SlowDown ServiceUnavailable",
}
STATUS = {code: status for status, codes in CODES.items() for code in codes.split()}


class S3Server(ThreadingHTTPServer):
    """``faults`` are for the next requests, one each: an error's code; or "reset" (nothing carried out, no answer),
    "lost" (carried out, no answer), "cut" (half a body, then the connection is closed), "less" (another, shorter
    part), "flip" (a bit of what arrives is another), "html" (the page of a proxy), "silent" (no answer for a second),
    "no etag" (an answer without one).
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = MemoryStore()
        self.faults: list[str] = []
        self.put_faults: dict[str, str] = {}
        """The fault of the next put of a key."""
        self.keys = {"KEY"}
        self.bare = False  # compare an ETag without its quotes only, as RGW does
        self.virtual = True  # whether a bucket may be named in the host's name
        self.ranges = True
        self.part_status = 206
        self.ahead = 0.0  # seconds by which its clock differs from the one by which its objects were put
        self.page = 1000
        self.locks = True
        self.demands_md5 = False  # as S3 does where the bucket locks what is put
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.connections = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that was broken off, as told."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: S3Server
    key = ""

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate((timestamp or time.time()) + self.server.ahead, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the terminal."""

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers.items())))
        self.fault = self.server.faults.pop(0) if self.server.faults else ""
        if self.command == "PUT":
            self.fault = self.server.put_faults.pop(unquote(url.path).rpartition("/")[2], self.fault)
        host = self.headers["Host"].split(".")[0]
        bucket, _, key = (
            url.path[1:].partition("/")
            if host != BUCKET or not self.server.virtual
            else (BUCKET, "", url.path[1:])
        )
        if self.fault == "reset":
            return self.hang_up()
        if self.fault == "silent":
            threading.Event().wait(1.0)
        if self.fault == "html":
            return self.answer(503, b"<html><body>no server is available<hr></html>", type="text/html")
        if self.fault in STATUS:
            return self.refuse(STATUS[self.fault], self.fault)
        access = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        if access is None or access[1] not in self.server.keys:
            return self.refuse(403, "InvalidAccessKeyId")
        if bucket != BUCKET:
            return self.refuse(404, "NoSuchBucket")
        self.key = unquote(key)
        return {"GET": self.read, "PUT": self.put, "POST": self.remove}[self.command](body)

    do_GET = do_PUT = do_POST = handle_any

    def read(self, _: bytes) -> None:
        if not self.key:
            return self.list()
        data = self.server.store.objects.get(self.key)
        if data is None:
            return self.refuse(404, "NoSuchKey")
        span = (
            re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")) if self.server.ranges else None
        )
        if span is None:
            about = {"ETag": f'"{etag(data)}"', "Last-Modified": formatdate(time.time(), usegmt=True)}
            return self.answer(200, data, **about)
        first = int(span[1]) if span[1] else max(0, len(data) - int(span[2]))
        last = min(int(span[2]), len(data) - 1) if span[1] and span[2] else len(data) - 1
        if first > last:
            return self.refuse(416, "InvalidRange")
        if self.fault == "less":
            last -= 1
        part = data[first : last + 1]
        about = {"ETag": f'"{etag(data)}"', "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        return self.answer(self.server.part_status, part, **about)

    def put(self, body: bytes) -> None:
        if not self.intact(body):
            return self.refuse(400, "XAmzContentSHA256Mismatch")
        if not self.server.locks and "x-amz-object-lock-mode" in self.headers:
            return self.refuse(400, "InvalidRequest")
        if self.server.demands_md5 and "Content-MD5" not in self.headers:
            return self.refuse(
                400, "InvalidRequest", "Content-MD5 OR x-amz-checksum- HTTP header is required"
            )
        condition = (
            NO_OBJECT_YET if self.headers.get("If-None-Match") == "*" else self.headers.get("If-Match")
        )
        if condition:
            quoted = condition.startswith('"')
            condition = condition.strip('"') if quoted != self.server.bare else "another"
            if self.key not in self.server.store.objects:
                return self.refuse(404, "NoSuchKey")
        try:
            tag = self.server.store.put(self.key, body, condition)
        except PreconditionFailed:
            return self.refuse(412, "PreconditionFailed")
        return self.answer(200, b"", ETag=f'"{tag}"')

    def intact(self, body: bytes) -> bool:
        if self.fault == "flip":
            body = bytes([body[0] ^ 1]) + body[1:]
        told = self.headers.get("Content-MD5")
        if told is not None:
            return base64.b64encode(hashlib.md5(body).digest()).decode() == told
        return hashlib.sha256(body).hexdigest() == self.headers.get("x-amz-content-sha256")

    def remove(self, body: bytes) -> None:
        if not self.intact(body):
            return self.refuse(400, "BadDigest")
        names = [item.text or "" for item in ElementTree.fromstring(body).iter() if item.tag.endswith("Key")]
        if len(names) > 1000:
            return self.refuse(400, "MalformedXML")
        kept = [name for name in names if name.endswith("kept")]
        self.server.store.delete([name for name in names if name not in kept])
        errors = "".join(f"<Error><Key>{key}</Key><Code>AccessDenied</Code></Error>" for key in kept)
        return self.answer(200, f"<DeleteResult>{errors}</DeleteResult>".encode(), type="application/xml")

    def list(self) -> None:
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        found = list(self.server.store.list(self.query["prefix"], after))
        size = min(self.server.page, int(self.query["max-keys"]))
        items = "".join(
            f"<Contents><Key>{quote(item.key)}</Key><Size>{item.size}</Size></Contents>"
            for item in found[:size]
        )
        more = (
            f"<NextContinuationToken>{quote(found[size - 1].key)}</NextContinuationToken>"
            if found[size:]
            else ""
        )
        cut = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated><EncodingType>url</EncodingType>"
        body = f"<ListBucketResult>{cut}{more}{items}</ListBucketResult>".encode()
        return self.answer(200, body, type="application/xml")

    def refuse(self, status: int, code: str, message: str = "so it is") -> None:
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        return self.answer(status, body, type="application/xml")

    def answer(self, status: int, body: bytes, type: str = "binary/octet-stream", **headers: str) -> None:
        if self.fault == "lost":
            return self.hang_up()
        if self.fault == "no etag":
            headers.pop("ETag", None)
        self.send_response(status)
        for name, value in {"Content-Type": type, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.fault == "cut" else body)
        if self.fault == "cut":
            self.close_connection = True
        return None

    def hang_up(self) -> None:
        """Reset the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


@contextmanager
def serving() -> Iterator[S3Server]:
    """A server that runs until the end."""
    with S3Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
