"""An S3 bucket in memory that takes little of a processor: for what costs whoever talks to it.

It believes every signature and checksum, and has what the block store and boto3 ask for: puts with conditions, gets
of ranges, listings, and the removal of many. ``python3 memory_s3.py`` prints its port, and serves until it is ended.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from email.utils import formatdate
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree

LARGEST = 64 << 20
"""Bytes of an object at most."""


class Objects:
    """What it holds: contents and ETags by key. A put makes another ETag, whatever its contents."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytearray, str]] = {}
        self._puts = 0
        self._lock = threading.Lock()

    def put(self, key: str, data: bytearray, none_match: str | None, match: str | None) -> str | None:
        """Its ETag; None where a condition does not hold."""
        with self._lock:
            there = self._objects.get(key)
            if none_match is not None and there is not None:
                return None
            if match is not None and (there is None or match.strip('"') != there[1]):
                return None
            self._puts += 1
            etag = f"{self._puts:032x}"
            self._objects[key] = (data, etag)
            return etag

    def get(self, key: str) -> tuple[bytearray, str] | None:
        """An object, if it is there."""
        with self._lock:
            return self._objects.get(key)

    def delete(self, keys: list[str]) -> None:
        """Remove objects."""
        with self._lock:
            for key in keys:
                self._objects.pop(key, None)

    def listed(self, prefix: str, after: str) -> list[tuple[str, int]]:
        """Keys and sizes, in order."""
        with self._lock:
            return sorted(
                (key, len(data))
                for key, (data, _) in self._objects.items()
                if key.startswith(prefix) and key > after
            )


class Connection:
    """One of a client's."""

    def __init__(self, taken: socket.socket, objects: Objects) -> None:
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = taken
        self._in = taken.makefile("rb", buffering=1 << 14)
        self._objects = objects

    def serve(self) -> None:
        """Answer until the client has enough."""
        try:
            while line := self._in.readline():
                self._answer_to(line.decode("ascii"))
        except OSError:
            pass  # it has enough
        finally:
            self._socket.close()

    def _answer_to(self, line: str) -> None:
        method, target, _ = line.split(" ")
        headers: dict[str, str] = {}
        while (field := self._in.readline().decode("latin-1").rstrip()) != "":
            name, _, value = field.partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray(min(int(headers.get("content-length", 0)), LARGEST))
        view = memoryview(body)
        while view and (came := self._in.readinto(view)):
            view = view[came:]
        url = urlsplit(target)
        key = unquote(url.path[1:].partition("/")[2])
        if method == "PUT":
            self._put(key, body, headers)
        elif method == "POST":
            names = [it.text or "" for it in ElementTree.fromstring(body).iter() if it.tag.endswith("Key")]
            self._objects.delete(names)
            self._send(200, b"<DeleteResult/>")
        elif key:
            self._get(key, headers.get("range", ""))
        else:
            self._list({name: values[0] for name, values in parse_qs(url.query).items()})

    def _put(self, key: str, body: bytearray, headers: dict[str, str]) -> None:
        etag = self._objects.put(key, body, headers.get("if-none-match"), headers.get("if-match"))
        if etag is None:
            self._send(412, b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>")
        else:
            self._send(200, b"", ETag=f'"{etag}"')

    def _get(self, key: str, span: str) -> None:
        found = self._objects.get(key)
        if found is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>")
            return
        data, etag = found
        about = {"ETag": f'"{etag}"', "Last-Modified": formatdate(usegmt=True)}
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", span)
        if match is None:
            self._send(200, data, **about)
            return
        first = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
        last = min(int(match[2]), len(data) - 1) if match[1] and match[2] else len(data) - 1
        if first > last:
            self._send(416, b"<Error><Code>InvalidRange</Code><Message>none</Message></Error>")
            return
        about["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._send(206, memoryview(data)[first : last + 1], **about)

    def _list(self, query: dict[str, str]) -> None:
        after = query.get("continuation-token") or query.get("start-after", "")
        found = self._objects.listed(query.get("prefix", ""), after)
        page = found[: int(query.get("max-keys", 1000))]
        items = "".join(
            f"<Contents><Key>{quote(key)}</Key><Size>{size}</Size></Contents>" for key, size in page
        )
        more = len(found) > len(page)
        token = f"<NextContinuationToken>{quote(page[-1][0])}</NextContinuationToken>" if more else ""
        cut = f"<IsTruncated>{str(more).lower()}</IsTruncated><EncodingType>url</EncodingType>"
        self._send(200, f"<ListBucketResult>{cut}{token}{items}</ListBucketResult>".encode())

    def _send(self, status: int, body: bytes | bytearray | memoryview, **headers: str) -> None:
        told = {"Date": formatdate(usegmt=True), "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._socket.sendall(f"HTTP/1.1 {status} .\r\n{lines}\r\n".encode("latin-1"))
        if body:
            self._socket.sendall(body)


def main() -> None:
    """Serve."""
    objects = Objects()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            taken, _ = listening.accept()
            threading.Thread(target=Connection(taken, objects).serve, daemon=True).start()


if __name__ == "__main__":
    main()
