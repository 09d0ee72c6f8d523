"""A proxy in front of an S3 server: counts requests, and makes the store fail in the ways that stores do."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

MODES = ("on", "unavailable", "slow", "silent", "full")
SLOW = 0.3
"""Seconds that each answer is kept back in mode ``slow``."""

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}
"""Headers that are of one connection only: RFC 9110, 7.6.1."""


@dataclass(frozen=True)
class Put:
    """One put that the server has carried out: whose, by the client's address, and of which path."""

    client: str
    path: str


@dataclass
class Proxy:
    """Listens on a port of its own; ``requests`` counts those passed on, by method, ``sent`` their bytes,
    and ``of_key`` by method and what a key begins with, up to the last slash. ``puts`` has those that were carried out,
    in that order.

    ``late``: by a client's address, for how many seconds each of its requests is kept back before the server gets it,
    also where the client has left meanwhile, and for how many its answer is. ``held``: how many requests are.
    """

    server: str
    mode: str = "on"
    address: str = "127.0.0.1"
    port: int = 0
    late: dict[str, tuple[float, float]] = field(default_factory=dict)
    held: int = 0
    puts: list[Put] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    of_key: Counter[tuple[str, str]] = field(default_factory=Counter)
    sent: int = 0

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(Relay):
            """One connection of a client."""

            owner = proxy

        self._http = ThreadingHTTPServer((self.address, self.port), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.mode = "on"
        self._http.shutdown()
        self._http.server_close()

    @property
    def endpoint(self) -> str:
        """Where a client finds it."""
        return f"http://{self.address}:{self._http.server_port}"

    @contextmanager
    def doing(self, mode: str) -> Iterator[None]:
        """Fail in one way for a while."""
        assert mode in MODES
        self.mode = mode
        try:
            yield
        finally:
            self.mode = "on"


class Relay(BaseHTTPRequestHandler):
    """Passes requests on, over a connection of its own for each of the client's."""

    protocol_version = "HTTP/1.1"
    owner: Proxy

    def setup(self) -> None:
        """A client's connection has one to the server behind it."""
        super().setup()
        at = urlsplit(self.owner.server)
        self.behind = http.client.HTTPConnection(str(at.hostname), at.port or 80)

    def finish(self) -> None:
        """Both end together."""
        self.behind.close()
        with suppress(OSError):
            super().finish()

    def handle_one_request(self) -> None:
        """A client may leave at any time, and take no answer."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def relay(self) -> None:
        """Answer as the mode says."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mode = self.owner.mode
        while self.owner.mode == "silent":
            time.sleep(0.1)
        if mode == "silent":
            self.close_connection = True
        elif mode == "unavailable":
            self.fail(503, "SlowDown")
        elif mode == "full" and self.command == "PUT":
            self.fail(507, "InsufficientStorage")
        else:
            time.sleep(SLOW if mode == "slow" else 0)
            self.pass_on(body, *self.owner.late.get(self.client_address[0], (0.0, 0.0)))

    def fail(self, status: int, code: str) -> None:
        """An error as S3 writes it."""
        self.answer(
            status, [("Content-Type", "application/xml")], f"<Error><Code>{code}</Code></Error>".encode()
        )

    def pass_on(self, body: bytes, asked: float = 0.0, answered: float = 0.0) -> None:
        """Ask the server the same, after so many seconds. The signature covers the host, so that stays the client's."""
        self.hold(asked)
        self.owner.requests[self.command] += 1
        self.owner.of_key[self.command, self.path.partition("?")[0].rpartition("/")[0]] += 1
        self.owner.sent += len(body)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        self.behind.request(self.command, self.path, body, headers)
        got = self.behind.getresponse()
        data = got.read()
        if self.command == "PUT" and got.status < 300:
            self.owner.puts.append(Put(self.client_address[0], urlsplit(self.path).path))
        self.hold(answered)
        self.answer(got.status, [(n, v) for n, v in got.getheaders() if n.lower() not in HOP_BY_HOP], data)

    def hold(self, seconds: float) -> None:
        """Wait, and be counted as one that does."""
        if seconds:
            self.owner.held += 1
            time.sleep(seconds)
            self.owner.held -= 1

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Send it in one piece."""
        self.send_response_only(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in names and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = relay


def make_bucket(endpoint: str, access_key: str, secret_key: str, name: str) -> None:
    """A bucket, made by curl: boto3 would import the benchmark ``requests`` for the library of that name."""
    config = f'user = "{access_key}:{secret_key}"\n'
    argv = ["curl", "-sSf", "-K", "-", "--aws-sigv4", "aws:amz:default:s3", "-X", "PUT", f"{endpoint}/{name}"]
    subprocess.run(argv, input=config, text=True, check=True, timeout=60)
